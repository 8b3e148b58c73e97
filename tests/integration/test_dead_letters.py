"""Dead letters (docs/protocol.md 6.3) are rescued without a human; what nobody knows waits for one."""

import json

import pytest

from local.servers import free_port
from seckill.adapters.mysql import Database
from seckill.adapters.sqs import DeadLetters, Letter, QueueError
from seckill.protocol.dead_letters import Rescue, rescue_dead_letters
from seckill.protocol.reconcile import Reconcile
from tests.backroom import STALE_SECONDS, Backroom
from tests.messages import landing_body
from tests.stores import patience

pytest_plugins = ["tests.backroom_fixtures"]

UNKNOWN = landing_body("0198c0de-0000-7000-8000-000000000000")
GARBAGE = [
    "",
    "not JSON",
    "[]",
    "null",
    '{"preDeductKey": 17}',
    "[" * 50_000,
    landing_body("é"),
    landing_body("x" * 37),
]


def rescue(backroom: Backroom) -> Rescue:
    """The dead letters alone."""
    return rescue_dead_letters(backroom.database, backroom.redis, backroom.letters, patience(), backroom.counts.append)


def in_flight(backroom: Backroom) -> int:
    """Letters that somebody has taken and not given back."""
    return backroom.letters.depth().in_flight


def test_what_is_final_is_deleted_and_what_is_reserved_is_landed_first(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=5)
    reserved, landed, rolled_back = backroom.promise(sku_id, "alice", "bob", "carol")
    backroom.land(landed)
    backroom.ledger(sku_id).roll_back(rolled_back)
    for key in (reserved, landed, rolled_back, reserved):
        backroom.put_letter(landing_body(key))
    done = rescue(backroom)
    assert (done.rescued, done.unknown, done.failed, done.database_away) == (4, [], 0, False)
    assert backroom.ledger(sku_id).statuses() == {reserved: 2, landed: 2, rolled_back: 3}
    assert backroom.counts.count("DeadLetterRescued") == 4
    assert (backroom.visible_letters(), in_flight(backroom)) == ([], 0)


def test_what_the_ledger_does_not_know_is_kept_counted_and_can_be_seen_after_the_pass(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=40)
    keys = backroom.promise(sku_id, *(f"user {number}" for number in range(12)))
    for number, key in enumerate(keys):
        backroom.put_letter(landing_body(key))
        backroom.put_letter(landing_body(f"unknown-{number:02}"))
    unknown = [landing_body(f"unknown-{number:02}") for number in range(12)]
    for passes in (1, 2):
        done = rescue(backroom)
        assert (done.rescued, sorted(done.unknown)) == (12 if passes == 1 else 0, unknown)
        assert backroom.counts.count("DeadLetterUnknown") == 12 * passes
        assert (backroom.visible_letters(), in_flight(backroom)) == (unknown, 0)
    assert set(backroom.ledger(sku_id).statuses().values()) == {2}


def test_an_unknown_letter_is_rescued_as_soon_as_its_row_is_there(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=2)
    (key,) = backroom.promise(sku_id, "alice")
    hidden = backroom.ledger(sku_id)
    hidden.run("UPDATE seckill_pre_deduct SET pre_deduct_key = 'hidden' WHERE pre_deduct_key = %(key)s", key=key)
    backroom.put_letter(landing_body(key))
    assert rescue(backroom).unknown == [landing_body(key)]
    hidden.run("UPDATE seckill_pre_deduct SET pre_deduct_key = %(key)s WHERE pre_deduct_key = 'hidden'", key=key)
    assert rescue(backroom).rescued == 1
    assert (hidden.statuses(), backroom.visible_letters()) == ({key: 2}, [])


@pytest.mark.parametrize("body", GARBAGE)
def test_a_garbage_body_is_kept_as_unknown_and_never_stops_the_others(backroom: Backroom, body: str) -> None:
    sku_id = backroom.sales.open(total=2)
    first, last = backroom.promise(sku_id, "alice", "bob")
    for letter in (landing_body(first), body, landing_body(last)):
        backroom.put_letter(letter)
    done = rescue(backroom)
    assert (done.rescued, done.unknown) == (2, [body])
    assert backroom.ledger(sku_id).statuses() == {first: 2, last: 2}
    assert backroom.visible_letters() == [body]


