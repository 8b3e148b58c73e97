"""Logins signed with the function's role, at real servers: a refused token is signed afresh, once, and nothing is lost.

Real tokens are signed for a moment and for AWS; here the signer gives passwords in a row, and the servers know one.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from local.servers import DatabaseServer, RedisServer
from seckill.adapters import mysql
from seckill.adapters import redis as redis_adapter
from seckill.adapters.mysql import ACCESS_DENIED, Database, Unreachable
from seckill.adapters.redis import Redis, RedisError
from tests.books import connect
from tests.conftest import FAKE_AWS
from tests.http_events import call, post
from tests.proxy import Proxy
from tests.redis_copy import RedisCopy
from tests.sales import Sales
from tests.stores import SALE_FIELDS, open_database, open_redis

USER = "signed"


class Signer:
    """Signs `first`, `second`, `third`: another password each time."""

    def __init__(self) -> None:
        self.signed: list[str] = []

    def __call__(self, *_: object, **__: object) -> str:
        self.signed.append(("first", "second", "third")[len(self.signed)])
        return self.signed[-1]


@pytest.fixture(autouse=True)
def role(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Lambda tells a function of its role."""
    for name, value in FAKE_AWS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def database_signer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Signer]:
    """Signs for databases, in a container that has signed nothing yet."""
    signer = Signer()
    monkeypatch.setattr(mysql, "database_token", signer)
    mysql._token.cache_clear()
    yield signer
    mysql._token.cache_clear()


@pytest.fixture
def redis_signer(monkeypatch: pytest.MonkeyPatch) -> Signer:
    """Signs for Redis."""
    signer = Signer()
    monkeypatch.setattr(redis_adapter, "redis_token", signer)
    return signer


@pytest.fixture
def set_password(own_database: DatabaseServer) -> Iterator[Callable[[str], None]]:
    """Sets the database user's password; until then nobody gets in."""
    with connect(own_database.url) as root, root.cursor() as cursor:
        cursor.execute(f"CREATE USER {USER}@`%` IDENTIFIED BY 'nobody-has-this'")
        cursor.execute(f"GRANT ALL ON seckill.* TO {USER}@`%`")

        def set_to(password: str) -> None:
            cursor.execute(f"ALTER USER {USER}@`%%` IDENTIFIED BY %s", (password,))

        yield set_to
        cursor.execute(f"DROP USER {USER}@`%`")


@pytest.fixture
def proxy(own_database: DatabaseServer) -> Iterator[Proxy]:
    """Counts what comes to the database."""
    with Proxy(own_database.url) as counting:
        yield counting


@pytest.fixture
def signed_database(proxy: Proxy) -> Iterator[Database]:
    with contextlib.closing(open_database(as_signed(proxy.url))) as database:
        yield database


