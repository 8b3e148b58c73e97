"""The layers' clients on Lambda's Python against servers that require TLS: the right one is believed, no other."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.redis import ACCESS
from local.servers import DatabaseServer, RedisServer, temporary_directory
from tests.infra.artefacts import Artefacts
from tests.infra.certificates import make_authority
from tests.infra.tls_front import tls_front

USER, PASSWORD = "seckill-test-app", "only-here"
HOST = "localhost"  # what the servers' certificates are for
DATABASE = """
import sys
from seckill.adapters.mysql import Database, Unreachable
from seckill.domain.deadline import Deadline
database = Database(sys.argv[1])
database.new_call(Deadline(seconds=30, longest_wait=10))
try:
    database.run_script("SELECT 1;")
    print("connected", database._connection._sock.version())
except Unreachable as error:
    print(error)
"""
REDIS = """
import sys
from seckill.adapters.redis import Redis, RedisError
from seckill.domain.deadline import Deadline
redis = Redis(sys.argv[1])
redis.deadline = Deadline(seconds=30, longest_wait=10)
try:
    redis.add_to_catalogue([1])
    print("connected")
except RedisError as error:
    print(error)
"""


@dataclass(frozen=True)
class Stores:
    """Ports that speak TLS only, and the CA that signed for them; `stranger` signed for nobody."""

    database_port: int
    redis_port: int
    authority: Path
    stranger: Path


@pytest.fixture(scope="module")
def stores() -> Iterator[Stores]:
    with temporary_directory() as name:
        folder = Path(name)
        for part in ("database", "redis"):
            (folder / part).mkdir()
        authority, stranger = make_authority(folder, "right"), make_authority(folder, "wrong")
        certificate, key = authority.certify(HOST, folder)
        database_options = [
            *(f"--ssl-ca={authority.file}", f"--ssl-cert={certificate}", f"--ssl-key={key}"),
            "--require-secure-transport=ON",
        ]
        with (
            DatabaseServer(folder / "database", options=database_options) as database,
            RedisServer(folder / "redis", options=[f"user {USER} >{PASSWORD} {ACCESS}"]) as redis,
            tls_front(redis.port, certificate, key) as redis_port,  # the packaged server was built without TLS
        ):
            yield Stores(database.port, redis_port, authority.file, stranger.file)


def run(artefacts: Artefacts, script: str, url: str, trusted: Path) -> str:
    """What the script prints on Lambda's Python, with the layers alone and this CA as the system's."""
    done = subprocess.run(
        [artefacts.python, "-c", script, url],
        env={"PYTHONPATH": os.pathsep.join(map(str, artefacts.paths("reserve"))), "SSL_CERT_FILE": str(trusted)},
        cwd=artefacts.tasks["reserve"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def database_url(stores: Stores, host: str = HOST) -> str:
    return f"mysql://root@{host}:{stores.database_port}/mysql?tls=true"


def redis_url(stores: Stores, host: str = HOST) -> str:
    # With a user, as deployed: without one redis-py 8.1 takes TLS 1.3's session tickets for an answer to nothing.
    return f"rediss://{USER}:{PASSWORD}@{host}:{stores.redis_port}/0"


def test_the_database_is_believed(artefacts: Artefacts, stores: Stores) -> None:
    assert run(artefacts, DATABASE, database_url(stores), stores.authority).startswith("connected TLSv1.")


def test_redis_is_believed(artefacts: Artefacts, stores: Stores) -> None:
    assert run(artefacts, REDIS, redis_url(stores), stores.authority) == "connected"


def test_a_database_of_another_authority_is_refused(artefacts: Artefacts, stores: Stores) -> None:
    assert "CERTIFICATE_VERIFY_FAILED" in run(artefacts, DATABASE, database_url(stores), stores.stranger)


def test_a_redis_of_another_authority_is_refused(artefacts: Artefacts, stores: Stores) -> None:
    assert "CERTIFICATE_VERIFY_FAILED" in run(artefacts, REDIS, redis_url(stores), stores.stranger)


def test_a_database_of_another_name_is_refused(artefacts: Artefacts, stores: Stores) -> None:
    assert "IP address mismatch" in run(artefacts, DATABASE, database_url(stores, "127.0.0.1"), stores.authority)


def test_a_redis_of_another_name_is_refused(artefacts: Artefacts, stores: Stores) -> None:
    assert "IP address mismatch" in run(artefacts, REDIS, redis_url(stores, "127.0.0.1"), stores.authority)


def test_the_database_takes_nobody_without_tls(artefacts: Artefacts, stores: Stores) -> None:
    url = database_url(stores).replace("?tls=true", "")
    assert "connected" not in run(artefacts, DATABASE, url, stores.authority)
