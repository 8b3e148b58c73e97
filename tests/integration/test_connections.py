"""Connections that break, lie and hang: no unit lost, nothing half-written, every answer in time.

Everything runs on real servers; a proxy plays the network between them and the functions.
"""

import contextlib
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

import pymysql
import pytest

from functions.land_order import handler as land_order
from local.servers import DatabaseServer, RedisServer, Servers
from seckill.adapters.mysql import (
    Database,
    DatabaseError,
    Deadlock,
    Duplicate,
    LockTimeout,
    RowRefused,
    Unreachable,
)
from seckill.adapters.redis import Redis, Won
from seckill.adapters.sqs import Queues
from seckill.domain.answer import Answer, Refusal, Refused, Reserved
from seckill.domain.deadline import Deadline
from seckill.domain.reservation import Deduction, Status
from seckill.protocol.abandon import Abandoned, abandon
from seckill.protocol.land import Landing, land
from seckill.protocol.migrate import migrate
from seckill.protocol.rebuild import Rebuilt, rebuild
from seckill.protocol.reserve import Reserve
from tests.books import assert_books_balance, connect, read_books
from tests.containers import context, new_containers
from tests.http_events import HttpAnswer, call, get_latest, get_reservation, get_sale, post
from tests.ledger import Ledger
from tests.messages import failed_ids, landing_body, landing_event
from tests.proxy import Proxy, full_port, refused_port, silent_port, through
from tests.redis_copy import RedisCopy
from tests.sales import Sales, fresh_sku_id

# The contract's limit for every HTTP answer.
ANSWERED_WITHIN_SECONDS = 3.0

FENCED_INSERT = rb"INSERT INTO seckill_pre_deduct"
RUN_SCRIPT = rb"EVALSHA|EVAL\r\n"
LOCK_STOCK = "SELECT 1 FROM seckill_stock WHERE sku_id = %(sku)s FOR UPDATE"

Lands = Callable[[list[str]], dict[str, Landing]]


@dataclass(frozen=True)
class Far:
    """A container whose connections to the stores pass through proxies."""

    reserve: Reserve
    database: Database
    redis: Redis
    database_proxy: Proxy
    redis_proxy: Proxy


def deadline() -> Deadline:
    """Time enough for all that a test does by itself."""
    return Deadline(seconds=60, longest_wait=5)


def open_database(url: str) -> Database:
    """A database connection with a minute to spend."""
    database = Database(url)
    database.new_call(deadline())
    return database


def reserved(answer: Answer) -> Reserved:
    """The promise that the answer must be."""
    assert isinstance(answer, Reserved), answer
    return answer


def deducted(redis: Redis, sku_id: int, user: str) -> Deduction:
    """A unit deducted in Redis and known nowhere else: what a function leaves that dies right after."""
    won = redis.reserve(sku_id, f"{sku_id}-{user}", user)
    assert isinstance(won, Won)
    return won.deduction


def thread_of(database: Database) -> int:
    """The number under which the server knows this connection."""
    assert database._connection is not None
    return int(database._connection.thread_id())  # type: ignore[no-untyped-call]


def kill_connection(database_url: str, database: Database) -> None:
    """KILL, as an operator or a fail-over does it."""
    with connect(database_url) as other, other.cursor() as cursor:
        cursor.execute("KILL %s", (thread_of(database),))


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


@pytest.fixture
def far(database_proxy: Proxy, redis_proxy: Proxy, queues: Queues, counts: list[str]) -> Iterator[Far]:
    database, redis = open_database(database_proxy.url), Redis(redis_proxy.url)
    redis.deadline = deadline()
    queues.warm()
    yield Far(Reserve(redis, database, queues, counts.append), database, redis, database_proxy, redis_proxy)
    database.close()


@pytest.fixture
def lands(database_proxy: Proxy, redis: Redis) -> Iterator[Lands]:
    """land as one container does it again and again, its database behind the proxy."""
    database = Database(database_proxy.url)

    def landed(keys: list[str]) -> dict[str, Landing]:
        database.new_call(deadline())
        return land(database, redis, keys, lambda name: None)

    yield landed
    database.close()


