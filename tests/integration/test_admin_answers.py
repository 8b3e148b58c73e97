"""sale_admin answers whatever it is asked: odd events are refused, and what one store cannot tell is left open."""

from typing import Any

import pytest

from functions.sale_admin.handler import lambda_handler
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
