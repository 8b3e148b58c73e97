"""sale_admin's timeline: what the books remember of one reservation, and since when."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from functions.sale_admin.handler import lambda_handler
from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis
from seckill.protocol.land import land
from seckill.protocol.reserve import Reserve
from tests.containers import context, until_known
from tests.sales import Sales

pytestmark = pytest.mark.usefixtures("function_environment")

# The servers run on this machine's clock; rounding to milliseconds and a busy machine take some of it.
CLOCK_SLACK = timedelta(seconds=5)


def timeline(key: Any) -> dict[str, Any]:
    return lambda_handler({"action": "timeline", "preDeductKey": key}, context())


def reserved(reserve: Reserve, sku_id: int) -> str:
    key = until_known(reserve, sku_id, "alice").key
    assert key
    return key


def assert_just_now(text: str) -> None:
    """A time with an offset, some seconds ago at most."""
    assert abs(datetime.fromisoformat(text) - datetime.now(UTC)) < CLOCK_SLACK


def test_a_landed_reservation_has_its_row_and_its_order(
    reserve: Reserve, sales: Sales, database: Database, redis: Redis
) -> None:
    sku_id = sales.open(4, quantity=2)
    key = reserved(reserve, sku_id)
    land(database, redis, [key], lambda name: None)
    answer = timeline(key)
    ledger, order = answer["ledger"], answer["order"]
    assert (answer["ok"], answer["preDeductKey"], answer["notice"]) == (True, key, None)
    assert (ledger["skuId"], ledger["quantity"], ledger["epoch"], ledger["ticket"]) == (sku_id, 2, 1, 2)
    assert (ledger["status"], ledger["reason"], ledger["retryCount"]) == ("LANDED", None, 0)
    assert (order["skuId"], order["quantity"]) == (sku_id, 2)
    for moment in (ledger["createdAt"], ledger["updatedAt"], order["createdAt"]):
        assert_just_now(moment)
    assert ledger["createdAt"] <= order["createdAt"] <= ledger["updatedAt"]


def test_a_rolled_back_reservation_has_its_row_and_its_notice(reserve: Reserve, sales: Sales) -> None:
    sku_id = sales.open(4)
    key = reserved(reserve, sku_id)
    decision = {"action": "resolve", "preDeductKey": key, "decision": "roll_back", "reason": "lost parcel"}
    assert lambda_handler(decision, context())["ok"]
    answer = timeline(key)
    ledger, notice = answer["ledger"], answer["notice"]
    assert (ledger["status"], ledger["reason"], answer["order"]) == ("ROLLED_BACK", "lost parcel", None)
    assert (notice["skuId"], notice["reason"], notice["sentAt"]) == (sku_id, "lost parcel", None)
    assert_just_now(notice["createdAt"])


def test_of_a_key_that_nobody_wrote_the_books_remember_nothing() -> None:
    assert timeline("no-such-key") == {
        "ok": True,
        "preDeductKey": "no-such-key",
        "ledger": None,
        "order": None,
        "notice": None,
    }


@pytest.mark.parametrize("key", [None, 7, "", "k" * 300, "Schlüssel", "a\nb"])
def test_what_is_no_key_is_refused(key: Any) -> None:
    assert timeline(key)["error"] == "INVALID_REQUEST"