@pytest.fixture(scope="module")
def own_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DatabaseServer]:
    """A database server that may be killed and frozen."""
    if os.environ.get("SECKILL_TEST_DATABASE_URL"):
        pytest.skip("SECKILL_TEST_DATABASE_URL names a server that this test may not kill, freeze or reconfigure")
    with DatabaseServer(tmp_path_factory.mktemp("own_database")) as server:
        database = open_database(server.url)
        migrate(database)
        database.close()
        yield server


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis that may be killed and frozen, and forgets everything when it is."""
    if os.environ.get("SECKILL_TEST_REDIS_URL"):
        pytest.skip("SECKILL_TEST_REDIS_URL names a server that this test may not kill, freeze or reconfigure")
    with RedisServer(tmp_path_factory.mktemp("own_redis")) as server:
        yield server


# -- MySQL: killed connections, killed servers ----------------------------------------------------------------------


def test_a_connection_killed_between_two_calls_is_replaced_by_the_next(
    servers: Servers, sales: Sales, reserve: Reserve, database: Database, ledger_of: Callable[[int], Ledger]
) -> None:
    sku_id = sales.open(total=2)
    reserved(reserve(sku_id, "alice"))
    kill_connection(servers.database_url, database)
    assert reserved(reserve(sku_id, "bob")).new
    assert len(ledger_of(sku_id).rows()) == 2


def test_a_connection_cut_by_the_network_between_two_calls_is_replaced_by_the_next(far: Far, sales: Sales) -> None:
    sku_id = sales.open(total=2)
    reserved(far.reserve(sku_id, "alice"))
    far.database_proxy.cut()
    far.redis_proxy.cut()
    assert reserved(far.reserve(sku_id, "bob")).new


def test_a_database_server_that_died_and_came_back_between_two_calls_is_found_again(
    own_database: DatabaseServer, redis: Redis, queues: Queues
) -> None:
    with contextlib.closing(open_database(own_database.url)) as database:
        sku_id = Sales(database, redis).open(total=2)
        reserve = Reserve(redis, database, queues, lambda name: None)
        first = reserved(reserve(sku_id, "alice"))
        own_database.restart()
        assert reserved(reserve(sku_id, "bob")).new
        assert reserved(reserve(sku_id, "alice")) == Reserved(first.key, Status.RESERVED, 1, new=False)
    assert assert_books_balance(own_database.url, sku_id).reserved == 2


def test_while_the_database_server_is_dead_the_unit_waits_under_its_key(
    own_database: DatabaseServer, redis: Redis, queues: Queues, copy_of: Callable[[int], RedisCopy]
) -> None:
    with contextlib.closing(open_database(own_database.url)) as database:
        sku_id = Sales(database, redis).open(total=1)
        reserve = Reserve(redis, database, queues, lambda name: None)
        own_database.kill()
        try:
            unknown = reserve(sku_id, "alice")
        finally:
            own_database.restart()
        assert isinstance(unknown, Refused)
        assert unknown.refusal is Refusal.OUTCOME_UNKNOWN
        assert list(copy_of(sku_id).holds()) == [unknown.key]
        assert reserve(sku_id, "bob") == Refused(Refusal.SOLD_OUT)
        assert reserved(reserve(sku_id, "alice")).key == unknown.key
    assert assert_books_balance(own_database.url, sku_id).reserved == 1


# What land sends in its transaction, in this order.
LAND_STATEMENTS = (
    rb"FOR UPDATE",
    rb"INSERT INTO seckill_order",
    rb"SET status = 2",
    rb"UPDATE seckill_stock",
    rb"COMMIT",
)


@pytest.mark.parametrize("statement", LAND_STATEMENTS, ids=lambda statement: statement.decode())
def test_a_landing_whose_connection_breaks_fails_as_a_whole_and_lands_once_later(
    statement: bytes,
    sales: Sales,
    reserve: Reserve,
    database_proxy: Proxy,
    lands: Lands,
    ledger_of: Callable[[int], Ledger],
) -> None:
    sku_id = sales.open(total=3)
    keys = [reserved(reserve(sku_id, user)).key for user in ("alice", "bob", "carol")]
    database_proxy.cut_at(statement)
    assert lands(keys) == dict.fromkeys(keys, Landing.FAILED)
    assert database_proxy.sprung == 1
    ledger = ledger_of(sku_id)
    assert {(row.status, row.orders) for row in ledger.rows().values()} == {(1, 0)}
    assert ledger.remaining() == 3
    assert lands(keys) == dict.fromkeys(keys, Landing.LANDED)
    assert {(row.status, row.orders) for row in ledger.rows().values()} == {(2, 1)}
    assert ledger.remaining() == 0


def test_a_landing_whose_connection_is_killed_in_its_transaction_lands_once_later(
    servers: Servers,
    sales: Sales,
    reserve: Reserve,
    redis: Redis,
    database_proxy: Proxy,
    ledger_of: Callable[[int], Ledger],
) -> None:
    sku_id = sales.open(total=2)
    keys = [reserved(reserve(sku_id, user)).key for user in ("alice", "bob")]
    with contextlib.closing(open_database(database_proxy.url)) as database:
        database_proxy.before(rb"UPDATE seckill_stock", partial(kill_connection, servers.database_url, database))
        assert set(land(database, redis, keys, lambda name: None).values()) == {Landing.FAILED}
        assert {(row.status, row.orders) for row in ledger_of(sku_id).rows().values()} == {(1, 0)}
        assert set(land(database, redis, keys, lambda name: None).values()) == {Landing.LANDED}
    assert ledger_of(sku_id).remaining() == 0


def test_a_landing_whose_server_dies_in_its_transaction_lands_once_later(
    own_database: DatabaseServer, redis: Redis, queues: Queues
) -> None:
    with Proxy(own_database.url) as proxy, contextlib.closing(open_database(proxy.url)) as database:
        sku_id = Sales(database, redis).open(total=2)
        reserve = Reserve(redis, database, queues, lambda name: None)
        keys = [reserved(reserve(sku_id, user)).key for user in ("alice", "bob")]
        database.new_call(deadline())
        proxy.before(rb"UPDATE seckill_stock", own_database.kill)
        try:
            assert set(land(database, redis, keys, lambda name: None).values()) == {Landing.FAILED}
        finally:
            own_database.restart()
        books = assert_books_balance(own_database.url, sku_id)
        assert (books.reserved, books.landed, books.ordered, books.remaining) == (2, 0, 0, 2)
        assert set(land(database, redis, keys, lambda name: None).values()) == {Landing.LANDED}
    books = assert_books_balance(own_database.url, sku_id)
    assert (books.reserved, books.landed, books.ordered, books.remaining) == (0, 2, 2, 0)


def test_a_transaction_that_lost_its_connection_goes_on_nowhere_else(
    servers: Servers, database: Database, ledger_of: Callable[[int], Ledger]
) -> None:
    first, second = fresh_sku_id(), fresh_sku_id()
    with pytest.raises(Unreachable), database.transaction():
        database.execute("sale.insert_stock", first, 1, 1)
        kill_connection(servers.database_url, database)
        with contextlib.suppress(DatabaseError):
            database.execute("sale.insert_stock", second, 1, 1)
        # On a new connection this would commit by itself.
        database.execute("sale.insert_stock", second, 1, 1)
    for sku_id in (first, second):
        assert ledger_of(sku_id).select("SELECT 1 FROM seckill_stock WHERE sku_id = %(sku)s") == []
    assert database.execute("sale.insert_stock", first, 1, 1) == 1


# -- replies that are lost ------------------------------------------------------------------------------------------


def test_a_reply_lost_between_redis_and_the_function_costs_one_unit_and_makes_one_key(
    far: Far, sales: Sales, copy_of: Callable[[int], RedisCopy], ledger_of: Callable[[int], Ledger]
) -> None:
    sku_id = sales.open(total=2)
    reserved(far.reserve(sku_id, "somebody"))  # from here on the server knows the script
    scripts = far.redis_proxy.requests_with(RUN_SCRIPT)
    far.redis_proxy.lose_reply_to(RUN_SCRIPT)
    unknown = far.reserve(sku_id, "alice")
    assert isinstance(unknown, Refused)
    assert unknown.refusal is Refusal.OUTCOME_UNKNOWN
    assert far.redis_proxy.requests_with(RUN_SCRIPT) == scripts + 1, "a script whose reply was lost was sent again"
    assert copy_of(sku_id).stock == 0
    assert reserved(far.reserve(sku_id, "alice")).key == unknown.key
    assert copy_of(sku_id).stock == 0
    assert len(ledger_of(sku_id).rows()) == 2


def test_a_request_that_never_reached_redis_costs_nothing(
    far: Far, sales: Sales, copy_of: Callable[[int], RedisCopy]
) -> None:
    sku_id = sales.open(total=1)
    far.redis_proxy.cut_at(RUN_SCRIPT)
    assert isinstance(far.reserve(sku_id, "alice"), Refused)
    assert copy_of(sku_id).stock == 1
    assert reserved(far.reserve(sku_id, "bob")).new


def test_a_release_whose_reply_was_lost_gives_its_units_back_once(
    far: Far, sales: Sales, redis: Redis, database: Database, copy_of: Callable[[int], RedisCopy]
) -> None:
    sku_id = sales.open(total=2)
    for user in ("somebody", "alice"):
        deduction = deducted(redis, sku_id, user)
        if user == "alice":
            far.redis_proxy.lose_reply_to(RUN_SCRIPT)
        assert abandon(database, far.redis, deduction) is Abandoned.TOMBSTONE
    assert far.redis_proxy.sprung == 1
    assert copy_of(sku_id).stock == 2
    assert redis.release(sku_id, deduction.key, "alice") is False
    assert copy_of(sku_id).stock == 2


def test_a_ledger_insert_whose_reply_was_lost_is_a_reservation_under_the_same_key(
    far: Far, sales: Sales, ledger_of: Callable[[int], Ledger], counts: list[str]
) -> None:
    sku_id = sales.open(total=2)
    far.database_proxy.lose_reply_to(FENCED_INSERT)
    answer = reserved(far.reserve(sku_id, "alice"))
    assert far.database_proxy.sprung == 1
    assert ledger_of(sku_id).statuses() == {answer.key: 1}
    assert "SendFailed" not in counts
    assert reserved(far.reserve(sku_id, "alice")).key == answer.key


def test_a_ledger_insert_that_never_arrived_is_made_once_more(
    far: Far, sales: Sales, ledger_of: Callable[[int], Ledger]
) -> None:
    sku_id = sales.open(total=2)
    far.database_proxy.cut_at(FENCED_INSERT)
    answer = reserved(far.reserve(sku_id, "alice"))
    assert answer.new
    assert ledger_of(sku_id).statuses() == {answer.key: 1}


def test_a_ledger_insert_lost_together_with_the_database_touches_nothing_until_asked_again(
    far: Far, sales: Sales, copy_of: Callable[[int], RedisCopy], ledger_of: Callable[[int], Ledger]
) -> None:
    sku_id = sales.open(total=2)
    reserved(far.reserve(sku_id, "somebody"))
    upstream, far.database_proxy.upstream = far.database_proxy.upstream, ("127.0.0.1", refused_port())
    far.database_proxy.lose_reply_to(FENCED_INSERT)
    unknown = far.reserve(sku_id, "alice")
    assert isinstance(unknown, Refused)
    assert unknown.refusal is Refusal.OUTCOME_UNKNOWN
    assert copy_of(sku_id).stock == 0
    assert unknown.key in copy_of(sku_id).holds()
    far.database_proxy.upstream = upstream
    assert reserved(far.reserve(sku_id, "alice")).key == unknown.key
    assert ledger_of(sku_id).statuses()[str(unknown.key)] == 1
    assert len(ledger_of(sku_id).rows()) == 2


def test_a_landing_whose_commit_was_not_answered_fails_and_is_found_landed_when_redelivered(
    sales: Sales,
    reserve: Reserve,
    database_proxy: Proxy,
    lands: Lands,
    ledger_of: Callable[[int], Ledger],
    copy_of: Callable[[int], RedisCopy],
) -> None:
    sku_id = sales.open(total=2)
    keys = [reserved(reserve(sku_id, user)).key for user in ("alice", "bob")]
    database_proxy.lose_reply_to(rb"COMMIT")
    assert lands(keys) == dict.fromkeys(keys, Landing.FAILED)
    assert set(copy_of(sku_id).holds()) == set(keys)
    assert lands(keys) == dict.fromkeys(keys, Landing.ALREADY_LANDED)
    assert copy_of(sku_id).holds() == {}
    assert {(row.status, row.orders) for row in ledger_of(sku_id).rows().values()} == {(2, 1)}
    assert ledger_of(sku_id).remaining() == 0


def test_an_abandon_whose_commit_was_not_answered_gives_its_unit_back_once(
    far: Far, sales: Sales, redis: Redis, copy_of: Callable[[int], RedisCopy], ledger_of: Callable[[int], Ledger]
) -> None:
    sku_id = sales.open(total=1)
    deduction = deducted(redis, sku_id, "alice")
    far.database_proxy.lose_reply_to(rb"COMMIT")
    assert abandon(far.database, redis, deduction) is Abandoned.TOMBSTONE
    assert far.database_proxy.sprung == 1
    assert ledger_of(sku_id).statuses() == {deduction.key: 3}
    assert (copy_of(sku_id).stock, copy_of(sku_id).holds()) == (1, {})
    assert ledger_of(sku_id).cap() == 2
    assert abandon(far.database, redis, deduction) is Abandoned.TOMBSTONE
    assert (copy_of(sku_id).stock, ledger_of(sku_id).cap()) == (1, 2)


@pytest.mark.parametrize("statement", [FENCED_INSERT, rb"UPDATE seckill_sale", rb"COMMIT"], ids=repr)
def test_an_abandon_that_breaks_before_its_commit_gives_nothing_back_until_it_is_done_again(
    statement: bytes,
    far: Far,
    sales: Sales,
    redis: Redis,
    copy_of: Callable[[int], RedisCopy],
    ledger_of: Callable[[int], Ledger],
) -> None:
    sku_id = sales.open(total=1)
    deduction = deducted(redis, sku_id, "alice")
    far.database_proxy.cut_at(statement)
    assert abandon(far.database, redis, deduction) is Abandoned.UNKNOWN
    assert ledger_of(sku_id).rows() == {}
    assert (copy_of(sku_id).stock, ledger_of(sku_id).cap()) == (0, 1)
    assert abandon(far.database, redis, deduction) is Abandoned.TOMBSTONE
    assert (copy_of(sku_id).stock, ledger_of(sku_id).cap()) == (1, 2)


def test_a_rebuild_whose_commit_was_not_answered_starts_with_a_fresh_epoch(
    far: Far, sales: Sales, redis: Redis, copy_of: Callable[[int], RedisCopy], ledger_of: Callable[[int], Ledger]
) -> None:
    sku_id = sales.open(total=3)
    before = copy_of(sku_id).epoch
    far.database_proxy.lose_reply_to(rb"COMMIT")
    assert rebuild(far.database, redis, sku_id, automatic=False) is Rebuilt.LOADED
    assert far.database_proxy.sprung == 1
    # The unanswered bump took one epoch, the copy has the next: nothing was loaded under the one in doubt.
    assert copy_of(sku_id).epoch == before + 2
    assert ledger_of(sku_id).select("SELECT epoch FROM seckill_sale WHERE sku_id = %(sku)s") == [(before + 2,)]


def test_a_sale_whose_opening_was_not_answered_is_open_once(
    far: Far, redis: Redis, copy_of: Callable[[int], RedisCopy]
) -> None:
    far.database_proxy.lose_reply_to(rb"COMMIT")
    sku_id = Sales(far.database, redis).open(total=3)
    assert far.database_proxy.sprung == 1
    assert copy_of(sku_id).stock == 3


# -- replies that are late ------------------------------------------------------------------------------------------


def test_a_late_reply_of_redis_is_nobody_elses_answer(
    far: Far, sales: Sales, copy_of: Callable[[int], RedisCopy]
) -> None:
    sku_id = sales.open(total=3)
    reserved(far.reserve(sku_id, "somebody"))
    far.redis_proxy.delay_reply_to(RUN_SCRIPT, seconds=1.1)
    unknown = far.reserve(sku_id, "alice")
    assert isinstance(unknown, Refused)
    assert unknown.refusal is Refusal.OUTCOME_UNKNOWN
    bob = reserved(far.reserve(sku_id, "bob"))
    assert copy_of(sku_id).buyers()["bob"] == bob.key
    assert reserved(far.reserve(sku_id, "alice")).key == unknown.key == copy_of(sku_id).buyers()["alice"]


def test_a_late_reply_of_mysql_is_no_other_statements_answer(
    far: Far, sales: Sales, ledger_of: Callable[[int], Ledger]
) -> None:
    sku_id = sales.open(total=3)
    far.database_proxy.delay_reply_to(FENCED_INSERT, seconds=1.1)
    alice = reserved(far.reserve(sku_id, "alice"))
    bob = reserved(far.reserve(sku_id, "bob"))
    assert {key: row.user for key, row in ledger_of(sku_id).rows().items()} == {alice.key: "alice", bob.key: "bob"}
    assert reserved(far.reserve(sku_id, "alice")).key == alice.key


# -- Redis comes and goes -------------------------------------------------------------------------------------------


def test_scripts_that_redis_has_forgotten_are_sent_again(
    far: Far, sales: Sales, copy_of: Callable[[int], RedisCopy]
) -> None:
    sku_id = sales.open(total=3)
    copy = copy_of(sku_id)
    first = reserved(far.reserve(sku_id, "alice"))
    copy.client.script_flush()
    assert reserved(far.reserve(sku_id, "bob")).new
    copy.client.script_flush()
    assert reserved(far.reserve(sku_id, "alice")).key == first.key
    copy.client.script_flush()
    assert far.redis.settle(sku_id, [first.key]) == 1
    assert copy.stock == 1


def test_a_redis_that_died_and_lost_everything_is_rebuilt_from_mysql(
    own_redis: RedisServer, servers: Servers, database: Database, queues: Queues
) -> None:
    redis = Redis(own_redis.url)
    redis.deadline = deadline()
    sku_id = Sales(database, redis).open(total=3)
    reserve = Reserve(redis, database, queues, lambda name: None)
    first = reserved(reserve(sku_id, "alice"))
    own_redis.kill()
    assert isinstance(reserve(sku_id, "alice"), Refused)
    own_redis.restart()
    assert reserve(sku_id, "alice") == Refused(Refusal.UNAVAILABLE)  # no copy, no catalogue: nobody knows
    assert rebuild(database, redis, sku_id) is Rebuilt.LOADED
    assert reserved(reserve(sku_id, "alice")).key == first.key
    assert RedisCopy(own_redis.url, sku_id).stock == 2
    assert_books_balance(servers.database_url, sku_id)


def test_a_redis_that_is_no_longer_the_primary_is_left_for_the_new_one(
    own_redis: RedisServer, servers: Servers, database: Database, queues: Queues
) -> None:
    with Proxy(own_redis.url) as name, silent_port() as nobody:
        redis = Redis(name.url)
        redis.deadline = deadline()
        sku_id = Sales(database, redis).open(total=3)
        reserve = Reserve(redis, database, queues, lambda name: None)
        reserved(reserve(sku_id, "alice"))
        demoted = RedisCopy(own_redis.url, sku_id).client
        demoted.replicaof("127.0.0.1", nobody)  # a read-only replica; the name now leads to another server
        try:
            redis_url = urlsplit(servers.redis_url)
            name.upstream = (str(redis_url.hostname), redis_url.port or 6379)
            assert isinstance(reserve(sku_id, "bob"), Refused)
            assert rebuild(database, redis, sku_id) is Rebuilt.LOADED
            assert reserved(reserve(sku_id, "bob")).new
        finally:
            demoted.replicaof("NO", "ONE")
    assert_books_balance(servers.database_url, sku_id)


# -- what cannot be reached -----------------------------------------------------------------------------------------


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
    answer, _ = timed(post(sku_id))
    assert (answer.status, answer.code) == (503, "OUTCOME_UNKNOWN")
    assert timed(get_latest(sku_id))[0].status == 503
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
    assert timed(post(sku_id))[0].status == 503
    assert timed(get_sale(sku_id))[0].status == 503
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
    redis = Redis(f"redis://{login}@127.0.0.1:{own_redis.port}/0")
    redis.deadline = deadline()
    with contextlib.closing(open_database(f"mysql://{login}@127.0.0.1:{own_database.port}/seckill")) as database:
        sku_id = Sales(database, redis).open(total=1)
        assert reserved(Reserve(redis, database, queues, lambda name: None)(sku_id, "alice")).new


def test_a_database_that_does_not_prove_who_it_is_gets_no_login_when_tls_is_asked_for(
    own_database: DatabaseServer,
) -> None:
    with Proxy(own_database.url) as proxy:
        database = open_database(f"{proxy.url}?tls=true")
        with pytest.raises(Unreachable):
            database.row("sale.as_opened", 1)
        assert proxy.connections == 1
        assert proxy.requests_with(b"root") == 0


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


# -- what an error of the server is taken for -----------------------------------------------------------------------


def test_a_taken_key_is_a_duplicate(database: Database) -> None:
    sku_id = fresh_sku_id()
    database.execute("sale.insert_stock", sku_id, 1, 1)
    with pytest.raises(Duplicate) as failure:
        database.execute("sale.insert_stock", sku_id, 1, 1)
    assert failure.value.code == 1062


def test_a_row_against_a_check_is_a_refused_row_and_no_duplicate(database: Database) -> None:
    with pytest.raises(RowRefused) as failure:
        database.execute("sale.insert_stock", fresh_sku_id(), 1, -1)
    assert not isinstance(failure.value, Duplicate)
    assert failure.value.code in (3819, 4025)  # MySQL's and MariaDB's number for it


def test_a_value_too_long_for_its_column_is_a_refused_row(database: Database, sales: Sales) -> None:
    sku_id = sales.open(total=1)
    with pytest.raises(RowRefused) as failure:
        database.execute("abandon.tombstone", "k" * 37, sku_id, "alice", 1, 1, 1)
    assert failure.value.code == 1406


def test_a_statement_that_is_wrong_is_none_of_the_known_failures(database: Database) -> None:
    with pytest.raises(DatabaseError) as failure:
        database.run_script("SELECT no_such_column FROM seckill_sale;")
    assert type(failure.value) is DatabaseError
    assert failure.value.code == 1054


def test_a_lock_held_by_another_session_is_a_lock_time_out(own_database: DatabaseServer) -> None:
    with contextlib.closing(open_database(own_database.url)) as database:
        sku_id = stock_rows(database, 1)[0]
        held = Ledger(own_database.url, sku_id).locked(LOCK_STOCK)
        with held, pytest.raises(LockTimeout) as failure:
            database.execute("land.take_stock", 1, sku_id, 1)
        assert failure.value.code == 1205
        assert database.execute("land.take_stock", 1, sku_id, 1) == 1


def test_the_victim_of_a_deadlock_is_told_so_and_keeps_nothing(own_database: DatabaseServer) -> None:
    with contextlib.closing(open_database(own_database.url)) as database:
        first, second, *weight = stock_rows(database, 12)
        with connect(own_database.url) as other, other.cursor() as cursor:
            # The server gives up the lighter transaction: this one, with more rows changed, it keeps.
            cursor.execute("START TRANSACTION")
            cursor.execute("UPDATE seckill_stock SET total = total + 1 WHERE sku_id IN %s", ([second, *weight],))
            waiting = threading.Thread(
                target=cursor.execute, args=("UPDATE seckill_stock SET total = total + 1 WHERE sku_id = %s", (first,))
            )
            with pytest.raises(Deadlock) as failure, database.transaction():
                database.execute("land.take_stock", 1, first, 1)
                waiting.start()
                database.execute("land.take_stock", 1, second, 1)
            assert failure.value.code == 1213
            waiting.join(10)
            assert not waiting.is_alive()
            cursor.execute("ROLLBACK")
        assert Ledger(own_database.url, first).remaining() == 1
        assert database.execute("land.take_stock", 1, first, 1) == 1


def test_a_connection_killed_while_it_waits_is_a_lost_connection(own_database: DatabaseServer) -> None:
    with Proxy(own_database.url) as proxy, contextlib.closing(open_database(proxy.url)) as database:
        sku_id = stock_rows(database, 1)[0]
        with Ledger(own_database.url, sku_id).locked(LOCK_STOCK):
            killer = threading.Thread(target=kill_waiting, args=(own_database.url, database))
            proxy.before(rb"UPDATE seckill_stock", killer.start)
            with pytest.raises(Unreachable):
                database.execute("land.take_stock", 1, sku_id, 1)
            killer.join(10)
        assert database.execute("land.take_stock", 1, sku_id, 1) == 1


def kill_waiting(database_url: str, database: Database) -> None:
    """KILL a connection as soon as its UPDATE runs; gives up when the lock's own time-out would have come."""
    thread = thread_of(database)
    text = "SELECT 1 FROM information_schema.processlist WHERE id = %s AND info LIKE 'UPDATE%%'"
    with connect(database_url) as other, other.cursor() as cursor:
        give_up = time.monotonic() + 0.9
        while cursor.execute(text, (thread,)) == 0 and time.monotonic() < give_up:
            pass
        cursor.execute("KILL %s", (thread,))


