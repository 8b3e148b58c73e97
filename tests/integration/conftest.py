"""Servers that a test may kill, freeze and fill, and proxies in front of those it may not."""

import os
from collections.abc import Iterator

import pytest

from local.servers import DatabaseServer, RedisServer, Servers
from seckill.protocol.migrate import migrate
from tests.certificate import Certificate, make_certificate
from tests.proxy import Proxy
from tests.stores import open_database


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """What the tests' own servers prove themselves with."""
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="session")
def own_database(tmp_path_factory: pytest.TempPathFactory, certificate: Certificate) -> Iterator[DatabaseServer]:
    """A database server that may be killed, frozen and reconfigured; it speaks TLS to those who ask."""
    if os.environ.get("SECKILL_TEST_DATABASE_URL"):
        pytest.skip("SECKILL_TEST_DATABASE_URL names a server that this test may not kill, freeze or reconfigure")
    tls = (f"--ssl-cert={certificate.certificate}", f"--ssl-key={certificate.key}")
    with DatabaseServer(tmp_path_factory.mktemp("own_database"), options=tls) as server:
        database = open_database(server.url)
        migrate(database)
        database.close()
        yield server


@pytest.fixture(scope="session")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis that may be killed, frozen and filled; it forgets everything when it dies."""
    if os.environ.get("SECKILL_TEST_REDIS_URL"):
        pytest.skip("SECKILL_TEST_REDIS_URL names a server that this test may not kill, freeze or fill")
    with RedisServer(tmp_path_factory.mktemp("own_redis")) as server:
        yield server


@pytest.fixture
def database_proxy(servers: Servers) -> Iterator[Proxy]:
    with Proxy(servers.database_url) as proxy:
        yield proxy


@pytest.fixture
def redis_proxy(servers: Servers) -> Iterator[Proxy]:
    if "cluster=true" in servers.redis_url:
        pytest.skip("SECKILL_TEST_REDIS_URL is a cluster: its client talks to the nodes and not to a proxy")
    with Proxy(servers.redis_url) as proxy:
        yield proxy