def test_without_the_database_letters_can_be_received_again_at_once(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=2)
    keys = backroom.promise(sku_id, "alice", "bob")
    bodies = sorted([*map(landing_body, keys), UNKNOWN])
    for body in bodies:
        backroom.put_letter(body)
    away = Database(f"mysql://root@127.0.0.1:{free_port()}/seckill")
    away.new_call(patience())
    done = rescue_dead_letters(away, backroom.redis, backroom.letters, patience(), backroom.counts.append)
    assert (done.rescued, done.unknown, done.database_away) == (0, [], True)
    assert "DeadLetterUnknown" not in backroom.counts, "the database did not say that it does not know it"
    assert (backroom.visible_letters(), in_flight(backroom)) == (bodies, 0)
    done = rescue(backroom)
    assert (done.rescued, done.unknown) == (2, [UNKNOWN])


def test_a_letter_whose_row_waits_for_a_lock_can_be_received_again_at_once(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=2)
    (key,) = backroom.promise(sku_id, "alice")
    backroom.put_letter(landing_body(key))
    with backroom.ledger(sku_id).locked("SELECT * FROM seckill_stock WHERE sku_id = %(sku)s FOR UPDATE"):
        assert rescue(backroom).rescued == 0
        assert backroom.visible_letters() == [landing_body(key)]
    assert rescue(backroom).rescued == 1


def test_a_letter_whose_row_cannot_land_is_kept_until_the_row_is_final(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=3)
    good, bad = backroom.promise(sku_id, "alice", "bob")
    backroom.age(sku_id)
    for key in (bad, good):
        backroom.put_letter(landing_body(key))
    with backroom.ledger(sku_id).refusing("seckill_order", f"NEW.pre_deduct_key = '{bad}'"):
        done = rescue(backroom)
        assert (done.rescued, done.failed, done.unknown) == (1, 1, [])
        assert backroom.letters.depth().waiting + in_flight(backroom) == 1
        assert backroom.sweep_rows(attempts=1).rolled_back == 1
    assert backroom.ledger(sku_id).statuses() == {good: 2, bad: 3}


def test_without_its_queue_the_other_parts_of_the_pass_are_done(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=3)
    (key,) = backroom.promise(sku_id, "alice")
    backroom.age(sku_id)
    no_queue = DeadLetters(backroom.landing_url, f"{backroom.dead_letters_url}-gone")
    done = Reconcile(
        backroom.database, backroom.redis, no_queue, None, backroom.counts.append, STALE_SECONDS, 3
    )(patience())  # fmt: skip
    assert {problem.partition(":")[0] for problem in done.failed} == {"dead letters", "queues"}
    assert (done.stale.landed, [audit.ok for audit in done.audits]) == (1, [True])
    assert backroom.ledger(sku_id).statuses() == {key: 2}


def test_what_was_rescued_before_the_queue_went_away_is_told(
    backroom: Backroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    sku_id = backroom.sales.open(total=3)
    keys = backroom.promise(sku_id, "alice", "bob", "carol")
    for key in keys:
        backroom.put_letter(json.dumps({"preDeductKey": key, "skuId": sku_id}))
    delete = backroom.letters.delete
    deleted: list[Letter] = []

    def twice(letter: Letter) -> None:
        if len(deleted) == 2:
            raise QueueError("gone")
        deleted.append(letter)
        delete(letter)

    monkeypatch.setattr(backroom.letters, "delete", twice)
    done = backroom.reconcile()
    assert (done.rescue.rescued, backroom.counts.count("DeadLetterRescued")) == (2, 2)
    told = [(event.key, event.sku_id) for event in done.events if event.what.startswith("dead letter")]
    assert sorted(told) == [(key, sku_id) for key in keys], "all have landed"
    assert [problem.partition(":")[0] for problem in done.failed] == ["dead letters"]


@pytest.mark.parametrize("sku", [None, "?", [1], True, 1.5])
def test_an_sku_that_is_no_number_is_left_out_of_the_log(backroom: Backroom, sku: object) -> None:
    backroom.put_letter(json.dumps({"preDeductKey": "unknown", "skuId": sku}))
    assert [(event.key, event.sku_id) for event in rescue(backroom).events] == [("unknown", None)]


def test_only_the_key_of_a_letter_counts(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=3)
    (key,) = backroom.promise(sku_id, "alice")
    backroom.put_letter(json.dumps({"preDeductKey": key, "skuId": "?", "quantity": 99}))
    assert rescue(backroom).rescued == 1
    assert backroom.ledger(sku_id).remaining() == 2