def stock_rows(database: Database, count: int) -> list[int]:
    """SKUs of new stock rows of one unit, ascending."""
    sku_ids = [fresh_sku_id() for _ in range(count)]
    for sku_id in sku_ids:
        database.execute("sale.insert_stock", sku_id, 1, 1)
    return sku_ids


# -- every answer within three seconds ------------------------------------------------------------------------------


def timed(request: dict[str, Any]) -> tuple[HttpAnswer, float]:
    """The function's answer, which must not take longer than the contract allows, and its seconds."""
    started = time.monotonic()
    answer = call(request)
    seconds = time.monotonic() - started
    assert seconds < ANSWERED_WITHIN_SECONDS, f"{answer.status} after {seconds:.2f} s"
    return answer, seconds


Port = Callable[[], contextlib.AbstractContextManager[int]]
HANGING_PORTS = [pytest.param(silent_port, id="accepts and is silent"), pytest.param(full_port, id="does not accept")]


@pytest.mark.parametrize("port", HANGING_PORTS)
@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_a_redis_that_does_not_answer_a_new_connection_is_a_503_in_time(
    port: Port, scheme: str, function_environment: pytest.MonkeyPatch
) -> None:
    with port() as hangs:
        function_environment.setenv("REDIS_URL", f"{scheme}://127.0.0.1:{hangs}/0")
        assert timed(post(fresh_sku_id()))[0].status == 503


