"""What a person decides by hand through sale_admin: land, roll_back, discard; and what he sees of the dead letters."""

from typing import Any

import pytest

from seckill.domain.answer import Reserved
from tests.backroom import Backroom, Functions
from tests.messages import landing_body
from tests.stores import deducted

pytest_plugins = ["tests.backroom_fixtures"]

UNKNOWN = "0198c0de-0000-7000-8000-000000000000"


def test_a_person_lands_a_reservation(backroom: Backroom, functions: Functions) -> None:
    sku_id = backroom.sales.open(total=2)
    (key,) = backroom.promise(sku_id, "alice")
    wanted = {"ok": True, "preDeductKey": key, "decision": "land", "ledger": "LANDED"}
    for _ in range(2):
        assert functions.admin("resolve", preDeductKey=key, decision="land", reason="she paid") == wanted
        assert backroom.ledger(sku_id).statuses() == {key: 2}
        assert (backroom.ledger(sku_id).remaining(), backroom.copy(sku_id).holds()) == (1, {})


def test_a_person_rolls_a_reservation_back_with_his_reason_and_a_notice(
    backroom: Backroom, functions: Functions
) -> None:
    sku_id = backroom.sales.open(total=2, quantity=2)
    (key,) = backroom.promise(sku_id, "alice")
    answer = functions.admin("resolve", preDeductKey=key, decision="roll_back", reason="sold by mistake – sorry")
    assert answer == {"ok": True, "preDeductKey": key, "decision": "roll_back", "ledger": "ROLLED_BACK"}
    ledger, copy = backroom.ledger(sku_id), backroom.copy(sku_id)
    ((user, reason, sent_at),) = ledger.select(
        "SELECT user_id, reason, sent_at FROM seckill_notice WHERE pre_deduct_key = %(key)s", key=key
    )
    assert (user, reason, sent_at) == (b"alice", "sold by mistake – sorry", None)
    assert ledger.rows()[key].reason == "sold by mistake – sorry"
    for _ in range(2):
        assert (ledger.cap(), copy.stock, copy.holds(), copy.buyers()) == (4, 2, {}, {})
        again = functions.refusal("resolve", preDeductKey=key, decision="roll_back", reason="again")
        assert again == "NOT_ROLLED_BACK"
    assert backroom.notices(sku_id) == [key]
    assert isinstance(backroom.answer(sku_id, "alice"), Reserved)
    assert backroom.audit(sku_id).ok is True


def test_what_is_final_stays_as_it_is(backroom: Backroom, functions: Functions) -> None:
    sku_id = backroom.sales.open(total=4)
    landed, rolled_back = backroom.promise(sku_id, "alice", "bob")
    backroom.land(landed)
    functions.admin("resolve", preDeductKey=rolled_back, decision="roll_back", reason="a whim")
    before = backroom.ledger(sku_id).rows(), backroom.copy(sku_id).everything(), backroom.notices(sku_id)
    assert functions.refusal("resolve", preDeductKey=landed, decision="roll_back", reason="x") == "NOT_ROLLED_BACK"
    assert functions.refusal("resolve", preDeductKey=rolled_back, decision="land", reason="x") == "NOT_LANDED"
    after = backroom.ledger(sku_id).rows(), backroom.copy(sku_id).everything(), backroom.notices(sku_id)
    assert after == before


def test_what_cannot_be_done_is_refused_and_changes_nothing(backroom: Backroom, functions: Functions) -> None:
    sku_id = backroom.sales.open(total=2)
    (key,) = backroom.promise(sku_id, "alice")
    ledger = backroom.ledger(sku_id)
    ledger.run("UPDATE seckill_stock SET remaining = 0 WHERE sku_id = %(sku)s")
    for decision, code in (("land", "NOT_LANDED"), ("roll_back", "NOT_ROLLED_BACK")):
        assert functions.refusal("resolve", preDeductKey=key, decision=decision, reason="x") == code
    assert (ledger.statuses(), ledger.cap(), backroom.notices(sku_id)) == ({key: 1}, 2, [])
    ledger.run("UPDATE seckill_stock SET remaining = 2 WHERE sku_id = %(sku)s")
    with ledger.locked("SELECT * FROM seckill_pre_deduct WHERE sku_id = %(sku)s FOR UPDATE"):
        answer = functions.admin("resolve", preDeductKey=key, decision="roll_back", reason="x")
        assert (answer["error"], answer["detail"]) == ("NOT_ROLLED_BACK", "somebody is landing the row")


@pytest.mark.parametrize(
    "arguments",
    [
        {"decision": None},
        {"decision": "ROLL_BACK"},
        {"decision": ["land"]},
        {"reason": None},
        {"reason": ""},
        {"reason": "x" * 201},
        {"reason": "a\nb"},
        {"reason": 7},
        {"reason": "abandoned"},  # it says that the key was never promised, and the audit believes it
        {"preDeductKey": None},
        {"preDeductKey": ""},
        {"preDeductKey": 7},
        {"preDeductKey": "é"},
        {"preDeductKey": "x" * 37},
    ],
    ids=str,
)
def test_a_decision_that_is_none_is_refused(
    backroom: Backroom, functions: Functions, arguments: dict[str, Any]
) -> None:
    sku_id = backroom.sales.open(total=2)
    (key,) = backroom.promise(sku_id, "alice")
    asked = {"preDeductKey": key, "decision": "roll_back", "reason": "a whim", **arguments}
    assert functions.refusal("resolve", **asked) == "INVALID_REQUEST"
    assert backroom.ledger(sku_id).statuses() == {key: 1}


