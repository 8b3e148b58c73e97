"""The sale_admin function: what an operator may say, and that a refusal changes nothing."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from functions.sale_admin.handler import lambda_handler, stores
from local.lambda_context import LambdaContext
from local.servers import Servers, free_port
from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis
from seckill.domain.deadline import Deadline
from seckill.protocol.open_sale import Offer, open_sale
from tests.books import assert_books_balance
from tests.containers import context, new_containers
from tests.crowd import at_once
from tests.http_events import call, post
from tests.ledger import Ledger
from tests.redis_copy import RedisCopy, plain_client
from tests.sales import SKU_IDS, Sales, fresh_sku_id

CopyOf = Callable[[int], RedisCopy]
LedgerOf = Callable[[int], Ledger]

pytestmark = pytest.mark.usefixtures("function_environment")


def admin(action: Any, **arguments: Any) -> dict[str, Any]:
    """The function's answer, as JSON would carry it; it always says whether it is ok."""
    answer: dict[str, Any] = json.loads(json.dumps(lambda_handler({"action": action, **arguments}, context())))
    if answer["ok"] is False:
        assert list(answer) == ["ok", "error", "detail"]
        assert answer["detail"]
        assert "Traceback" not in answer["detail"]
    return answer


def refused(answer: dict[str, Any]) -> str:
    """The refusal's code."""
    assert answer["ok"] is False
    return str(answer["error"])


# -- open_sale ------------------------------------------------------------------------------------------------------


def test_an_opened_sale_is_in_both_stores_and_sells(servers: Servers, copy_of: CopyOf) -> None:
    sku_id = fresh_sku_id()
    assert admin("open_sale", skuId=sku_id, total=4, quantity=2) == {"ok": True, "skuId": sku_id, "loaded": True}
    copy = copy_of(sku_id)
    assert (copy.stock, copy.ticket, copy.epoch, copy.holds(), copy.buyers()) == (4, 0, 1, {}, {})
    assert copy.client.sismember("seckill:catalogue", str(sku_id))
    assert call(post(sku_id)).body["quantity"] == 2
    assert_books_balance(servers.database_url, sku_id)


def test_opening_a_sale_twice_changes_nothing(copy_of: CopyOf, ledger_of: LedgerOf) -> None:
    sku_id = fresh_sku_id()
    arguments = {
        "skuId": sku_id,
        "total": 3,
        "opensAt": "2026-01-01T00:00:00Z",
        "closesAt": "2100-01-01T00:00:00+08:00",
    }
    admin("open_sale", **arguments)
    call(post(sku_id))
    before = (
        copy_of(sku_id).everything(),
        ledger_of(sku_id).select("SELECT * FROM seckill_sale WHERE sku_id = %(sku)s"),
    )
    assert admin("open_sale", **arguments) == {"ok": True, "skuId": sku_id, "loaded": True}
    # The same moment, said in another way.
    arguments["opensAt"] = "2026-01-01T08:00:00+08:00"
    assert admin("open_sale", **arguments)["ok"]
    assert before == (
        copy_of(sku_id).everything(),
        ledger_of(sku_id).select("SELECT * FROM seckill_sale WHERE sku_id = %(sku)s"),
    )


@pytest.mark.parametrize(
    "change",
    [{"total": 5}, {"total": 0}, {"quantity": 2}, {"opensAt": "2026-01-01T00:00:01Z"}, {"closesAt": None}],
)
def test_opening_a_sale_with_other_arguments_is_refused(
    copy_of: CopyOf, ledger_of: LedgerOf, change: dict[str, Any]
) -> None:
    sku_id = fresh_sku_id()
    arguments = {"skuId": sku_id, "total": 4, "opensAt": "2026-01-01T00:00:00Z", "closesAt": "2100-01-01T00:00:00Z"}
    admin("open_sale", **arguments)
    before = copy_of(sku_id).everything()
    assert refused(admin("open_sale", **{**arguments, **change})) == "ALREADY_OPEN"
    assert copy_of(sku_id).everything() == before
    assert ledger_of(sku_id).remaining() == 4