@pytest.mark.parametrize("port", HANGING_PORTS)
def test_a_mysql_that_does_not_answer_a_new_connection_is_a_503_in_time_and_the_unit_waits_under_its_key(
    port: Port, servers: Servers, sales: Sales, reserve: Reserve, function_environment: pytest.MonkeyPatch
) -> None:
    sku_id = sales.open(total=2)
    with port() as hangs:
        function_environment.setenv("DATABASE_URL", through(servers.database_url, hangs))
        answer, _ = timed(post(sku_id))
    assert (answer.status, answer.code) == (503, "OUTCOME_UNKNOWN")
    assert reserved(reserve(sku_id, "alice")).key == answer.body["preDeductKey"]


def test_stores_that_fall_silent_on_a_warm_connection_are_a_503_in_time(
    database_proxy: Proxy,
    redis_proxy: Proxy,
    sales: Sales,
    reserve: Reserve,
    function_environment: pytest.MonkeyPatch,
) -> None:
    sku_id = sales.open(total=4)
    function_environment.setenv("DATABASE_URL", database_proxy.url)
    function_environment.setenv("REDIS_URL", redis_proxy.url)
    assert timed(post(sku_id, "somebody"))[0].status == 202

    database_proxy.silent = True
    by_mysql, _ = timed(post(sku_id, "alice"))
    assert (by_mysql.status, by_mysql.code) == (503, "OUTCOME_UNKNOWN")
    assert timed(get_latest(sku_id, "alice"))[0].status == 503
    assert timed(get_reservation(by_mysql.body["preDeductKey"], "alice"))[0].status == 503

    redis_proxy.silent = True
    by_redis, _ = timed(post(sku_id, "bob"))
    assert (by_redis.status, by_redis.code) == (503, "OUTCOME_UNKNOWN")
    assert timed(get_sale(sku_id))[0].status == 503

    for user, answer in (("alice", by_mysql), ("bob", by_redis)):
        assert reserved(reserve(sku_id, user)).key == answer.body["preDeductKey"]