def as_signed(url: str) -> str:
    """The database's URL for the user whose password is signed."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"{USER}@{parts.hostname}:{parts.port}", query="auth=iam").geturl()


def test_a_database_that_refuses_the_first_token_is_given_a_second(
    set_password: Callable[[str], None], signed_database: Database, database_signer: Signer, proxy: Proxy
) -> None:
    set_password("second")
    assert signed_database.row("sale.as_opened", 1) is None
    assert (database_signer.signed, proxy.connections) == (["first", "second"], 2)
    assert proxy.requests_with(b"FROM seckill_sale") == 1


def test_a_database_that_refuses_the_second_token_too_is_given_no_third(
    set_password: Callable[[str], None], signed_database: Database, database_signer: Signer, proxy: Proxy
) -> None:
    set_password("third")
    with pytest.raises(Unreachable) as refused:
        signed_database.row("sale.as_opened", 1)
    assert refused.value.code == ACCESS_DENIED
    assert (database_signer.signed, proxy.connections) == (["first", "second"], 2)
    assert proxy.requests_with(b"seckill_sale") == 0


def test_a_token_once_taken_serves_every_connection_until_it_is_refused(
    set_password: Callable[[str], None], signed_database: Database, database_signer: Signer, proxy: Proxy
) -> None:
    set_password("first")
    with signed_database.consistent_read() as reader:  # a connection of its own
        assert reader.row("sale.as_opened", 1) is None
    assert signed_database.row("sale.as_opened", 1) is None
    assert database_signer.signed == ["first"]
    set_password("second")  # as when the role's key has changed
    signed_database.close()
    assert signed_database.row("sale.as_opened", 1) is None
    assert (database_signer.signed, proxy.connections) == (["first", "second"], 4)


def test_a_password_that_is_not_signed_is_tried_once(own_database: DatabaseServer, proxy: Proxy) -> None:
    url = proxy.url.replace("root@", "root:wrong@")
    assert url != proxy.url
    with pytest.raises(Unreachable):
        open_database(url).row("sale.as_opened", 1)
    assert proxy.connections == 1


@pytest.fixture(params=[False, True], ids=["one server", "a cluster"])
def redis_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path, cluster=request.param) as server:
        yield server


def know_password(server: RedisServer, *passwords: str) -> None:
    """The ACL's only passwords of the signed user from now on."""
    RedisCopy(server.url, 1).client.execute_command(
        "ACL", "SETUSER", USER, "reset", "on", "~*", "+@all", *(f">{password}" for password in passwords)
    )


def signed_redis_url(server: RedisServer) -> str:
    parts = urlsplit(server.url)
    query = "&".join(filter(None, (parts.query, "auth=iam&cache=seckill-test")))
    return parts._replace(netloc=f"{USER}@127.0.0.1:{server.port}", query=query).geturl()


@pytest.fixture
def signed_redis(redis_server: RedisServer) -> Iterator[Redis]:
    with contextlib.closing(open_redis(signed_redis_url(redis_server))) as redis:
        yield redis


def test_a_redis_that_refuses_the_first_token_is_given_a_second(
    redis_server: RedisServer, signed_redis: Redis, redis_signer: Signer
) -> None:
    know_password(redis_server, "second")
    assert signed_redis.load(1, SALE_FIELDS, 1, [], {})
    assert RedisCopy(redis_server.url, 1).stock == 3
    assert redis_signer.signed == ["first", "second"]


def test_a_redis_that_refuses_the_second_token_too_is_given_no_third(
    redis_server: RedisServer, signed_redis: Redis, redis_signer: Signer
) -> None:
    know_password(redis_server, "third")
    with pytest.raises(RedisError, match="invalid username-password pair"):
        signed_redis.epoch(1)
    assert redis_signer.signed == ["first", "second"]


def test_a_redis_token_is_signed_afresh_when_the_role_has_changed(
    redis_server: RedisServer, signed_redis: Redis, redis_signer: Signer
) -> None:
    know_password(redis_server, "first")
    assert signed_redis.epoch(1) is None
    know_password(redis_server, "second")
    assert signed_redis.epoch(1) is None  # a connection once made outlives its token
    assert redis_signer.signed == ["first"]
    signed_redis.close()
    assert signed_redis.epoch(1) is None
    assert redis_signer.signed == ["first", "second"]


def test_a_reservation_is_made_although_both_stores_refuse_the_first_token(
    own_database: DatabaseServer,
    own_redis: RedisServer,
    set_password: Callable[[str], None],
    database_signer: Signer,
    redis_signer: Signer,
    function_environment: pytest.MonkeyPatch,
) -> None:
    with contextlib.closing(open_database(own_database.url)) as database:
        sku_id = Sales(database, open_redis(own_redis.url)).open(total=1)
    set_password("second")
    know_password(own_redis, "second")
    function_environment.setenv("DATABASE_URL", as_signed(own_database.url))
    function_environment.setenv("REDIS_URL", signed_redis_url(own_redis))
    answer = call(post(sku_id))
    assert (answer.status, answer.body["status"]) == (202, "RESERVED")
    assert database_signer.signed == redis_signer.signed == ["first", "second"]
