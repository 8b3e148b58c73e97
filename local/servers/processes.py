"""Child processes that end with this one, however it ends, and servers made of them."""

import contextlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

# The child's own process group gets one more member, this shell's background part. It reads a pipe that only
# we hold and kills the whole group at end of file, which also comes when we are killed by SIGKILL. The shell
# itself becomes the command, so the command has the pid that Popen knows. A group id is not given out again
# while a member lives, so `kill 0` can never hit a stranger. (PR_SET_PDEATHSIG is Linux only, and fires when
# the *thread* that forked ends.)
_WATCHED = 'exec 3<&0 </dev/null; (read -r _ <&3; kill -KILL 0) & exec "$@" 3<&-'

# Removes the directory after the pipe's end of file. Five tries: the servers that die of the same event may
# write a last file meanwhile.
_JANITOR = 'read -r _; for _ in 1 2 3 4 5; do rm -rf -- "$1" && exit; sleep 0.2; done'

POLL_INTERVAL_S = 0.02
# Of a log, for a message: a crash of some workers says a line for each, and the cause stands above them.
LAST_LINES = 20


class ServerError(Exception):
    """A server or its program cannot be had or does not answer; the message is one line for a person."""


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Polls until `condition` holds; False when it did not within `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_INTERVAL_S)
    return True


def free_port(*, second_above: int = 0) -> int:
    """A port of 127.0.0.1 that nobody listens on, nor on the one `second_above` ports higher.

    It lies below the ranges from which Linux (32768) and macOS (49152) take ports for outgoing connections;
    otherwise one of a storm's thousands of connections could sit on a server's port while that restarts.
    """
    for _ in range(100):  # with that many taken in a row, something else is wrong
        port = random.randrange(20_000 - second_above, 32_000 - second_above)  # noqa: S311
        if _can_bind(port) and _can_bind(port + second_above):
            return port
    raise ServerError("found no free port on 127.0.0.1 below 32000")


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: connections of an earlier server that linger in TIME_WAIT don't count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def temporary_directory() -> Iterator[Path]:
    """A new directory that is removed at the end of the block, or when this process dies in it."""
    path = Path(tempfile.mkdtemp(prefix="seckill-")).resolve()
    janitor = subprocess.Popen(
        ["/bin/sh", "-c", _JANITOR, "janitor", str(path)], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        janitor.communicate()


class SupervisedProcess:
    """A running child. It is killed, with its process group, when this process ends or drops the object."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Starts `command`; its output is appended to `log`.

        It has a session of its own: a Ctrl-C in the terminal reaches only us, and we stop it in good order.
        """
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHED, "watched", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )
        self.log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_status(self) -> int | None:
        """None while it runs; negative after a signal, like Popen.returncode."""
        return self._process.poll()

    def send_signal(self, number: signal.Signals) -> None:
        """Does nothing when the process has ended."""
        self._process.send_signal(number)

    def terminate(self, timeout_s: float = 10) -> None:
        """SIGTERM, and SIGKILL to what is left of its group after `timeout_s` seconds."""
        self.send_signal(signal.SIGTERM)
        self.send_signal(signal.SIGCONT)  # a stopped process would never see the SIGTERM
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone. The rest of its group follows at once."""
        assert self._process.stdin is not None  # noqa: S101 - for mypy: we asked for a pipe
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()  # wakes the watcher

    def last_words(self) -> str:
        """The last lines of its log, on one line."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return " | ".join(line.strip() for line in lines[-LAST_LINES:] if line.strip()) or "nothing in its log"


class Server(ABC):
    """A server on 127.0.0.1; its files are in `directory` and survive `kill` and `restart`."""

    name: ClassVar[str]
    # Far above the second that a start takes; recovery after a SIGKILL on a busy machine takes longest.
    start_timeout_s: ClassVar[float] = 60
    # How far above its port it listens on a second one; 0 when it does not.
    second_port_above: int = 0

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port(second_above=self.second_port_above)
        self.log = directory / f"{self.name}.log"
        self._process: SupervisedProcess | None = None

    @property
    @abstractmethod
    def url(self) -> str: ...

    @abstractmethod
    def command(self) -> Sequence[str]:
        """The command line that serves `port` and stays in the foreground."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether this very server, not a stranger on its port, answers a request now."""

    def prepare(self) -> None:  # noqa: B027 - most servers need nothing
        """Called once, before the first start."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        """Returns when the server answers; does nothing when it runs already.

        Raises:
            ServerError: it ended, or did not answer in time; the message carries the last lines of its log.
        """
        if self.alive:
            return
        first = self._process is None
        if first:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.prepare()
        for last_try in (not first, False, True):
            try:
                return self._start_once()
            except ServerError:
                # Only a first start may move: between free_port() and now a stranger can have taken the port.
                if last_try or (_can_bind(self.port) and _can_bind(self.port + self.second_port_above)):
                    raise
                self.port = free_port(second_above=self.second_port_above)

    def _start_once(self) -> None:
        self._process = process = SupervisedProcess(self.command(), log=self.log, cwd=self.directory)
        in_time = wait_until(lambda: not process.alive or self.answers(), self.start_timeout_s)
        if not in_time or not process.alive:
            problem = "did not start" if in_time else "did not answer in time"
            process.kill()
            raise ServerError(f"{self.name} {problem}: {process.last_words()}")

    def stop(self) -> None:
        """Stops it in good order; data stay."""
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        """SIGKILL: what it had not written is lost."""
        self._running().kill()

    def freeze(self) -> None:
        """SIGSTOP: from now on it accepts connections (its backlog does) and never answers."""
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kills it if it runs and starts it again on the same port and data."""
        self._running().kill()
        self.start()

    def _running(self) -> SupervisedProcess:
        if self._process is None:
            raise ServerError(f"{self.name} was never started")
        return self._process