def test_frozen_servers_are_a_503_in_time_and_go_on_where_they_were(
    own_database: DatabaseServer, own_redis: RedisServer, function_environment: pytest.MonkeyPatch
) -> None:
    redis = Redis(own_redis.url)
    redis.deadline = deadline()
    with contextlib.closing(open_database(own_database.url)) as database:
        sku_id = Sales(database, redis).open(total=4)
    function_environment.setenv("DATABASE_URL", own_database.url)
    function_environment.setenv("REDIS_URL", own_redis.url)
    assert timed(post(sku_id, "somebody"))[0].status == 202
    unknown = {}
    for server, user in ((own_redis, "alice"), (own_database, "bob")):
        server.freeze()
        try:
            answer, _ = timed(post(sku_id, user))
        finally:
            server.thaw()
        assert (answer.status, answer.code) == (503, "OUTCOME_UNKNOWN")
        unknown[user] = answer.body["preDeductKey"]
    for user, key in unknown.items():
        assert timed(post(sku_id, user))[0].body["preDeductKey"] == key
    assert read_books(own_database.url, sku_id).reserved == 3
    assert_books_balance(own_database.url, sku_id)


@pytest.mark.parametrize("port", [*HANGING_PORTS, pytest.param(None, id="refuses")])
def test_a_dead_queue_does_not_keep_a_reservation_from_its_202(
    port: Port | None, sales: Sales, function_environment: pytest.MonkeyPatch, ledger_of: Callable[[int], Ledger]
) -> None:
    sku_id = sales.open(total=2)
    with port() if port else contextlib.nullcontext(refused_port()) as hangs:
        function_environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{hangs}")
        answer, _ = timed(post(sku_id))
    assert answer.status == 202
    assert ledger_of(sku_id).statuses() == {answer.body["preDeductKey"]: 1}


