"""land and its function: which items of a batch fail, and that nothing is ever done by halves."""

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from functions.land_order.handler import lambda_handler
from local.servers import RedisServer, Servers, wait_until
from seckill.adapters.mysql import Database, DatabaseError
from seckill.adapters.redis import Redis
from seckill.domain.answer import Reserved
from seckill.domain.deadline import Deadline
from seckill.protocol.land import Landing, land
from seckill.protocol.reserve import Reserve
from tests.books import connect, read_books
from tests.containers import context, land_container, new_containers
from tests.crowd import at_once
from tests.ledger import Ledger
from tests.messages import failed_ids, landing_body, landing_event
from tests.metrics import counted, uncounted
from tests.redis_copy import RedisCopy
from tests.sales import Sales

CopyOf = Callable[[int], RedisCopy]
LedgerOf = Callable[[int], Ledger]

UNKNOWN_KEY = "0198c0de-0000-7000-8000-000000000000"
# What SQS grants before the dead letters.
MOST_RECEIVES = 5


def reserved(reserve: Reserve, sku_id: int, *users: str) -> list[str]:
    """The keys of fresh reservations."""
    keys = []
    for user in users:
        answer = reserve(sku_id, user)
        assert isinstance(answer, Reserved)
        keys.append(answer.key)
    return keys


def deliver(*bodies: str) -> list[str]:
    """The message ids that the function fails, of one batch with these bodies."""
    return failed_ids(lambda_handler(landing_event(bodies), context()))


def orders(ledger: Ledger) -> Counter[str]:
    """Orders by key."""
    found = ledger.select("SELECT pre_deduct_key FROM seckill_order WHERE sku_id = %(sku)s")
    return Counter(key.decode() for (key,) in found)


# -- the function ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("function_environment")
def test_of_a_mixed_batch_exactly_what_cannot_land_fails(
    sales: Sales, reserve: Reserve, ledger_of: LedgerOf, copy_of: CopyOf, capsys: pytest.CaptureFixture[str]
) -> None:
    sku_id = sales.open(total=4)
    ledger = ledger_of(sku_id)
    valid, rolled_back, landed, also_valid = reserved(reserve, sku_id, "alice", "bob", "carol", "dave")
    ledger.roll_back(rolled_back)
    assert deliver(landing_body(landed)) == []
    assert copy_of(sku_id).stock == 0, "live stock says nothing about a reservation"
    counted(capsys)
    failed = deliver(
        landing_body(valid),  # m0
        landing_body(valid),
        "this is not JSON",  # m2
        "{}",  # m3
        landing_body(UNKNOWN_KEY),  # m4
        landing_body(rolled_back),
        landing_body(landed),
        json.dumps({"preDeductKey": also_valid, "skuId": "whatever", "quantity": 99, "user": "mallory"}),  # m7
        "null",  # m8
        json.dumps({"preDeductKey": 17}),  # m9
        json.dumps({"preDeductKey": ""}),  # m10
        landing_body("x" * 37),  # m11
        landing_body("é"),  # m12
        "",  # m13
        json.dumps([landing_body(valid)]),  # m14
    )
    assert failed == ["m2", "m3", "m4", "m8", "m9", "m10", "m11", "m12", "m13", "m14"]
    assert orders(ledger) == Counter([valid, also_valid, landed])
    assert ledger.statuses() == {valid: 2, also_valid: 2, landed: 2, rolled_back: 3}
    counts = counted(capsys)
    assert counts["OrderLanded"] == 2
    assert counts["InvariantBroken"] == 0


@pytest.mark.usefixtures("function_environment")
@pytest.mark.parametrize("body", ["[" * 100_000, '{"preDeductKey":' * 50_000, "9" * 100_000, '"\\ud800"', "\ufeff{}"])
def test_a_monstrous_body_fails_alone(sales: Sales, reserve: Reserve, ledger_of: LedgerOf, body: str) -> None:
    sku_id = sales.open(total=1)
    (key,) = reserved(reserve, sku_id, "alice")
    assert deliver(body, landing_body(key)) == ["m0"]
    assert ledger_of(sku_id).statuses() == {key: 2}


