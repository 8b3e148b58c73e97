"""Stores that refuse the functions, and functions that refuse stores: a 503 each time, and nobody loses a unit."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlsplit

import pymysql
import pytest

from local.servers import DatabaseServer, RedisServer, Servers, free_port
from seckill.adapters.mysql import (
    Unreachable,
)
from seckill.adapters.redis import Redis, RedisError, Won
from seckill.adapters.sqs import Queues
from seckill.domain.answer import Refusal, Refused, Reserved
from seckill.protocol.reserve import Reserve
from tests.books import connect
from tests.certificate import Certificate
from tests.http_events import call, get_latest, get_sale, post
from tests.proxy import Proxy, refused_port, through, tls_front
from tests.redis_copy import RedisCopy
from tests.sales import Sales
from tests.stores import SALE_FIELDS, open_database, open_redis, reserved


def unreachable_databases(url: str) -> dict[str, str]:
    """URLs at which there is no such login, no such database, nobody at all."""
    parts = urlsplit(url)
    place = f"{parts.hostname}:{parts.port or 3306}"
    return {
        "wrong password": f"mysql://{parts.username}:not-the-password@{place}{parts.path}",
        "unknown user": f"mysql://nobody-of-that-name:x@{place}{parts.path}",
        "unknown database": parts._replace(path="/no_such_database").geturl(),
        "refused port": through(url, refused_port()),
    }


@pytest.mark.parametrize("why", ["wrong password", "unknown user", "unknown database", "refused port"])
def test_a_database_that_cannot_be_used_is_a_503_and_the_unit_waits_under_its_key(
    why: str, servers: Servers, sales: Sales, reserve: Reserve, function_environment: pytest.MonkeyPatch
) -> None:
    sku_id = sales.open(total=2)
    function_environment.setenv("DATABASE_URL", unreachable_databases(servers.database_url)[why])
    answer = call(post(sku_id))
    assert (answer.status, answer.code) == (503, "OUTCOME_UNKNOWN")
    assert call(get_latest(sku_id)).status == 503
    assert reserved(reserve(sku_id, "alice")).key == answer.body["preDeductKey"]


@pytest.mark.parametrize("why", ["wrong password", "unknown user", "refused port"])
def test_a_redis_that_cannot_be_used_is_a_503_and_costs_nothing(
    why: str,
    servers: Servers,
    sales: Sales,
    function_environment: pytest.MonkeyPatch,
    copy_of: Callable[[int], RedisCopy],
) -> None:
    sku_id = sales.open(total=2)
    parts = urlsplit(servers.redis_url)
    place = f"{parts.hostname}:{parts.port or 6379}{parts.path}?{parts.query}"
    urls = {
        "wrong password": f"redis://:not-the-password@{place}",
        "unknown user": f"redis://nobody-of-that-name:x@{place}",
        "refused port": through(servers.redis_url, refused_port()),
    }
    function_environment.setenv("REDIS_URL", urls[why])
    assert call(post(sku_id)).status == 503
    assert call(get_sale(sku_id)).status == 503
    assert copy_of(sku_id).stock == 2


def test_logins_with_any_characters_are_understood(
    own_database: DatabaseServer, own_redis: RedisServer, queues: Queues
) -> None:
    password = "p@ss/wörd€:%?#"
    with connect(own_database.url) as root, root.cursor() as cursor:
        cursor.execute("SET NAMES utf8mb4")
        cursor.execute("CREATE USER IF NOT EXISTS 'shöp'@'%%' IDENTIFIED BY %s", (password,))
        cursor.execute("GRANT ALL ON seckill.* TO 'shöp'@'%'")
    RedisCopy(own_redis.url, 1).client.acl_setuser(
        "shöp", enabled=True, passwords=[f"+{password}"], keys=["*"], categories=["+@all"]
    )
    login = f"{quote('shöp')}:{quote(password, safe='')}"
    redis = open_redis(f"redis://{login}@127.0.0.1:{own_redis.port}/0")
    with contextlib.closing(open_database(f"mysql://{login}@127.0.0.1:{own_database.port}/seckill")) as database:
        sku_id = Sales(database, redis).open(total=1)
        assert reserved(Reserve(redis, database, queues, lambda name: None)(sku_id, "alice")).new


def test_a_database_that_proves_who_it_is_is_spoken_to_in_secret(
    own_database: DatabaseServer, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.certificate))
    with Proxy(own_database.url) as proxy, contextlib.closing(open_database(f"{proxy.url}?tls=true")) as database:
        assert database.row("sale.as_opened", 1) is None
        assert proxy.requests_with(b"root|seckill_sale") == 0


@pytest.mark.parametrize("why", ["an unknown authority", "another name"])
def test_a_database_that_does_not_prove_who_it_is_gets_no_login_when_tls_is_asked_for(
    why: str, own_database: DatabaseServer, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy(own_database.url) as proxy:
        url = f"{proxy.url}?tls=true"
        if why == "another name":
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate.certificate))
            url = url.replace("127.0.0.1", "localhost")
        with pytest.raises(Unreachable, match="certificate verify failed"):
            open_database(url).row("sale.as_opened", 1)
        assert proxy.connections == 1
        assert proxy.requests_with(b"root") == 0


def test_a_database_without_tls_gets_no_login_when_tls_is_asked_for(servers: Servers) -> None:
    # Newer servers do speak TLS by themselves, with a certificate that nobody knows: the same to us.
    with Proxy(servers.database_url) as proxy:
        with pytest.raises(Unreachable, match=r"SSL is required|certificate verify failed"):
            open_database(f"{proxy.url}?tls=true").row("sale.as_opened", 1)
        assert proxy.connections == 1
        assert proxy.requests_with(str(urlsplit(servers.database_url).username).encode()) == 0


@pytest.mark.parametrize("cluster", [False, True], ids=["one server", "a cluster"])
def test_redis_is_spoken_to_in_secret_and_only_when_it_proves_who_it_is(
    cluster: bool, certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    announced = (f"cluster-announce-port {port}", "cluster-announce-ip 127.0.0.1") if cluster else ()
    with RedisServer(tmp_path, cluster=cluster, options=announced) as server, tls_front(port, server.port, certificate):
        url = server.url.replace("redis:", "rediss:").replace(str(server.port), str(port))
        with pytest.raises(RedisError, match="certificate verify failed"):
            open_redis(url).epoch(1)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.certificate))
        if not cluster:  # whose client goes by the addresses of the nodes
            with pytest.raises(RedisError, match="certificate is not valid for 'localhost'"):
                open_redis(url.replace("127.0.0.1", "localhost")).epoch(1)
        for number in range(5):  # what a server sends after the handshake must never be taken for an answer
            redis = open_redis(url)
            assert redis.load(number, SALE_FIELDS, 1, [], {})
            assert isinstance(redis.reserve(number, "key", "alice"), Won)
            redis.close()


def test_a_database_with_no_connection_left_is_a_503_until_it_has_one(
    own_database: DatabaseServer, redis: Redis, queues: Queues
) -> None:
    with connect(own_database.url) as root, root.cursor() as cursor:
        cursor.execute("CREATE USER IF NOT EXISTS 'plain'@'%'")
        cursor.execute("GRANT ALL ON seckill.* TO 'plain'@'%'")
        cursor.execute("SET GLOBAL max_connections = 10")
        url = f"mysql://plain@127.0.0.1:{own_database.port}/seckill"
        try:
            with contextlib.closing(open_database(own_database.url)) as database:
                sku_id = Sales(database, redis).open(total=1)
            with contextlib.ExitStack() as others, contextlib.closing(open_database(url)) as database:
                with pytest.raises(pymysql.OperationalError, match="Too many connections"):
                    for _ in range(12):
                        others.enter_context(connect(url))
                with pytest.raises(Unreachable) as failure:
                    database.row("sale.as_opened", sku_id)
                assert failure.value.code == 1040
                reserve = Reserve(redis, database, queues, lambda name: None)
                unknown = reserve(sku_id, "alice")
                assert isinstance(unknown, Refused)
                assert unknown.refusal is Refusal.OUTCOME_UNKNOWN
                others.close()
                answers = (reserve(sku_id, "alice") for _ in range(50))  # the server frees its slots in its own time
                assert next(answer for answer in answers if isinstance(answer, Reserved)).key == unknown.key
        finally:
            cursor.execute("SET GLOBAL max_connections = 300")