@pytest.mark.parametrize("delay_seconds", [0.15, 0.5, 0.8])
def test_stores_that_are_all_slow_at_once_are_an_answer_in_time_and_one_unit(
    delay_seconds: float,
    database_proxy: Proxy,
    redis_proxy: Proxy,
    sales: Sales,
    reserve: Reserve,
    function_environment: pytest.MonkeyPatch,
    copy_of: Callable[[int], RedisCopy],
) -> None:
    sku_id = sales.open(total=2)
    function_environment.setenv("DATABASE_URL", database_proxy.url)
    function_environment.setenv("REDIS_URL", redis_proxy.url)
    database_proxy.reply_delay_seconds = redis_proxy.reply_delay_seconds = delay_seconds
    with silent_port() as queue:
        function_environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{queue}")
        answer, _ = timed(post(sku_id))
    if delay_seconds < 0.2:
        assert answer.status == 202
    else:
        assert answer.status in (202, 503)
    assert reserved(reserve(sku_id, "alice")).key == answer.body["preDeductKey"]
    assert copy_of(sku_id).stock == 1


@pytest.mark.parametrize("store", ["REDIS_URL", "DATABASE_URL"])
def test_a_name_with_many_dead_addresses_is_a_503_in_time(
    store: str, sales: Sales, function_environment: pytest.MonkeyPatch
) -> None:
    sku_id = sales.open(total=2)
    resolved = socket.getaddrinfo
    with contextlib.ExitStack() as ports:
        dead = [ports.enter_context(full_port()) for _ in range(4)]

        def resolve(host: Any, *arguments: Any, **named: Any) -> Any:
            if host != "stores.example":
                return resolved(host, *arguments, **named)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in dead]

        function_environment.setattr(socket, "getaddrinfo", resolve)
        url = os.environ[store]
        function_environment.setenv(store, re.sub(r"127\.0\.0\.1|localhost", "stores.example", url))
        if "stores.example" not in os.environ[store]:
            pytest.skip(f"{store} of the user's own is no address of this machine")
        assert timed(post(sku_id))[0].status == 503


def test_a_landing_batch_fails_item_by_item_when_mysql_does_not_answer(
    servers: Servers, function_environment: pytest.MonkeyPatch
) -> None:
    with silent_port() as hangs:
        function_environment.setenv("DATABASE_URL", through(servers.database_url, hangs))
        new_containers()
        started = time.monotonic()
        answer = land_order.lambda_handler(landing_event([landing_body("key-1"), landing_body("key-2")]), context())
    assert failed_ids(answer) == ["m0", "m1"]
    assert time.monotonic() - started < 10, "the platform would have cut it off"