def test_opening_a_sale_from_many_places_at_once_opens_it_once(
    servers: Servers, database: Database, redis: Redis, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    offer = Offer(fresh_sku_id(), total=3)

    def open_elsewhere() -> bool:
        own_database, own_redis = Database(servers.database_url), Redis(servers.redis_url)
        own_redis.deadline = deadline = Deadline(seconds=30, longest_wait=10)
        own_database.new_call(deadline)
        return open_sale(own_database, own_redis, offer)

    assert any(at_once([open_elsewhere] * 8))
    assert open_sale(database, redis, offer), "if the last load was outrun, this call sees to it"
    assert ledger_of(offer.sku_id).select("SELECT total, remaining FROM seckill_stock WHERE sku_id = %(sku)s") == [
        (3, 3)
    ]
    assert copy_of(offer.sku_id).stock == 3
    assert call(post(offer.sku_id)).status == 202
    assert_books_balance(servers.database_url, offer.sku_id)


def test_opening_again_brings_back_a_copy_that_redis_lost(copy_of: CopyOf, ledger_of: LedgerOf) -> None:
    sku_id = fresh_sku_id()
    admin("open_sale", skuId=sku_id, total=3)
    key = call(post(sku_id)).body["preDeductKey"]
    copy = copy_of(sku_id)
    copy.client.delete(copy.sale_key, copy.held_key, copy.buyers_key)
    assert call(post(sku_id, "bob")).status == 503
    assert admin("open_sale", skuId=sku_id, total=3)["loaded"] is True
    assert (copy.stock, copy.epoch, copy.buyers()) == (2, 2, {"alice": key})
    assert list(copy.holds()) == [key]
    assert call(post(sku_id, "alice")).body["preDeductKey"] == key
    assert call(post(sku_id, "bob")).status == 202


def test_an_epoch_left_over_in_redis_is_outrun(copy_of: CopyOf) -> None:
    sku_id = fresh_sku_id()
    copy = copy_of(sku_id)
    copy.set(epoch=41, state="open", stock=99, ticket=0, quantity=1, opens_at="", closes_at="")
    assert admin("open_sale", skuId=sku_id, total=3)["loaded"] is True
    assert (copy.epoch, copy.stock) == (42, 3)


@pytest.mark.parametrize("rubbish", ["string", "list", "not a number", "far ahead", "enormous"])
def test_rubbish_under_the_keys_of_a_sale_is_replaced(copy_of: CopyOf, rubbish: str) -> None:
    sku_id = fresh_sku_id()
    copy = copy_of(sku_id)
    for key in (copy.sale_key, copy.held_key, copy.buyers_key):
        if rubbish == "string":
            copy.client.set(key, "x")
        elif rubbish == "list":
            copy.client.rpush(key, "x")
    if rubbish == "not a number":
        copy.set(epoch="one")
    elif rubbish == "far ahead":
        copy.set(epoch=9_007_199_254_740_992)
    elif rubbish == "enormous":
        copy.set(epoch="9" * 5_000)
    assert admin("open_sale", skuId=sku_id, total=3)["loaded"] is True
    assert call(post(sku_id)).status == 202
    assert copy.stock == 2


def test_a_sale_of_nothing_can_be_opened() -> None:
    sku_id = fresh_sku_id()
    assert admin("open_sale", skuId=sku_id, total=0)["loaded"] is True
    assert call(post(sku_id)).code == "SOLD_OUT"


GOOD = {"total": 4, "quantity": 2, "opensAt": "2026-01-01T00:00:00Z", "closesAt": "2100-01-01T00:00:00Z"}
BAD = [
    {"skuId": None}, {"skuId": "1001"}, {"skuId": 0}, {"skuId": -1}, {"skuId": 2**63}, {"skuId": 1.5}, {"skuId": True},
    {"total": None}, {"total": -1}, {"total": "4"}, {"total": 4.0}, {"total": True}, {"total": 2**53 + 2}, {"total": 3},
    {"quantity": 0}, {"quantity": -2}, {"quantity": "2"}, {"quantity": 2.0}, {"quantity": None}, {"quantity": 10**9},
    {"quantity": True}, {"quantity": 1, "total": True},
    {"opensAt": "2026-01-01T00:00:00"}, {"opensAt": "2026-01-01"}, {"opensAt": "tomorrow"}, {"opensAt": 1767225600},
    {"opensAt": ""}, {"opensAt": ["2026-01-01T00:00:00Z"]}, {"opensAt": "2100-01-01T00:00:00Z"},
    {"closesAt": GOOD["opensAt"]}, {"closesAt": "2026-01-01T08:00:00+08:00"}, {"closesAt": "2025-01-01T00:00:00Z"},
    {"opensAt": "1969-12-31T00:00:00Z"}, {"closesAt": "9999-13-01T00:00:00Z"},
]  # fmt: skip


@pytest.mark.parametrize("change", BAD, ids=str)
def test_an_invalid_offer_is_refused_and_changes_nothing(servers: Servers, change: dict[str, Any]) -> None:
    sku_id = fresh_sku_id()
    arguments = {"skuId": sku_id, **GOOD, **change}
    before = everything(servers)
    assert refused(admin("open_sale", **arguments)) == "INVALID_REQUEST"
    assert everything(servers) == before


def everything(servers: Servers) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], set[str]]:
    """This process's sales, their stock, and which of them are on offer; other processes may share the servers."""
    ledger = Ledger(servers.database_url, sku_id=0)
    first, last = SKU_IDS.start, SKU_IDS.stop - 1
    offered = plain_client(servers.redis_url).smembers("seckill:catalogue")
    return (
        ledger.select(f"SELECT * FROM seckill_sale WHERE sku_id BETWEEN {first} AND {last} ORDER BY sku_id"),
        ledger.select(f"SELECT * FROM seckill_stock WHERE sku_id BETWEEN {first} AND {last} ORDER BY sku_id"),
        {sku for sku in offered if sku.isdecimal() and int(sku) in SKU_IDS},
    )


