"""Connections that break and lie: no unit lost, nothing half-written, each answer its own.

Everything runs on real servers; a proxy plays the network between them and the functions.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

import pytest

from local.servers import DatabaseServer, RedisServer, Servers
from seckill.adapters.mysql import (
    Database,
    DatabaseError,
    Unreachable,
)
from seckill.adapters.redis import Redis
from seckill.adapters.sqs import Queues
from seckill.domain.answer import Refusal, Refused, Reserved
from seckill.domain.reservation import Status
from seckill.protocol.abandon import Abandoned, abandon
from seckill.protocol.land import Landing, land
from seckill.protocol.ledger import read_by_key
from seckill.protocol.rebuild import Rebuilt, rebuild
from seckill.protocol.reserve import Reserve
from tests.books import assert_books_balance
from tests.ledger import Ledger
from tests.proxy import Proxy, refused_port, silent_port
from tests.redis_copy import RedisCopy
from tests.sales import Sales, fresh_sku_id
from tests.stores import deducted, kill_connection, open_database, open_redis, patience, reserved

FENCED_INSERT = rb"INSERT INTO seckill_pre_deduct"
RUN_SCRIPT = rb"EVALSHA|EVAL\r\n"

Lands = Callable[[list[str]], dict[str, Landing]]


@dataclass(frozen=True)
class Far:
    """A container whose connections to the stores pass through proxies."""

    reserve: Reserve
    database: Database
    redis: Redis
    database_proxy: Proxy
    redis_proxy: Proxy


@pytest.fixture
def far(database_proxy: Proxy, redis_proxy: Proxy, queues: Queues, counts: list[str]) -> Iterator[Far]:
    database, redis = open_database(database_proxy.url), open_redis(redis_proxy.url)
    queues.warm()
    yield Far(Reserve(redis, database, queues, counts.append), database, redis, database_proxy, redis_proxy)
    database.close()


@pytest.fixture
def lands(database_proxy: Proxy, redis: Redis) -> Iterator[Lands]:
    """land as one container does it again and again, its database behind the proxy."""
    database = Database(database_proxy.url)

    def landed(keys: list[str]) -> dict[str, Landing]:
        database.new_call(patience())
        return land(database, redis, keys, lambda name: None)

    yield landed
    database.close()


# -- MySQL: killed connections, killed servers ----------------------------------------------------------------------


def test_a_connection_killed_between_two_calls_is_replaced_by_the_next(
    servers: Servers, sales: Sales, reserve: Reserve, database: Database, ledger_of: Callable[[int], Ledger]
) -> None:
    sku_id = sales.open(total=2)
    key = reserved(reserve(sku_id, "alice")).key
    kill_connection(servers.database_url, database)
    assert reserved(reserve(sku_id, "bob")).new
    assert len(ledger_of(sku_id).rows()) == 2

    kill_connection(servers.database_url, database)
    database.new_call(patience())
    assert read_by_key(database, key) is not None

    kill_connection(servers.database_url, database)
    database.new_call(patience())
    with database.transaction():
        assert read_by_key(database, key) is not None


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
        database.new_call(patience())
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
    redis = open_redis(own_redis.url)
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
        redis = open_redis(name.url)
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
