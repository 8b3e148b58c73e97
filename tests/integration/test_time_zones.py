"""A database whose sessions live in another time zone: all times are UTC all the same, and no age is off by hours."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from local.servers import DatabaseServer
from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis
from seckill.adapters.sqs import Queues
from seckill.domain.answer import Refusal, Refused, Reserved
from seckill.protocol.audit import audit_sale
from seckill.protocol.land import Landing, land
from seckill.protocol.migrate import migrate
from seckill.protocol.open_sale import Offer, open_sale
from seckill.protocol.rebuild import Rebuilt, rebuild
from seckill.protocol.reserve import Reserve
from tests.books import assert_books_balance
from tests.ledger import Ledger
from tests.sales import Sales, fresh_sku_id
from tests.stores import open_database, reserved

MINUTE_MS = 60_000
# What lies between a row and the look at it, at the most.
NOW_SECONDS = 30


@pytest.fixture(scope="module", params=["+08:00", "-05:00"])
def zone(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(zone: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DatabaseServer]:
    if os.environ.get("SECKILL_TEST_DATABASE_URL"):
        pytest.skip("SECKILL_TEST_DATABASE_URL names a server whose time zone this test may not choose")
    directory = tmp_path_factory.mktemp("time_zone")
    with DatabaseServer(directory, options=(f"--default-time-zone={zone}",)) as running:
        yield running


@pytest.fixture
def database(server: DatabaseServer, zone: str) -> Iterator[Database]:
    """A connection to that server, the schema in place."""
    connection = open_database(server.url)
    assert [warning for warning in migrate(connection).warnings if zone in warning], "the zone is not what it should be"
    yield connection
    connection.close()


@pytest.fixture
def sales(server: DatabaseServer, redis: Redis, database: Database) -> Iterator[Sales]:
    opened = Sales(database, redis)
    yield opened
    for sku_id in opened.sku_ids:
        assert_books_balance(server.url, sku_id)


def seconds_ago(moment: datetime) -> float:
    """How long ago a DATETIME of the database was, if it is UTC."""
    return (datetime.now(UTC) - moment.replace(tzinfo=UTC)).total_seconds()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_times_in_the_books_are_utc(sales: Sales, reserve: Reserve, redis: Redis, database: Database) -> None:
    sku_id = sales.open(total=2)
    answer = reserved(reserve(sku_id, "alice"))
    assert land(database, redis, [answer.key], lambda name: None) == {answer.key: Landing.LANDED}
    ledger = Ledger(database._url, sku_id)
    ((created_at, updated_at, ordered_at),) = ledger.select(
        "SELECT l.created_at, l.updated_at, o.created_at FROM seckill_pre_deduct l JOIN seckill_order o"
        " ON o.pre_deduct_key = l.pre_deduct_key WHERE l.sku_id = %(sku)s"
    )
    for moment in (created_at, updated_at, ordered_at):
        assert -1 < seconds_ago(moment) < NOW_SECONDS


def test_a_row_is_stale_after_its_stale_age_and_not_hours_sooner_or_later(
    sales: Sales, reserve: Reserve, redis: Redis, database: Database
) -> None:
    sku_id = sales.open(total=2)
    answer = reserved(reserve(sku_id, "alice"))

    def stale_keys() -> list[str]:
        page = database.rows(
            "reconcile.stale_page", stale_seconds=120, in_stock=True, after_time="1970-01-02", after_key=b"", page=99
        )
        return [row["pre_deduct_key"].decode() for row in page if row["sku_id"] == sku_id]

    def stale_units() -> int:
        audit = audit_sale(database, redis, sku_id, stale_seconds=120)
        assert audit is not None
        return audit.books.stale

    assert (stale_keys(), stale_units()) == ([], 0)
    ledger = Ledger(database._url, sku_id)
    for age_seconds, keys in ((110, []), (121, [answer.key])):
        ledger.run(
            "UPDATE seckill_pre_deduct SET created_at = %(moment)s WHERE sku_id = %(sku)s",
            moment=datetime.fromtimestamp(time.time() - age_seconds, UTC).replace(tzinfo=None),
        )
        assert (stale_keys(), stale_units()) == (keys, len(keys))


def test_a_rebuilt_hold_is_as_old_as_its_row(sales: Sales, reserve: Reserve, redis: Redis, database: Database) -> None:
    sku_id = sales.open(total=2)
    assert isinstance(reserve(sku_id, "alice"), Reserved)
    assert rebuild(database, redis, sku_id, automatic=False) is Rebuilt.LOADED
    snapshot = redis.snapshot(sku_id)
    assert snapshot is not None
    (hold,) = snapshot.holds or ()
    assert -1 < (now_ms() - hold.ms) / 1000 < NOW_SECONDS


def test_thirty_seconds_between_two_rebuilds_are_thirty_seconds(sales: Sales, redis: Redis, database: Database) -> None:
    sku_id = sales.open(total=2)
    assert rebuild(database, redis, sku_id, automatic=False) is Rebuilt.LOADED
    assert rebuild(database, redis, sku_id, observed=2) is Rebuilt.TOO_SOON
    ledger = Ledger(database._url, sku_id)
    for age_seconds, rebuilt in ((20, Rebuilt.TOO_SOON), (31, Rebuilt.LOADED)):
        ledger.run(
            "UPDATE seckill_sale SET rebuilt_at = %(moment)s WHERE sku_id = %(sku)s",
            moment=datetime.fromtimestamp(time.time() - age_seconds, UTC).replace(tzinfo=None),
        )
        assert rebuild(database, redis, sku_id, observed=2) is rebuilt


def test_a_sale_opens_and_closes_when_it_was_told_to_also_after_a_rebuild(
    sales: Sales, redis: Redis, database: Database, queues: Queues
) -> None:
    reserve = Reserve(redis, database, queues, lambda name: None)
    now = now_ms()
    soon = sales.open(total=1, opens_at=now + MINUTE_MS)
    open_now = sales.open(total=1, opens_at=now - MINUTE_MS, closes_at=now + MINUTE_MS)
    over = sales.open(total=1, opens_at=now - 2 * MINUTE_MS, closes_at=now - MINUTE_MS)
    for user in ("alice", "bob"):
        assert reserve(soon, user) == Refused(Refusal.NOT_OPEN, opens_at=now + MINUTE_MS)
        assert reserve(over, user) == Refused(Refusal.CLOSED)
        for sku_id in (soon, open_now, over):
            assert rebuild(database, redis, sku_id, automatic=False) is Rebuilt.LOADED
    assert isinstance(reserve(open_now, "alice"), Reserved)
    overdue = {row["sku_id"] for row in database.rows("reconcile.overdue", 0)}
    assert overdue & {soon, open_now, over} == {over}


def test_opening_the_same_sale_again_finds_the_same_times(redis: Redis, database: Database) -> None:
    now = now_ms()
    offer = Offer(fresh_sku_id(), 1, opens_at=now, closes_at=now + MINUTE_MS)
    assert open_sale(database, redis, offer)
    assert open_sale(database, redis, offer)
