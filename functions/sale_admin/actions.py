"""The actions of sale_admin: each reads its arguments, calls the protocol and forms the answer."""

from collections.abc import Callable
from typing import Any

from seckill.adapters.mysql import Database, Row
from seckill.adapters.redis import Redis, RedisError
from seckill.domain.sale import LARGEST_EXACT_INTEGER, iso_time, parse_sku_id, parse_time
from seckill.protocol.migrate import MigrationBusy, migrate
from seckill.protocol.open_sale import AlreadyOpen, Offer, open_sale

# INT in the database, and far above any sale's units per buyer.
LARGEST_QUANTITY = 1_000_000

Arguments = dict[str, Any]


class Refusal(Exception):
    """The action is refused and nothing has changed; `code` is the contract's word."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


def run_migrate(database: Database, redis: Redis, arguments: Arguments) -> dict[str, Any]:
    """Bring the schema to this version."""
    try:
        migrated = migrate(database)
    except MigrationBusy as error:
        raise Refusal("MIGRATION_RUNNING", str(error)) from None
    return {"version": migrated.version, "applied": migrated.applied, "warnings": migrated.warnings}


def run_open_sale(database: Database, redis: Redis, arguments: Arguments) -> dict[str, Any]:
    """Put a SKU on offer; `loaded` tells whether Redis has it already."""
    try:
        offer = Offer(
            sku_id=_sku_id(arguments),
            total=_whole_number(arguments, "total", 0, LARGEST_EXACT_INTEGER),
            quantity=_whole_number(arguments, "quantity", 1, LARGEST_QUANTITY, default=1),
            opens_at=_time(arguments, "opensAt"),
            closes_at=_time(arguments, "closesAt"),
        )
    except ValueError as error:
        raise Refusal("INVALID_REQUEST", str(error)) from None
    try:
        loaded = open_sale(database, redis, offer)
    except AlreadyOpen as error:
        raise Refusal("ALREADY_OPEN", str(error)) from None
    return {"skuId": offer.sku_id, "loaded": loaded}


def run_status(database: Database, redis: Redis, arguments: Arguments) -> dict[str, Any]:
    """The accounts of one sale: MySQL's at one moment, Redis's at another (null while it has no whole copy)."""
    sku_id = _sku_id(arguments)
    accounts = database.row("sale.accounts", sku_id)
    if accounts is None:
        raise Refusal("NO_SUCH_SALE", f"there is no sale of SKU {sku_id}")
    return {
        **_sale(accounts),
        "epoch": accounts["epoch"],
        "cap": accounts["cap"],
        "total": accounts["total"],
        "remaining": accounts["remaining"],
        "ledger": {name: int(accounts[column]) for name, column in LEDGER_COLUMNS.items()},
        "orders": int(accounts["ordered"]),
        "redis": _redis_accounts(redis, sku_id),
    }


def run_list_sales(database: Database, redis: Redis, arguments: Arguments) -> dict[str, Any]:
    """All sales there have been."""
    sales = database.rows("sale.list")
    return {"sales": [{**_sale(row), "total": row["total"], "remaining": row["remaining"]} for row in sales]}


ACTIONS: dict[str, Callable[[Database, Redis, Arguments], dict[str, Any]]] = {
    "migrate": run_migrate,
    "open_sale": run_open_sale,
    "status": run_status,
    "list_sales": run_list_sales,
}

LEDGER_COLUMNS = {"reserved": "reserved", "landed": "landed", "rolledBack": "rolled_back"}


def _sale(row: Row) -> dict[str, Any]:
    return {
        "skuId": row["sku_id"],
        "state": row["state"],
        "quantity": row["quantity"],
        "opensAt": iso_time(row["opens_at"]),
        "closesAt": iso_time(row["closes_at"]),
    }


def _redis_accounts(redis: Redis, sku_id: int) -> dict[str, Any] | None:
    try:
        snapshot = redis.snapshot(sku_id, most_holds=0)
    except RedisError:
        return None
    if snapshot is None:
        return None
    sale = snapshot.sale
    return {"epoch": sale.epoch, "stock": sale.stock, "ticket": sale.ticket, "holds": snapshot.hold_count}


# -- arguments ------------------------------------------------------------------------------------------------------


def _sku_id(arguments: Arguments) -> int:
    try:
        return parse_sku_id(str(_whole_number(arguments, "skuId", 1, 2**63 - 1)))
    except ValueError as error:
        raise Refusal("INVALID_REQUEST", str(error)) from None


def _whole_number(arguments: Arguments, name: str, least: int, most: int, default: int | None = None) -> int:
    value = arguments.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Refusal("INVALID_REQUEST", f"{name} must be a whole number from {least} to {most}")
    return value


def _time(arguments: Arguments, name: str) -> int | None:
    text = arguments.get(name)
    if text is None:
        return None
    try:
        return parse_time(text)
    except (TypeError, ValueError):
        raise Refusal("INVALID_REQUEST", f"{name} must be an ISO 8601 time with an offset") from None
