"""Old holds (docs/protocol.md 6.2): deductions that Redis still holds are finished by what the ledger says, once."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from local.servers import free_port
from seckill.adapters.redis import RedisError
from seckill.domain.answer import Refusal, Refused, Reserved
from seckill.protocol.abandon import abandon
from seckill.protocol.old_holds import sweep_old_holds
from tests.backroom import STALE_SECONDS, Backroom, of_sku
from tests.stores import deducted, open_database, open_redis, patience

pytest_plugins = ["tests.backroom_fixtures"]


def test_a_crash_after_the_deduction_gives_the_unit_back_once_and_the_same_user_can_buy(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=2, quantity=2)
    crashed = deducted(backroom.redis, sku_id, "alice")
    assert backroom.answer(sku_id, "bob") == Refused(Refusal.SOLD_OUT)
    backroom.age(sku_id)
    done = backroom.reconcile().holds[0]
    assert (done.released, done.settled, done.failed, done.rebuild_needed) == (1, 0, 0, False)
    copy, ledger = backroom.copy(sku_id), backroom.ledger(sku_id)
    for _ in range(2):
        assert (copy.stock, copy.holds(), copy.buyers()) == (2, {}, {})
        row = ledger.rows()[crashed.key]
        assert (row.status, row.reason, row.epoch, row.ticket) == (3, "abandoned", crashed.epoch, crashed.ticket)
        assert (ledger.cap(), backroom.notices(sku_id)) == (4, []), "it was never promised"
        assert backroom.reconcile().holds[0].released == 0
    assert isinstance(backroom.answer(sku_id, "alice"), Reserved)
    assert backroom.counts.count("HoldReleased") == backroom.counts.count("Abandoned") == 1
    assert backroom.audit(sku_id).ok is True


def test_each_old_hold_is_finished_by_its_row(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=10)
    reserved, landed, rolled_back = backroom.promise(sku_id, "alice", "bob", "carol")
    copy, ledger = backroom.copy(sku_id), backroom.ledger(sku_id)
    hold = copy.client.hget(copy.held_key, landed)
    backroom.land(landed)
    copy.client.hset(copy.held_key, landed, hold)  # settled while Redis was away
    ledger.roll_back(rolled_back)
    backroom.age(sku_id)
    done = backroom.sweep_holds(sku_id)
    assert (done.settled, done.released, done.failed, done.rebuild_needed) == (1, 1, 0, False)
    assert (copy.stock, list(copy.holds()), copy.buyers()) == (8, [reserved], {"alice": reserved, "bob": landed})
    assert ledger.statuses() == {reserved: 1, landed: 2, rolled_back: 3}
    assert sorted(of_sku(done.events, sku_id)) == ["old hold released", "old hold settled"]
    again = backroom.sweep_holds(sku_id)
    assert (again.settled, again.released, copy.stock) == (0, 0, 8)


def test_young_holds_are_left_alone_by_the_clock_of_redis(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=3)
    crashed = deducted(backroom.redis, sku_id, "alice")
    backroom.age(sku_id, minutes=1)
    for _ in range(2):
        done = backroom.sweep_holds(sku_id)
        assert (done.released, done.rebuild_needed) == (0, False)
    assert (list(backroom.copy(sku_id).holds()), backroom.ledger(sku_id).statuses()) == ([crashed.key], {})
    backroom.age(sku_id, minutes=2)
    assert backroom.sweep_holds(sku_id).released == 1


def test_more_holds_than_one_statement_takes_are_all_finished(
    backroom: Backroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seckill.protocol.old_holds.PAGE_HOLDS", 3)
    sku_id = backroom.sales.open(total=10)
    for number in range(8):
        deducted(backroom.redis, sku_id, f"user {number}")
    backroom.age(sku_id)
    assert backroom.sweep_holds(sku_id).released == 8
    assert (backroom.copy(sku_id).stock, backroom.ledger(sku_id).cap()) == (10, 18)


def put_hold(backroom: Backroom, sku_id: int, key: str, **fields: object) -> None:
    """An old hold as nobody wrote it, deducted from the stock like a real one."""
    copy = backroom.copy(sku_id)
    hold = {"user": "mallory", "quantity": 1, "epoch": copy.epoch, "ticket": copy.ticket, "ms": 0, **fields}
    copy.client.hset(copy.held_key, key, json.dumps(hold))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"epoch": 0}, "dead"),
        ({"epoch": 7}, "dead"),
        ({"ticket": 4}, "poisoned: above cap"),
        ({"ticket": 1}, "poisoned: taken"),
        ({"quantity": 2, "ticket": 2}, "poisoned: another quantity"),
    ],
    ids=str,
)
def test_a_dead_or_poisoned_hold_is_left_and_the_copy_rebuilt(
    backroom: Backroom, fields: dict[str, int], why: str
) -> None:
    sku_id = backroom.sales.open(total=3)
    (promised,) = backroom.promise(sku_id, "alice")
    copy, ledger = backroom.copy(sku_id), backroom.ledger(sku_id)
    put_hold(backroom, sku_id, "odd", **fields)
    done = backroom.sweep_holds(sku_id)
    assert (done.released, done.failed, done.rebuild_needed) == (0, 0, True), why
    assert (copy.stock, set(copy.holds())) == (2, {"odd", promised})
    assert backroom.reconcile().rebuilt == [sku_id]
    assert (copy.epoch, copy.stock, list(copy.holds())) == (2, 2, [promised])
    assert (ledger.statuses(), ledger.cap()) == ({promised: 1}, 2), "no tombstone, nothing given back"
    assert backroom.reconcile().rebuilt == []
    assert backroom.audit(sku_id).ok is True


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not JSON",
        "[]",
        '{"user": "alice"}',
        "null",
        '{"quantity": -1}',
        "\xff",
        '{"user": 7, "quantity": 1, "epoch": 1, "ticket": 1, "ms": 0}',
        '{"user": "\\ud800", "quantity": 1, "epoch": 1, "ticket": 1, "ms": 0}',
        '{"user": "\xed\xa0\x80", "quantity": 1, "epoch": 1, "ticket": 1, "ms": 0}',
    ],
)
def test_a_hold_that_cannot_be_read_brings_a_rebuild_and_stops_no_other(backroom: Backroom, text: str) -> None:
    sku_id = backroom.sales.open(total=4)
    deducted(backroom.redis, sku_id, "bob")
    backroom.age(sku_id)
    (promised,) = backroom.promise(sku_id, "alice")
    copy = backroom.copy(sku_id)
    copy.client.hset(copy.held_key, "odd", text.encode("latin-1"))
    done = backroom.reconcile()
    assert (done.holds[0].released, done.rebuilt) == (1, [sku_id])
    assert (copy.epoch, copy.stock, list(copy.holds())) == (2, 3, [promised])
    assert backroom.audit(sku_id).ok is True


def test_a_hold_whose_key_is_no_text_brings_a_rebuild_and_stops_no_other(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=4)
    copy = backroom.copy(sku_id)
    copy.client.hset(copy.held_key, b"\xff", '{"user": "odd", "quantity": 1, "epoch": 1, "ticket": 1, "ms": 0}')
    deducted(backroom.redis, sku_id, "bob")
    backroom.age(sku_id)
    done = backroom.reconcile()
    assert (done.holds[0].released, done.rebuilt, copy.holds()) == (1, [sku_id], {})


def test_a_copy_that_is_not_whole_is_not_swept(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=4)
    deducted(backroom.redis, sku_id, "alice")
    backroom.age(sku_id)
    copy = backroom.copy(sku_id)
    copy.client.hdel(copy.buyers_key, "#epoch")
    done = backroom.sweep_holds(sku_id)
    assert (done.released, backroom.ledger(sku_id).statuses()) == (0, {})
    assert backroom.reconcile().rebuilt == [sku_id]
    assert copy.stock == 4


def test_a_row_that_appears_meanwhile_is_a_promise(backroom: Backroom) -> None:
    """The function was only slow: it writes its row after the sweep has looked for it."""
    sku_id = backroom.sales.open(total=4)
    slow = deducted(backroom.redis, sku_id, "alice")
    backroom.age(sku_id)
    ledger = backroom.ledger(sku_id)
    looked = backroom.database.rows

    def then_insert(statement: str, *arguments: object, **named: object) -> list[dict[str, object]]:
        found = looked(statement, *arguments, **named)
        if statement == "reconcile.statuses":
            ledger.run(
                "INSERT INTO seckill_pre_deduct"
                " (pre_deduct_key, sku_id, user_id, quantity, epoch, ticket, status, created_at, updated_at)"
                " VALUES (%(key)s, %(sku)s, 'alice', 1, 1, 1, 1, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3))",
                key=slow.key,
            )
        return found

    backroom.database.rows = then_insert  # type: ignore[method-assign]
    done = backroom.sweep_holds(sku_id)
    assert (done.released, done.failed, done.rebuild_needed) == (0, 0, False)
    assert (ledger.statuses(), ledger.cap()) == ({slow.key: 1}, 4)
    assert (backroom.copy(sku_id).stock, list(backroom.copy(sku_id).holds())) == (3, [slow.key])


def meanwhile(backroom: Backroom, do: Callable[[], object]) -> None:
    """Something happens after a sweep has looked for the rows of its holds."""
    looked = backroom.database.rows

    def then(statement: str, *arguments: object, **named: object) -> list[dict[str, object]]:
        found = looked(statement, *arguments, **named)
        if statement == "reconcile.statuses":
            do()
        return found

    backroom.database.rows = then  # type: ignore[method-assign]


def test_what_another_pass_has_given_up_and_released_is_not_counted_again(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=4)
    deducted(backroom.redis, sku_id, "alice")
    backroom.age(sku_id)
    database, other_counts = open_database(backroom.servers.database_url), Counter[str]()

    def sweep() -> None:
        sweep_old_holds(
            database, backroom.redis, sku_id, patience(), lambda name: other_counts.update([name]), STALE_SECONDS
        )

    meanwhile(backroom, sweep)
    assert backroom.sweep_holds(sku_id).released == 0
    database.close()
    assert (backroom.counts, other_counts) == ([], Counter(Abandoned=1, HoldReleased=1))
    assert (backroom.copy(sku_id).stock, backroom.audit(sku_id).ok) == (4, True)


def test_what_another_pass_has_given_up_and_not_released_is_released(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=4)
    crashed = deducted(backroom.redis, sku_id, "alice")
    backroom.age(sku_id)
    database, no_redis = open_database(backroom.servers.database_url), open_redis(f"redis://127.0.0.1:{free_port()}/0")
    meanwhile(backroom, lambda: abandon(database, no_redis, crashed))
    assert backroom.sweep_holds(sku_id).released == 1
    database.close()
    assert backroom.counts == ["HoldReleased"]
    assert (backroom.copy(sku_id).stock, backroom.ledger(sku_id).cap()) == (4, 5)


def test_a_release_that_redis_did_not_answer_is_not_counted_and_reported(
    backroom: Backroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    sku_id = backroom.sales.open(total=4)
    for user in ("alice", "bob"):
        deducted(backroom.redis, sku_id, user)
    backroom.age(sku_id)
    release, asked = backroom.redis.release, list[Any]()

    def once(*arguments: Any) -> bool:
        asked.append(arguments)
        if len(asked) == 2:
            raise RedisError("gone")
        return release(*arguments)

    monkeypatch.setattr(backroom.redis, "release", once)
    done = backroom.reconcile()
    assert (done.holds[0].released, len(done.events)) == (1, 2), "what was done before is told"
    assert Counter(backroom.counts) == Counter(Abandoned=2, HoldReleased=1)
    assert [problem.partition(":")[0] for problem in done.failed] == [f"holds of SKU {sku_id}"]
    done = backroom.reconcile()
    assert (done.holds[0].released, done.failed) == (1, [])
    assert (backroom.copy(sku_id).stock, backroom.ledger(sku_id).cap()) == (4, 6)


def test_an_archived_sale_is_not_swept(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=4)
    deducted(backroom.redis, sku_id, "alice")
    backroom.age(sku_id)
    backroom.ledger(sku_id).run("UPDATE seckill_sale SET state = 'archived' WHERE sku_id = %(sku)s")
    done = backroom.reconcile()
    assert (done.holds, done.audits, done.failed) == ([], [], [])
    assert backroom.ledger(sku_id).statuses() == {}