@pytest.mark.parametrize("decision", ["land", "roll_back"])
def test_a_key_that_the_ledger_does_not_know_cannot_be_decided(
    backroom: Backroom, functions: Functions, decision: str
) -> None:
    sku_id = backroom.sales.open(total=2)
    crashed = deducted(backroom.redis, sku_id, "alice")
    refusal = functions.refusal("resolve", preDeductKey=crashed.key, decision=decision, reason="x")
    assert refusal == "NO_SUCH_RESERVATION"
    assert (backroom.ledger(sku_id).statuses(), backroom.copy(sku_id).stock) == ({}, 1)


# -- dead letters ---------------------------------------------------------------------------------------------------


def test_a_person_sees_all_dead_letters_and_what_the_ledger_says_and_they_can_be_seen_again(
    backroom: Backroom, functions: Functions
) -> None:
    sku_id = backroom.sales.open(total=20)
    reserved, landed = backroom.promise(sku_id, "alice", "bob")
    backroom.land(landed)
    bodies = [landing_body(reserved), landing_body(landed), landing_body(UNKNOWN), "not JSON"]
    bodies += [landing_body(f"unknown-{number:02}") for number in range(10)]
    for body in bodies:
        backroom.put_letter(body)
    for _ in range(2):
        answer = functions.admin("dead_letters")
        assert answer["ok"] is True
        assert answer["deadLetters"] == {"waiting": 14, "inFlight": 0}
        shown = {letter["body"]: (letter["preDeductKey"], letter["ledger"]) for letter in answer["letters"]}
        assert len(answer["letters"]) == 14
        assert shown[landing_body(reserved)] == (reserved, "RESERVED")
        assert shown[landing_body(landed)] == (landed, "LANDED")
        assert shown[landing_body(UNKNOWN)] == (UNKNOWN, None)
        assert shown["not JSON"] == (None, None)
        assert all(letter["messageId"] for letter in answer["letters"])
    assert backroom.visible_letters() == sorted(bodies)


def test_without_dead_letters_none_is_shown(backroom: Backroom, functions: Functions) -> None:
    answer = functions.admin("dead_letters")
    assert answer == {"ok": True, "letters": [], "deadLetters": {"waiting": 0, "inFlight": 0}}


def test_a_person_discards_the_letter_of_an_unknown_key_and_no_other(backroom: Backroom, functions: Functions) -> None:
    others = [landing_body("another"), "not JSON"]
    for body in (*others, landing_body(UNKNOWN), landing_body(UNKNOWN)):
        backroom.put_letter(body)
    assert backroom.reconcile().rescue.rescued == 0
    answer = functions.admin("resolve", preDeductKey=UNKNOWN, decision="discard", reason="a test of ours")
    assert answer == {"ok": True, "preDeductKey": UNKNOWN, "decision": "discard", "ledger": None}
    assert backroom.visible_letters() == sorted(others)
    assert functions.refusal("resolve", preDeductKey=UNKNOWN, decision="discard", reason="again") == "NOT_FOUND"


def test_a_letter_that_is_no_landing_message_is_discarded_by_its_message_id(
    backroom: Backroom, functions: Functions
) -> None:
    for body in ("not JSON", landing_body(UNKNOWN)):
        backroom.put_letter(body)
    ids = {letter["body"]: letter["messageId"] for letter in functions.admin("dead_letters")["letters"]}
    assert functions.admin("resolve", preDeductKey=ids["not JSON"], decision="discard", reason="garbage")["ok"]
    assert backroom.visible_letters() == [landing_body(UNKNOWN)]


def test_the_letter_of_a_key_that_the_ledger_knows_is_not_discarded(backroom: Backroom, functions: Functions) -> None:
    sku_id = backroom.sales.open(total=2)
    (key,) = backroom.promise(sku_id, "alice")
    backroom.put_letter(landing_body(key))
    assert functions.refusal("resolve", preDeductKey=key, decision="discard", reason="x") == "INVALID_REQUEST"
    assert backroom.visible_letters() == [landing_body(key)]


def test_without_the_queue_it_is_unavailable(
    backroom: Backroom, functions: Functions, function_environment: pytest.MonkeyPatch
) -> None:
    function_environment.setenv("LANDING_DLQ_URL", f"{backroom.dead_letters_url}-gone")
    functions.new_containers()
    assert functions.refusal("dead_letters") == "UNAVAILABLE"
    assert functions.refusal("resolve", preDeductKey=UNKNOWN, decision="discard", reason="x") == "UNAVAILABLE"
