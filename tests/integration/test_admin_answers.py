"""sale_admin answers whatever it is asked: odd events are refused, and what one store cannot tell is left open."""

import io
import json
from typing import Any

import pytest

from functions.sale_admin.handler import lambda_handler, logger
from tests.backroom import Backroom, Functions

pytest_plugins = ["tests.backroom_fixtures"]


@pytest.mark.parametrize("event", [[], ["migrate"], "migrate", "", None, 7, True], ids=repr)
def test_an_event_that_is_no_object_is_refused(functions: Functions, event: Any) -> None:
    answer = lambda_handler(event, functions.context())
    assert (answer["ok"], answer["error"]) == (False, "INVALID_REQUEST")


@pytest.mark.parametrize("gone", ["LANDING_QUEUE_URL", "LANDING_DLQ_URL"])
def test_an_audit_shows_the_books_although_a_queue_is_away(
    backroom: Backroom, functions: Functions, function_environment: pytest.MonkeyPatch, gone: str
) -> None:
    sku_id = backroom.sales.open(total=2)
    function_environment.setenv(gone, f"{backroom.landing_url}-gone")
    functions.new_containers()
    answer = functions.admin("audit")
    assert [(audit["skuId"], audit["ok"]) for audit in answer["audits"]] == [(sku_id, True)]
    empty = {"waiting": 0, "inFlight": 0}
    known = {"queueDepth": empty, "deadLetters": empty}
    unknown = "queueDepth" if gone == "LANDING_QUEUE_URL" else "deadLetters"
    assert {name: answer[name] for name in known} == known | {unknown: None}


@pytest.mark.parametrize("decision", ["land", "roll_back", "discard"])
def test_the_line_about_a_decision_names_the_sale_and_the_call(
    backroom: Backroom, functions: Functions, monkeypatch: pytest.MonkeyPatch, decision: str
) -> None:
    sku_id = backroom.sales.open(total=2)
    (key,) = backroom.promise(sku_id, "alice")
    output = io.StringIO()
    monkeypatch.setattr(logger.registered_handler, "stream", output)
    calls = [functions.context() for _ in range(2)]
    asked = {"action": "resolve", "preDeductKey": key, "decision": decision, "reason": "a whim"}
    lambda_handler(asked, calls[0])  # a decision that is refused is logged as well: nobody discards a known key
    lambda_handler({"action": "list_sales"}, calls[1])
    resolved, listed = (json.loads(line) for line in output.getvalue().splitlines())
    assert (resolved["pre_deduct_key"], resolved["sku_id"]) == (key, sku_id)
    assert resolved["correlation_id"] == calls[0].aws_request_id
    assert listed["correlation_id"] == calls[1].aws_request_id
    assert "sku_id" not in listed, "nothing of an earlier call is in a line"