def test_missing_arguments_are_refused(servers: Servers) -> None:
    before = everything(servers)
    for arguments in ({}, {"skuId": fresh_sku_id()}, {"total": 3}):
        assert refused(admin("open_sale", **arguments)) == "INVALID_REQUEST"
    assert everything(servers) == before


def test_without_redis_no_sale_is_opened_and_without_the_database_neither(
    servers: Servers, function_environment: pytest.MonkeyPatch
) -> None:
    before = everything(servers)
    function_environment.setenv("REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")
    new_containers()
    assert refused(admin("open_sale", skuId=fresh_sku_id(), total=3)) == "UNAVAILABLE"
    function_environment.setenv("REDIS_URL", servers.redis_url)
    function_environment.setenv("DATABASE_URL", f"mysql://root@127.0.0.1:{free_port()}/seckill")
    new_containers()
    assert refused(admin("open_sale", skuId=fresh_sku_id(), total=3)) == "UNAVAILABLE"
    assert everything(servers) == before


def test_a_sale_whose_stock_row_cannot_be_written_is_not_there_at_all(servers: Servers, ledger_of: LedgerOf) -> None:
    sku_id = fresh_sku_id()
    before = everything(servers)
    with ledger_of(sku_id).refusing("seckill_stock", "TRUE"):
        assert refused(admin("open_sale", skuId=sku_id, total=3)) == "UNAVAILABLE"
    assert everything(servers) == before
    assert admin("open_sale", skuId=sku_id, total=3)["loaded"] is True


# -- status and list_sales ------------------------------------------------------------------------------------------


def test_status_shows_the_accounts_of_both_stores(sales: Sales, ledger_of: LedgerOf) -> None:
    opens_at = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    sku_id = sales.open(total=10, quantity=2, opens_at=opens_at)
    keys = [call(post(sku_id, user)).body["preDeductKey"] for user in ("alice", "bob", "carol")]
    ledger_of(sku_id).roll_back(keys[2])
    assert admin("status", skuId=sku_id) == {
        "ok": True,
        "skuId": sku_id,
        "state": "open",
        "quantity": 2,
        "opensAt": "2026-01-01T00:00:00+00:00",
        "closesAt": None,
        "epoch": 1,
        "cap": 12,
        "total": 10,
        "remaining": 10,
        "ledger": {"reserved": 4, "landed": 0, "rolledBack": 2},
        "orders": 0,
        "redis": {"epoch": 1, "stock": 4, "ticket": 6, "holds": 3},
    }


def test_status_shows_no_redis_account_where_there_is_no_whole_copy(
    sales: Sales, copy_of: CopyOf, function_environment: pytest.MonkeyPatch
) -> None:
    sku_id = sales.open(total=10)
    copy_of(sku_id).set(stock="many")
    assert admin("status", skuId=sku_id)["redis"] is None
    function_environment.setenv("REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")
    new_containers()
    assert admin("status", skuId=sku_id)["redis"] is None


def test_status_of_an_unknown_sale_is_refused() -> None:
    assert refused(admin("status", skuId=fresh_sku_id())) == "NO_SUCH_SALE"
    assert refused(admin("status", skuId="1001")) == "INVALID_REQUEST"
    assert refused(admin("status")) == "INVALID_REQUEST"


def test_list_sales_shows_every_sale(sales: Sales) -> None:
    mine = {sales.open(total=3): 3, sales.open(total=0): 0}
    listed = admin("list_sales")
    assert listed["ok"]
    shown = {sale["skuId"]: sale for sale in listed["sales"]}
    for sku_id, total in mine.items():
        assert shown[sku_id] == {
            "skuId": sku_id,
            "state": "open",
            "quantity": 1,
            "opensAt": None,
            "closesAt": None,
            "total": total,
            "remaining": total,
        }


# -- every action ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [None, "", "drop_tables", "OPEN_SALE", 7, ["open_sale"], {"open": "sale"}])
def test_an_unknown_action_is_refused(action: Any) -> None:
    assert refused(admin(action, skuId=1)) == "INVALID_REQUEST"


def test_an_event_without_an_action_is_refused() -> None:
    assert lambda_handler({}, context())["error"] == "INVALID_REQUEST"


@pytest.mark.parametrize(("action", "seconds"), [("migrate", 295), ("list_sales", 25)])
def test_a_migration_may_use_what_the_platform_grants_and_an_operator_waits_less(action: str, seconds: float) -> None:
    granted = LambdaContext.starting_now("sale_admin", "eu-west-1", timeout_seconds=300)
    assert lambda_handler({"action": action}, granted)["ok"]
    assert stores().migrator.deadline.seconds == pytest.approx(seconds, abs=1)


def test_migrating_again_applies_nothing(servers: Servers) -> None:
    before = everything(servers)
    answer = admin("migrate")
    assert (answer["ok"], answer["applied"]) == (True, [])
    assert answer["version"] >= 1
    assert everything(servers) == before
