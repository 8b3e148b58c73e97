"""Stale rows (docs/protocol.md 6.1): what nobody landed in time lands, or is taken back with a notice, once."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from local.servers import RedisServer, Servers, free_port
from seckill.adapters.mysql import ROW_CODES, Database
from seckill.adapters.redis import Redis
from seckill.domain.answer import Reserved
from seckill.domain.deadline import Deadline
from seckill.protocol.land import Landing
from seckill.protocol.reconcile import Reconcile
from seckill.protocol.roll_back import RollBack, roll_back
from seckill.protocol.stale_rows import sweep_stale_rows
from tests.backroom import STALE_SECONDS, Backroom
from tests.books import connect, read_books
from tests.crowd import at_once
from tests.stores import deducted, kill_connection, patience

pytest_plugins = ["tests.backroom_fixtures"]

EVERY_ROW = "NEW.quantity > 0"


def cursed(key: str) -> str:
    """The condition under which an order of this key is refused."""
    return f"NEW.pre_deduct_key = '{key}'"


# -- many -----------------------------------------------------------------------------------------------------------


def test_5000_stale_rows_are_landed_over_several_passes_none_twice(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=6000)
    backroom.promise_many(sku_id, 5000)
    landed = []
    for _ in range(4):
        backroom.new_call()
        landed.append(backroom.sweep_rows().landed)
        assert landed[-1] <= 2000, "the other parts of the pass get their turn"
    assert landed == [2000, 2000, 1000, 0]
    assert backroom.counts.count("OrderLanded") == backroom.counts.count("StaleLanded") == 5000
    books = read_books(backroom.servers.database_url, sku_id)
    assert (books.landed, books.ordered, books.reserved, books.remaining) == (5000, 5000, 0, 1000)
    assert backroom.copy(sku_id).holds() == {}
    assert backroom.audit(sku_id).ok is True


def test_a_sweep_that_has_little_time_left_keeps_what_it_has_done(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=300)
    backroom.promise_many(sku_id, 250)
    assert backroom.sweep_rows(deadline=Deadline(seconds=5.0, longest_wait=5)).landed == 100
    assert backroom.sweep_rows().landed == 150


def test_rows_of_one_moment_are_all_found_across_the_pages(backroom: Backroom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seckill.protocol.stale_rows.PAGE_ROWS", 3)
    sku_id = backroom.sales.open(total=20)
    backroom.promise_many(sku_id, 10)
    done = backroom.sweep_rows()
    assert (done.found, done.landed, done.failed) == (10, 10, [])


def test_young_rows_are_left_alone_and_old_ones_are_found_on_a_warm_connection(backroom: Backroom) -> None:
    """Each pass reads anew: a snapshot kept from the last one would not see what has aged since."""
    sku_id = backroom.sales.open(total=3)
    (key,) = backroom.promise(sku_id, "alice")
    assert (backroom.reconcile().stale.found, backroom.ledger(sku_id).statuses()) == (0, {key: 1})
    backroom.age(sku_id, minutes=1)
    assert backroom.reconcile().stale.found == 0
    backroom.age(sku_id, minutes=2)
    assert backroom.reconcile().stale.landed == 1
    (later,) = backroom.promise(sku_id, "bob")
    backroom.age(sku_id)
    assert backroom.reconcile().stale.landed == 1
    assert backroom.ledger(sku_id).statuses() == {key: 2, later: 2}


def test_rows_without_stock_never_fill_the_pages_that_other_sales_rows_need(
    backroom: Backroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seckill.protocol.stale_rows.PAGE_ROWS", 3)
    monkeypatch.setattr("seckill.protocol.stale_rows.PAGES", 2)
    short, sku_id = backroom.sales.open(total=10), backroom.sales.open(total=10)
    backroom.promise_many(short, 10)
    backroom.ledger(short).run("UPDATE seckill_stock SET remaining = 0 WHERE sku_id = %(sku)s")  # a typo
    (key,) = backroom.promise(sku_id, "alice")
    backroom.age(sku_id)
    done = backroom.sweep_rows()
    assert (done.found, done.landed, len(done.failed)) == (4, 1, 3)
    assert backroom.ledger(sku_id).statuses() == {key: 2}
    assert backroom.counts.count("StuckReservation") == 3, "it alarms all the same"
    backroom.ledger(short).run("UPDATE seckill_stock SET remaining = 10 WHERE sku_id = %(sku)s")
    assert [backroom.sweep_rows().landed for _ in range(3)] == [6, 4, 0]


# -- bad rows -------------------------------------------------------------------------------------------------------


def test_a_row_of_a_sku_without_sale_and_stock_stays_is_reported_and_stops_nobody(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=3)
    keys = backroom.promise(sku_id, "alice", "bob")
    backroom.age(sku_id)
    backroom.ledger(7).run(
        "INSERT INTO seckill_pre_deduct"
        " (pre_deduct_key, sku_id, user_id, quantity, epoch, ticket, status, created_at, updated_at)"
        " VALUES ('stray', 7, 'nobody', 1, 1, 1, 1, '2026-01-01', '2026-01-01')"
    )
    for passes in range(1, 4):
        done = backroom.reconcile(attempts=1)
        assert done.stale.failed == ["stray"]
        assert backroom.counts.count("StuckReservation") == passes
    assert backroom.ledger(sku_id).statuses() == dict.fromkeys(keys, 2)
    assert (backroom.ledger(7).statuses(), backroom.retries("stray"), backroom.notices(7)) == ({"stray": 1}, 0, [])


def test_a_user_that_is_no_text_is_landed_and_stops_neither_the_pass_nor_a_rebuild(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=5)
    keys = backroom.promise(sku_id, "alice", "bob", "carol")
    backroom.ledger(sku_id).run(
        "UPDATE seckill_pre_deduct SET user_id = X'FF00FE' WHERE pre_deduct_key = %(key)s", key=keys[1]
    )
    backroom.flush(sku_id)
    assert sku_id in backroom.reconcile().rebuilt
    assert backroom.copy(sku_id).stock == 2
    backroom.age(sku_id)
    done = backroom.reconcile()
    assert (done.stale.landed, done.failed) == (3, [])
    assert backroom.audit(sku_id).ok is True


def test_a_key_that_is_no_text_is_reported_and_stops_nobody(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=5)
    good, bad = backroom.promise(sku_id, "alice", "bob")
    ledger = backroom.ledger(sku_id)
    ledger.run("UPDATE seckill_pre_deduct SET pre_deduct_key = X'FF00FE' WHERE pre_deduct_key = %(key)s", key=bad)
    backroom.age(sku_id)
    done = backroom.sweep_rows(attempts=1)
    assert (done.landed, len(done.failed)) == (1, 1)
    found = ledger.select("SELECT pre_deduct_key, status FROM seckill_pre_deduct WHERE sku_id = %(sku)s")
    assert dict(found) == {good.encode(): 2, b"\xff\x00\xfe": 1}
    assert backroom.counts.count("StuckReservation") == 1


@pytest.mark.parametrize("code", sorted(ROW_CODES))
def test_an_error_that_names_the_row_counts(backroom: Backroom, code: int) -> None:
    sku_id = backroom.sales.open(total=3)
    good, bad = backroom.promise(sku_id, "alice", "bob")
    backroom.age(sku_id)
    with backroom.ledger(sku_id).refusing("seckill_order", cursed(bad), code):
        done = backroom.sweep_rows(attempts=1)
    assert (done.landed, done.rolled_back) == (1, 1)
    assert backroom.ledger(sku_id).statuses() == {good: 2, bad: 3}


def test_an_order_that_a_check_of_the_table_refuses_counts(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=14, quantity=7)
    (key,) = backroom.promise(sku_id, "alice")
    backroom.age(sku_id)
    ledger = backroom.ledger(sku_id)
    ledger.run("ALTER TABLE seckill_order ADD CONSTRAINT not_seven CHECK (quantity <> 7)")
    try:
        assert backroom.sweep_rows(attempts=2).failed == [key]
        assert backroom.retries(key) == 1
        assert backroom.sweep_rows(attempts=2).rolled_back == 1
    finally:
        ledger.run("ALTER TABLE seckill_order DROP CONSTRAINT not_seven")
    assert ledger.statuses() == {key: 3}


@pytest.mark.parametrize("code", [1205, 1213, 1040, 1290, 1317, 1792, 3024])
def test_an_error_that_may_pass_by_itself_never_counts(backroom: Backroom, code: int) -> None:
    sku_id = backroom.sales.open(total=3)
    (key,) = backroom.promise(sku_id, "alice")
    backroom.age(sku_id)
    with backroom.ledger(sku_id).refusing("seckill_order", cursed(key), code):
        for _ in range(2):
            done = backroom.sweep_rows(attempts=1)
            assert (done.landed, done.rolled_back, done.failed) == (0, 0, [key])
    assert (backroom.retries(key), backroom.ledger(sku_id).statuses()) == (0, {key: 1})
    assert "StuckReservation" not in backroom.counts, "a hiccup is no alarm"
    assert backroom.sweep_rows().landed == 1


# -- taken back -----------------------------------------------------------------------------------------------------


def test_after_three_failures_of_its_own_a_row_is_taken_back_once_and_the_user_can_buy_again(
    backroom: Backroom,
) -> None:
    sku_id = backroom.sales.open(total=4, quantity=2)
    good, bad = backroom.promise(sku_id, "alice", "bob")
    backroom.age(sku_id)
    ledger, copy = backroom.ledger(sku_id), backroom.copy(sku_id)
    with ledger.refusing("seckill_order", cursed(bad)):
        for failures in (1, 2):
            assert backroom.reconcile().stale.rolled_back == 0
            assert (ledger.statuses()[bad], backroom.retries(bad), backroom.notices(sku_id)) == (1, failures, [])
        assert (copy.stock, ledger.cap()) == (0, 4)
        done = backroom.reconcile()
        assert (done.stale.rolled_back, done.stale.failed) == (1, [])
        for _ in range(2):
            assert (ledger.statuses(), backroom.notices(sku_id)) == ({good: 2, bad: 3}, [bad])
            assert (copy.stock, copy.holds(), copy.buyers(), ledger.cap()) == (2, {}, {"alice": good}, 6)
            assert backroom.reconcile().stale.found == 0
        assert backroom.counts.count("RolledBack") == 1
        assert backroom.retries(good) == 0
    (again,) = backroom.promise(sku_id, "bob")
    assert again != bad
    assert set(backroom.land(again).values()) == {Landing.LANDED}
    assert backroom.audit(sku_id).ok is True


def test_a_row_of_an_earlier_epoch_is_taken_back_and_its_unit_sold_once(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=1)
    (key,) = backroom.promise(sku_id, "alice")
    backroom.flush(sku_id)
    assert backroom.reconcile().rebuilt == [sku_id]
    backroom.age(sku_id)
    with backroom.ledger(sku_id).refusing("seckill_order", cursed(key)):
        assert backroom.sweep_rows(attempts=1).rolled_back == 1
    (other,) = backroom.promise(sku_id, "bob")
    assert not isinstance(backroom.answer(sku_id, "alice"), Reserved)
    assert backroom.ledger(sku_id).statuses() == {key: 3, other: 1}
    assert backroom.audit(sku_id).ok is True


def test_when_too_little_remains_a_row_is_not_taken_back_but_left_for_a_person(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=2)
    (key,) = backroom.promise(sku_id, "alice")
    backroom.age(sku_id)
    ledger = backroom.ledger(sku_id)
    ledger.run("UPDATE seckill_stock SET remaining = 0 WHERE sku_id = %(sku)s")  # a typo
    with ledger.refusing("seckill_order", cursed(key)):
        for _ in range(2):
            assert backroom.sweep_rows(attempts=1).failed == [key]
    assert (ledger.statuses(), backroom.notices(sku_id), ledger.cap()) == ({key: 1}, [], 2)
    assert backroom.counts.count("StuckReservation") == 2
    ledger.run("UPDATE seckill_stock SET remaining = 2 WHERE sku_id = %(sku)s")
    assert backroom.sweep_rows().landed == 1


@pytest.mark.parametrize("mistake", ["SET remaining = 1", "SET remaining = 0, total = 0"])
def test_too_little_stock_never_counts_stays_at_1_and_alarms(backroom: Backroom, mistake: str) -> None:
    sku_id = backroom.sales.open(total=4, quantity=2)
    (key,) = backroom.promise(sku_id, "alice")
    backroom.age(sku_id)
    ledger = backroom.ledger(sku_id)
    ledger.run(f"UPDATE seckill_stock {mistake} WHERE sku_id = %(sku)s")
    for passes in (1, 2):
        assert backroom.sweep_rows(attempts=1).failed == [key]
        assert backroom.counts.count("StuckReservation") == passes
    assert (ledger.statuses(), backroom.retries(key), backroom.notices(sku_id)) == ({key: 1}, 0, [])
    ledger.run("UPDATE seckill_stock SET remaining = 4, total = 4 WHERE sku_id = %(sku)s")
    assert backroom.sweep_rows(attempts=1).landed == 1


def test_an_order_that_exists_mends_its_row_and_is_never_taken_back(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=2)
    (key,) = backroom.promise(sku_id, "alice")
    backroom.age(sku_id)
    ledger = backroom.ledger(sku_id)
    ledger.run(
        "INSERT INTO seckill_order (pre_deduct_key, sku_id, user_id, quantity, created_at)"
        " VALUES (%(key)s, %(sku)s, 'alice', 1, UTC_TIMESTAMP(3))",
        key=key,
    )
    ledger.run("UPDATE seckill_stock SET remaining = 1 WHERE sku_id = %(sku)s")
    assert roll_back(backroom.database, backroom.redis, key, sku_id, "a mistake") is RollBack.ORDER_EXISTS
    assert (ledger.statuses(), backroom.notices(sku_id)) == ({key: 1}, [])
    assert backroom.sweep_rows(attempts=1).landed == 1
    assert (ledger.statuses(), ledger.remaining()) == ({key: 2}, 1)
    assert backroom.counts.count("InvariantBroken") == 1


# -- others at work -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "locked",
    [
        "SELECT * FROM seckill_stock WHERE sku_id = %(sku)s FOR UPDATE",
        "SELECT * FROM seckill_pre_deduct WHERE sku_id = %(sku)s FOR UPDATE",
    ],
    ids=["stock", "row"],
)
def test_a_lock_wait_never_counts(backroom: Backroom, locked: str) -> None:
    sku_id = backroom.sales.open(total=2)
    (key,) = backroom.promise(sku_id, "alice")
    backroom.age(sku_id)
    with backroom.ledger(sku_id).locked(locked):
        assert backroom.sweep_rows(attempts=1).failed == [key]
    assert (backroom.retries(key), backroom.ledger(sku_id).statuses()) == (0, {key: 1})
    assert backroom.sweep_rows(attempts=1).landed == 1


class Killed(Database):
    """An operator kills this connection once, right before the statement named."""

    def __init__(self, url: str, before: str) -> None:
        super().__init__(url)
        self.url, self.before = url, before
        self.new_call(patience())

    def _send(self, name: str, text: str, arguments: Any = ()) -> Any:
        if name == self.before:
            self.before = ""
            kill_connection(self.url, self)
        return super()._send(name, text, arguments)


@pytest.mark.parametrize("before", ["begin", "land.lock_rows", "land.insert_orders", "land.take_stock", "commit"])
def test_a_lost_connection_never_counts(backroom: Backroom, before: str) -> None:
    sku_id = backroom.sales.open(total=2)
    (key,) = backroom.promise(sku_id, "alice")
    backroom.age(sku_id)
    killed = Killed(backroom.servers.database_url, before)
    done = sweep_stale_rows(
        killed, backroom.redis, patience(), backroom.counts.append, stale_seconds=STALE_SECONDS, landing_attempts=1
    )
    assert killed.before == ""
    assert (done.failed, backroom.retries(key)) == ([key], 0)
    assert backroom.ledger(sku_id).statuses() == {key: 1}
    assert backroom.sweep_rows(attempts=1).landed == 1
    killed.close()


def test_what_was_done_before_the_database_went_away_is_told(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=2)
    bad, good = backroom.promise(sku_id, "alice", "bob")
    backroom.age(sku_id)
    killed = Killed(backroom.servers.database_url, "reconcile.count_retry")
    reconcile = Reconcile(killed, backroom.redis, backroom.letters, None, backroom.counts.append, STALE_SECONDS, 3)
    with backroom.ledger(sku_id).refusing("seckill_order", cursed(bad)):
        done = reconcile(patience())
    killed.close()
    assert (done.stale.found, done.stale.landed) == (2, 1)
    assert [(event.key, event.what) for event in done.events] == [(good, "stale row landed")]
    assert [problem.partition(":")[0] for problem in done.failed] == ["stale rows"]


def test_a_row_that_somebody_is_landing_is_skipped_at_once_and_the_sale_does_not_wait(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=3)
    (key,) = backroom.promise(sku_id, "alice")
    ledger = backroom.ledger(sku_id)
    with ledger.locked("SELECT * FROM seckill_pre_deduct WHERE sku_id = %(sku)s FOR UPDATE"):
        started = time.monotonic()
        assert roll_back(backroom.database, backroom.redis, key, sku_id, "no reason") is RollBack.BUSY
        assert time.monotonic() - started < 0.7, "a lock wait takes a second"
        with connect(backroom.servers.database_url) as other, other.cursor() as cursor:
            cursor.execute("START TRANSACTION")
            cursor.execute("SELECT * FROM seckill_sale WHERE sku_id = %s FOR UPDATE NOWAIT", (sku_id,))
            cursor.execute("ROLLBACK")
    assert (ledger.statuses(), ledger.cap(), backroom.notices(sku_id)) == ({key: 1}, 3, [])


@pytest.mark.parametrize("before", ["abandon.lock_sale", "roll_back.mark_rolled_back", "roll_back.insert_notice"])
def test_a_roll_back_whose_connection_is_lost_leaves_the_promise_whole(backroom: Backroom, before: str) -> None:
    sku_id = backroom.sales.open(total=3)
    (key,) = backroom.promise(sku_id, "alice")
    killed = Killed(backroom.servers.database_url, before)
    assert roll_back(killed, backroom.redis, key, sku_id, "no reason") is RollBack.UNKNOWN
    killed.close()
    ledger, copy = backroom.ledger(sku_id), backroom.copy(sku_id)
    assert (ledger.statuses(), ledger.cap(), backroom.notices(sku_id)) == ({key: 1}, 3, [])
    assert (copy.stock, list(copy.holds())) == (2, [key])


class Unanswered(Database):
    """Its first COMMIT is done, but the answer is lost with the connection."""

    lost = 0

    def _send(self, name: str, text: str, arguments: Any = ()) -> Any:
        answer = super()._send(name, text, arguments)
        if name == "commit" and not self.lost:
            self.lost = 1
            self.close()
            return super()._send(name, text, arguments)
        return answer


def test_a_roll_back_whose_commit_was_not_answered_is_what_the_row_says(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=3)
    (key,) = backroom.promise(sku_id, "alice")
    database = Unanswered(backroom.servers.database_url)
    database.new_call(patience())
    assert roll_back(database, backroom.redis, key, sku_id, "no reason") is RollBack.ROLLED_BACK
    assert database.lost
    database.close()
    assert (backroom.ledger(sku_id).statuses(), backroom.notices(sku_id)) == ({key: 3}, [key])
    assert (backroom.copy(sku_id).stock, backroom.copy(sku_id).holds()) == (3, {})


def test_a_roll_back_keeps_a_notice_that_is_there_already(backroom: Backroom) -> None:
    """Somebody has put a rolled-back row back to 1 by hand: its user has been told."""
    sku_id = backroom.sales.open(total=3)
    (key,) = backroom.promise(sku_id, "alice")
    ledger = backroom.ledger(sku_id)
    ledger.run(
        "INSERT INTO seckill_notice (pre_deduct_key, user_id, sku_id, reason, created_at, sent_at)"
        " VALUES (%(key)s, 'alice', %(sku)s, 'earlier', UTC_TIMESTAMP(3), UTC_TIMESTAMP(3))",
        key=key,
    )
    assert roll_back(backroom.database, backroom.redis, key, sku_id, "no reason") is RollBack.ROLLED_BACK
    assert (ledger.statuses(), backroom.notices(sku_id), ledger.cap()) == ({key: 3}, [key], 4)
    assert (backroom.copy(sku_id).stock, backroom.copy(sku_id).holds()) == (3, {})
    assert ledger.select("SELECT reason FROM seckill_notice WHERE sku_id = %(sku)s") == [("earlier",)]
    assert backroom.audit(sku_id).ok is True


# -- a store is away ------------------------------------------------------------------------------------------------


def test_without_redis_rows_land_and_are_taken_back_and_what_is_released_comes_later_once(
    new_backroom: Callable[[str], Backroom], tmp_path: Path
) -> None:
    with RedisServer(tmp_path, append_only=True) as own_redis:
        backroom = new_backroom(own_redis.url)
        sku_id = backroom.sales.open(total=4)
        good, bad = backroom.promise(sku_id, "alice", "bob")
        backroom.age(sku_id)
        ledger = backroom.ledger(sku_id)
        own_redis.kill()
        with ledger.refusing("seckill_order", cursed(bad)):
            done = backroom.reconcile(attempts=1)
        assert (done.stale.landed, done.stale.rolled_back) == (1, 1)
        assert ledger.statuses() == {good: 2, bad: 3}
        assert any(problem.startswith("catalogue") for problem in done.failed)
        assert [audit.ok for audit in done.audits] == [None]
        assert done.rebuilt == []
        assert "ReconcilePass" not in backroom.counts
        own_redis.start()
        copy = backroom.copy(sku_id)
        assert (copy.stock, set(copy.holds())) == (2, {good, bad}), "it remembers"
        again = backroom.reconcile()
        assert [(holds.released, holds.settled) for holds in again.holds] == [(1, 1)]
        assert (copy.stock, copy.holds(), copy.buyers()) == (3, {}, {"alice": good})
        assert backroom.reconcile().failed == []
        assert (copy.stock, backroom.audit(sku_id).ok) == (3, True)


def test_without_the_database_nothing_is_decided_and_nothing_is_lost(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=4)
    stale, landed, rolled_back = backroom.promise(sku_id, "alice", "bob", "carol")
    backroom.land(landed)
    backroom.ledger(sku_id).roll_back(rolled_back)
    deducted(backroom.redis, sku_id, "dave")
    backroom.age(sku_id)
    for key in (stale, landed, rolled_back):
        backroom.put_letter(f'{{"preDeductKey": "{key}"}}')
    copy = backroom.copy(sku_id)
    before, letters = copy.everything(), backroom.visible_letters()
    away = Reconcile(
        Database(f"mysql://root@127.0.0.1:{free_port()}/seckill"),
        backroom.redis, backroom.letters, None, backroom.counts.append, STALE_SECONDS, 1,
    )  # fmt: skip
    done = away(patience())
    assert {problem.partition(":")[0] for problem in done.failed} >= {"catalogue", "stale rows", "closing", "sales"}
    assert done.rescue.database_away
    assert (done.audits, done.rebuilt, done.closed) == ([], [], [])
    assert "ReconcilePass" not in backroom.counts
    assert (copy.everything(), backroom.visible_letters()) == (before, letters)
    assert backroom.ledger(sku_id).statuses() == {stale: 1, landed: 2, rolled_back: 3}
    done = backroom.reconcile()
    assert (done.failed, done.rescue.rescued) == ([], 3)
    assert (copy.stock, copy.holds()) == (2, {})


# -- two at once ----------------------------------------------------------------------------------------------------


def test_passes_at_the_same_moment_do_everything_once(backroom: Backroom, servers: Servers) -> None:
    """Rows that land, rows that are taken back, crashed deductions and dead letters, swept by four at once."""
    url, redis_url = backroom.servers.database_url, backroom.servers.redis_url

    def container() -> Reconcile:
        return Reconcile(
            Database(url), Redis(redis_url), backroom.letters, None, backroom.counts.append, STALE_SECONDS, 1
        )

    reconcilers = [container() for _ in range(4)]
    for _ in range(4):
        sku_id = backroom.sales.open(total=40)
        keys = backroom.promise(sku_id, *(f"user {n}" for n in range(12)))
        bad, crashed = keys[:4], [deducted(backroom.redis, sku_id, f"crashed {n}").key for n in range(4)]
        backroom.age(sku_id)
        for key in keys[:8]:
            backroom.put_letter(f'{{"preDeductKey": "{key}"}}')
        ledger, copy = backroom.ledger(sku_id), backroom.copy(sku_id)
        backroom.counts.clear()
        names = ", ".join(f"'{key}'" for key in bad)
        with ledger.refusing("seckill_order", f"NEW.pre_deduct_key IN ({names})"):
            passes = at_once([lambda one=one: one(patience()) for one in reconcilers])  # type: ignore[misc]
            backroom.reconcile(attempts=1)  # what the four left to one another
        assert sum(done.stale.rolled_back for done in passes) <= 4
        wanted = {key: 3 if key in bad else 2 for key in keys} | dict.fromkeys(crashed, 3)
        assert ledger.statuses() == wanted
        assert Counter(backroom.notices(sku_id)) == Counter(bad)
        assert backroom.counts.count("OrderLanded") == 8
        assert (copy.stock, copy.holds(), set(copy.buyers().values())) == (32, {}, set(keys[4:]))
        audit = backroom.audit(sku_id)
        assert (audit.ok, audit.gap) == (True, 0), audit