@pytest.mark.usefixtures("function_environment")
@pytest.mark.parametrize("body", [landing_body(UNKNOWN_KEY), "{}", "no JSON"])
def test_a_batch_of_which_all_fails_is_answered_not_raised(body: str) -> None:
    assert deliver(body) == ["m0"]
    assert deliver(body, body, body) == ["m0", "m1", "m2"]


@pytest.mark.usefixtures("function_environment")
@pytest.mark.parametrize("event", [{"Records": []}, {"Records": None}, {}], ids=str)
def test_an_empty_batch_fails_nothing(event: dict[str, object]) -> None:
    assert lambda_handler(event, context()) == {"batchItemFailures": []}


def test_redis_stopped_keeps_nothing_from_landing(
    sales: Sales, reserve: Reserve, ledger_of: LedgerOf, function_environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sku_id = sales.open(total=2)
    keys = reserved(reserve, sku_id, "alice", "bob")
    stopped = RedisServer(tmp_path)
    stopped.start()
    function_environment.setenv("REDIS_URL", stopped.url)
    stopped.stop()
    new_containers()
    assert deliver(*map(landing_body, keys), "{}") == ["m2"]
    assert orders(ledger_of(sku_id)) == Counter(keys)


def test_without_the_database_every_item_fails(
    sales: Sales, reserve: Reserve, ledger_of: LedgerOf, servers: Servers, function_environment: pytest.MonkeyPatch
) -> None:
    sku_id = sales.open(total=2)
    keys = reserved(reserve, sku_id, "alice", "bob")
    function_environment.setenv("DATABASE_URL", "mysql://root@127.0.0.1:1/seckill")
    new_containers()
    assert deliver(*map(landing_body, keys)) == ["m0", "m1"]
    function_environment.setenv("DATABASE_URL", servers.database_url)
    new_containers()
    assert deliver(*map(landing_body, keys)) == []
    assert orders(ledger_of(sku_id)) == Counter(keys)


# -- one landing ----------------------------------------------------------------------------------------------------


def test_landing_writes_the_order_takes_the_stock_and_settles_the_hold(
    servers: Servers,
    sales: Sales,
    reserve: Reserve,
    database: Database,
    redis: Redis,
    copy_of: CopyOf,
    ledger_of: LedgerOf,
) -> None:
    sku_id = sales.open(total=6, quantity=2)
    (key,) = reserved(reserve, sku_id, "alice")
    counts: list[str] = []
    assert land(database, redis, [key], counts.append) == {key: Landing.LANDED}
    books = read_books(servers.database_url, sku_id)
    assert (books.ordered, books.landed, books.reserved, books.remaining) == (2, 2, 0, 4)
    ((user, quantity),) = ledger_of(sku_id).select("SELECT user_id, quantity FROM seckill_order WHERE sku_id = %(sku)s")
    assert (user, quantity) == (b"alice", 2)
    assert copy_of(sku_id).holds() == {}
    assert copy_of(sku_id).buyers() == {"alice": key}, "he still holds it"
    assert counts == ["OrderLanded"]


def test_landing_again_changes_nothing_and_settles_a_hold_that_was_left(
    sales: Sales, reserve: Reserve, database: Database, redis: Redis, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=2)
    (key,) = reserved(reserve, sku_id, "alice")
    copy, ledger = copy_of(sku_id), ledger_of(sku_id)
    hold = copy.client.hget(copy.held_key, key)
    land(database, redis, [key], uncounted)
    copy.client.hset(copy.held_key, key, hold)  # as when Redis was away
    counts: list[str] = []
    assert land(database, redis, [key], counts.append) == {key: Landing.ALREADY_LANDED}
    assert (orders(ledger), ledger.remaining(), counts) == (Counter([key]), 1, [])
    assert copy.holds() == {}


def test_a_rolled_back_reservation_is_never_landed(
    sales: Sales, reserve: Reserve, database: Database, redis: Redis, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=2)
    (key,) = reserved(reserve, sku_id, "alice")
    ledger = ledger_of(sku_id)
    ledger.roll_back(key)
    assert land(database, redis, [key], uncounted) == {key: Landing.ROLLED_BACK}
    assert (ledger.statuses(), orders(ledger), ledger.remaining()) == ({key: 3}, Counter(), 2)


def test_an_order_whose_row_is_at_1_takes_no_stock_and_is_counted_as_broken(
    sales: Sales, reserve: Reserve, database: Database, redis: Redis, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=5)
    restored, normal = reserved(reserve, sku_id, "alice", "bob")
    ledger = ledger_of(sku_id)
    ledger.run(
        "INSERT INTO seckill_order (pre_deduct_key, sku_id, user_id, quantity, created_at)"
        " VALUES (%(key)s, %(sku)s, 'alice', 1, UTC_TIMESTAMP(3))",
        key=restored,
    )
    ledger.run("UPDATE seckill_stock SET remaining = remaining - 1 WHERE sku_id = %(sku)s")
    counts: list[str] = []
    assert set(land(database, redis, [restored, normal], counts.append).values()) == {Landing.LANDED}
    assert ledger.statuses() == {restored: 2, normal: 2}
    assert orders(ledger) == Counter([restored, normal])
    assert ledger.remaining() == 3
    assert counts.count("InvariantBroken") == 1


# -- one bad row fails alone ----------------------------------------------------------------------------------------


def test_a_row_whose_stock_row_is_missing_fails_alone_and_lands_when_that_is_mended(
    sales: Sales, reserve: Reserve, database: Database, redis: Redis, ledger_of: LedgerOf
) -> None:
    good, bad = sales.open(total=5), sales.open(total=5)
    good_keys, bad_keys = reserved(reserve, good, "alice", "bob"), reserved(reserve, bad, "alice", "bob")
    ledger_of(bad).run("DELETE FROM seckill_stock WHERE sku_id = %(sku)s")
    counts: list[str] = []
    landings = land(database, redis, [*bad_keys, *good_keys], counts.append)
    assert landings == dict.fromkeys(good_keys, Landing.LANDED) | dict.fromkeys(bad_keys, Landing.OUT_OF_STOCK)
    assert (orders(ledger_of(bad)), ledger_of(bad).statuses()) == (Counter(), dict.fromkeys(bad_keys, 1))
    assert ledger_of(good).remaining() == 3
    assert Counter(counts) == {"OrderLanded": 2, "LandingFailed": 2}
    ledger_of(bad).run("INSERT INTO seckill_stock (sku_id, total, remaining) VALUES (%(sku)s, 5, 5)")
    assert set(land(database, redis, [*bad_keys, *good_keys], uncounted).values()) == {
        Landing.LANDED,
        Landing.ALREADY_LANDED,
    }
    assert ledger_of(bad).remaining() == 3


def test_a_row_that_the_database_refuses_fails_alone(
    sales: Sales, reserve: Reserve, database: Database, redis: Redis, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=5)
    first, cursed, last = reserved(reserve, sku_id, "alice", "bob", "carol")
    ledger = ledger_of(sku_id)
    with ledger.refusing("seckill_order", f"NEW.pre_deduct_key = '{cursed}'"):
        landings = land(database, redis, [first, cursed, last], uncounted)
    assert landings == {first: Landing.LANDED, cursed: Landing.ROW_REFUSED, last: Landing.LANDED}
    assert ledger.statuses() == {first: 2, cursed: 1, last: 2}
    assert ledger.remaining() == 3
    assert land(database, redis, [cursed], uncounted) == {cursed: Landing.LANDED}


def test_of_more_rows_than_there_is_stock_none_is_half_landed(
    sales: Sales, reserve: Reserve, database: Database, redis: Redis, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=3)
    keys = reserved(reserve, sku_id, "alice", "bob", "carol")
    ledger = ledger_of(sku_id)
    ledger.run("UPDATE seckill_stock SET remaining = 1 WHERE sku_id = %(sku)s")  # an operator's typo
    landings = land(database, redis, keys, uncounted)
    assert Counter(landings.values()) == {Landing.LANDED: 1, Landing.OUT_OF_STOCK: 2}
    landed = [key for key, landing in landings.items() if landing is Landing.LANDED]
    assert orders(ledger) == Counter(landed)
    assert ledger.statuses() == {key: 2 if key in landed else 1 for key in keys}
    assert ledger.remaining() == 0
    ledger.run("UPDATE seckill_stock SET remaining = 2 WHERE sku_id = %(sku)s")
    land(database, redis, keys, uncounted)
    assert (orders(ledger), ledger.remaining()) == (Counter(keys), 0)


# -- with others at work --------------------------------------------------------------------------------------------


def test_the_same_message_twenty_times_in_parallel_makes_one_order(
    servers: Servers, sales: Sales, reserve: Reserve, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=5)
    (key,) = reserved(reserve, sku_id, "alice")
    counts: list[str] = []

    def delivery() -> Landing:
        database, redis = land_container(servers)
        try:
            return land(database, redis, [key], counts.append)[key]
        finally:
            database.close()

    outcomes = Counter(at_once([delivery] * 20))
    assert outcomes[Landing.LANDED] == 1
    assert outcomes.keys() <= {Landing.LANDED, Landing.ALREADY_LANDED, Landing.FAILED}
    assert orders(ledger_of(sku_id)) == Counter([key])
    assert ledger_of(sku_id).remaining() == 4
    assert counts.count("OrderLanded") == 1


def test_while_the_hot_row_is_held_nothing_is_half_committed_and_afterwards_all_land_once(
    servers: Servers, sales: Sales, reserve: Reserve, ledger_of: LedgerOf
) -> None:
    sku_id, other = sales.open(total=10), sales.open(total=10)
    keys = reserved(reserve, sku_id, "alice", "bob", "carol")
    elsewhere = reserved(reserve, other, "alice")
    database, redis = land_container(servers)
    ledger = ledger_of(sku_id)
    with ledger.locked("SELECT * FROM seckill_stock WHERE sku_id = %(sku)s FOR UPDATE"):
        landings = land(database, redis, keys + elsewhere, uncounted)
        assert landings == dict.fromkeys(keys + elsewhere, Landing.FAILED)
        # The same connection's next transaction would commit what a lock wait left half done.
        assert land(database, redis, [UNKNOWN_KEY], uncounted) == {UNKNOWN_KEY: Landing.NO_ROW}
        books = read_books(servers.database_url, sku_id)
        assert (books.ordered, books.landed, books.reserved, books.remaining) == (0, 0, 3, 10)
    assert land(database, redis, keys + elsewhere, uncounted) == dict.fromkeys(keys + elsewhere, Landing.LANDED)
    assert (orders(ledger), ledger.remaining()) == (Counter(keys), 7)
    database.close()


def test_a_roll_back_that_commits_while_a_landing_waits_for_the_row_leaves_no_order(
    servers: Servers, sales: Sales, reserve: Reserve, ledger_of: LedgerOf
) -> None:
    """Rows are locked before they are judged: what was read at 1 would otherwise be 3 when its order is written."""
    sku_id = sales.open(total=5)
    (key,) = reserved(reserve, sku_id, "alice")
    ledger = ledger_of(sku_id)
    database, redis = land_container(servers)
    with connect(servers.database_url) as session, session.cursor() as cursor, ThreadPoolExecutor(1) as pool:
        cursor.execute("START TRANSACTION")
        cursor.execute("UPDATE seckill_sale SET cap = cap + 1 WHERE sku_id = %s", (sku_id,))
        cursor.execute("UPDATE seckill_pre_deduct SET status = 3 WHERE pre_deduct_key = %s", (key,))
        landing = pool.submit(land, database, redis, [key], uncounted)
        waits = "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_query LIKE %(like)s"
        wait_until(lambda: bool(ledger.select(waits, like=f"%{key}%")) or landing.done(), timeout_s=5)
        cursor.execute("COMMIT")
        # On a slow machine its lock wait may end first; then it only comes again.
        assert landing.result()[key] in (Landing.ROLLED_BACK, Landing.FAILED)
    assert land(database, redis, [key], uncounted) == {key: Landing.ROLLED_BACK}
    assert (orders(ledger), ledger.remaining()) == (Counter(), 5)
    database.close()


class WatchedDatabase(Database):
    """Remembers the errors of its statements."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.errors: list[DatabaseError] = []

    def execute(self, statement: str, *arguments: object, **named: object) -> int:
        try:
            return super().execute(statement, *arguments, **named)
        except DatabaseError as error:
            self.errors.append(error)
            raise


def test_batches_over_two_sales_in_opposite_order_all_land_without_one_deadlock(
    servers: Servers, sales: Sales, reserve: Reserve, ledger_of: LedgerOf
) -> None:
    rounds, containers = 10, 6
    first, second = sales.open(total=200), sales.open(total=200)
    # Even batches are made of keys of the first sale, then of the second; odd ones the other way round.
    batches: list[list[str]] = []
    for number in range(rounds * containers):
        skus = (first, second) if number % 2 == 0 else (second, first)
        batches.append([key for sku_id in skus for key in reserved(reserve, sku_id, f"{number}")])
    errors: list[DatabaseError] = []

    def container(mine: list[list[str]]) -> int:
        database = WatchedDatabase(servers.database_url)
        redis = Redis(servers.redis_url)
        redis.deadline = deadline = Deadline(seconds=60, longest_wait=2)
        database.new_call(deadline)
        receives = 0
        for batch in mine:
            unfinished = batch
            for _ in range(MOST_RECEIVES):
                receives += 1
                landings = land(database, redis, unfinished, uncounted)
                unfinished = [key for key, landing in landings.items() if not landing.finished]
                if not unfinished:
                    break
            assert unfinished == [], "it would have gone to the dead letters"
        errors.extend(database.errors)
        database.close()
        return receives

    shares = [batches[number::containers] for number in range(containers)]
    at_once([lambda share=share: container(share) for share in shares])  # type: ignore[misc]
    assert [error for error in errors if error.code == 1213] == []
    for sku_id in (first, second):
        assert set(ledger_of(sku_id).statuses().values()) == {2}
        assert set(orders(ledger_of(sku_id)).values()) == {1}
        assert ledger_of(sku_id).remaining() == 200 - len(batches)


def test_landing_does_not_wait_for_a_strangers_uncommitted_reservation(
    servers: Servers, sales: Sales, reserve: Reserve
) -> None:
    """Without its index hint MySQL scans a small table and waits for everybody (docs/protocol.md 5)."""
    sku_id = sales.open(total=40)
    keys = reserved(reserve, sku_id, *(f"user {number}" for number in range(30)))
    database, redis = land_container(servers)
    stranger = Ledger(servers.database_url, sku_id).locked(
        "INSERT INTO seckill_pre_deduct"
        " (pre_deduct_key, sku_id, user_id, quantity, epoch, ticket, status, created_at, updated_at)"
        " VALUES ('ffff', %(sku)s, 'stranger', 1, 1, 31, 1, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3))"
    )
    with stranger:
        assert land(database, redis, keys, uncounted) == dict.fromkeys(keys, Landing.LANDED)
    database.close()
