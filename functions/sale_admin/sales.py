"""Actions on sales: each reads its arguments, calls the protocol and forms the answer."""

from typing import Any

from functions.sale_admin.arguments import (
    Arguments,
    Refusal,
    ascii_in,
    sku_id_in,
    time_in,
    whole_number_in,
)
from functions.sale_admin.stores import Stores
from seckill.adapters.mysql import Row
from seckill.adapters.redis import RedisError
from seckill.domain.sale import LARGEST_EXACT_INTEGER, iso_time
from seckill.protocol.app_user import grant_app_user
from seckill.protocol.change_sale import archive_sale, close_sale, reopen_sale, top_up
from seckill.protocol.migrate import MigrationBusy, migrate
from seckill.protocol.open_sale import AlreadyOpen, Offer, open_sale
from seckill.protocol.rebuild import Rebuilt, rebuild

# INT in the database, and far above any sale's units per buyer.
LARGEST_QUANTITY = 1_000_000
LONGEST_OPERATION_ID = 64

Answer = dict[str, Any]


def run_migrate(stores: Stores, arguments: Arguments) -> Answer:
    """Bring the schema to this version, and let the functions' user use its tables."""
    try:
        migrated = migrate(stores.migrator)
        if stores.app_user:
            grant_app_user(stores.migrator, stores.app_user)
    except MigrationBusy as error:
        raise Refusal("MIGRATION_RUNNING", str(error)) from None
    return {"version": migrated.version, "applied": migrated.applied, "warnings": migrated.warnings}


def run_open_sale(stores: Stores, arguments: Arguments) -> Answer:
    """Put a SKU on offer; `loaded` tells whether Redis has it already."""
    try:
        offer = Offer(
            sku_id=sku_id_in(arguments),
            total=whole_number_in(arguments, "total", 0, LARGEST_EXACT_INTEGER),
            quantity=whole_number_in(arguments, "quantity", 1, LARGEST_QUANTITY, default=1),
            opens_at=time_in(arguments, "opensAt"),
            closes_at=time_in(arguments, "closesAt"),
        )
    except ValueError as error:
        raise Refusal("INVALID_REQUEST", str(error)) from None
    try:
        loaded = open_sale(stores.database, stores.redis, offer)
    except AlreadyOpen as error:
        raise Refusal("ALREADY_OPEN", str(error)) from None
    return {"skuId": offer.sku_id, "loaded": loaded}


def run_top_up(stores: Stores, arguments: Arguments) -> Answer:
    """Add units, once per operationId."""
    sku_id = sku_id_in(arguments)
    units = whole_number_in(arguments, "units", 1, LARGEST_EXACT_INTEGER)
    operation_id = ascii_in(arguments, "operationId", LONGEST_OPERATION_ID)
    loaded = top_up(stores.database, stores.redis, sku_id, units, operation_id)
    return {"skuId": sku_id, "units": units, "operationId": operation_id, "loaded": loaded}


def run_close_sale(stores: Stores, arguments: Arguments) -> Answer:
    """No new reservations; the promised ones land."""
    sku_id = sku_id_in(arguments)
    return {"skuId": sku_id, "loaded": close_sale(stores.database, stores.redis, sku_id)}


def run_reopen_sale(stores: Stores, arguments: Arguments) -> Answer:
    """Open a closed sale again."""
    sku_id, closes_at = sku_id_in(arguments), time_in(arguments, "closesAt")
    return {"skuId": sku_id, "loaded": reopen_sale(stores.database, stores.redis, sku_id, closes_at)}


def run_archive_sale(stores: Stores, arguments: Arguments) -> Answer:
    """Forget a closed sale with nothing pending."""
    sku_id = sku_id_in(arguments)
    archive_sale(stores.database, stores.redis, sku_id)
    return {"skuId": sku_id}


def run_rebuild(stores: Stores, arguments: Arguments) -> Answer:
    """A new epoch, and Redis loaded with it, whenever asked."""
    sku_id = sku_id_in(arguments)
    outcome = rebuild(stores.database, stores.redis, sku_id, automatic=False)
    if outcome is Rebuilt.NO_SUCH_SALE:
        raise Refusal("NO_SUCH_SALE", f"there is no sale of SKU {sku_id}")
    if outcome is Rebuilt.PROMISED_TOO_MUCH:
        raise Refusal("BOOKS_BROKEN", outcome.value)
    return {"skuId": sku_id, "loaded": outcome is Rebuilt.LOADED}


def run_status(stores: Stores, arguments: Arguments) -> Answer:
    """The accounts of one sale: MySQL's at one moment, Redis's at another (null while it has no whole copy)."""
    sku_id = sku_id_in(arguments)
    accounts = stores.database.row("sale.accounts", sku_id)
    if accounts is None:
        raise Refusal("NO_SUCH_SALE", f"there is no sale of SKU {sku_id}")
    return {
        **_sale(accounts),
        "epoch": accounts["epoch"],
        "cap": accounts["cap"],
        "total": accounts["total"],
        "remaining": accounts["remaining"],
        "ledger": {
            "reserved": int(accounts["reserved"]),
            "landed": int(accounts["landed"]),
            "rolledBack": int(accounts["rolled_back"]),
        },
        "orders": int(accounts["ordered"]),
        "redis": _redis_accounts(stores, sku_id),
    }


def run_list_sales(stores: Stores, arguments: Arguments) -> Answer:
    """All sales there have been."""
    sales = stores.database.rows("sale.list")
    return {"sales": [{**_sale(row), "total": row["total"], "remaining": row["remaining"]} for row in sales]}


def _sale(row: Row) -> Answer:
    return {
        "skuId": row["sku_id"],
        "state": row["state"],
        "quantity": row["quantity"],
        "opensAt": iso_time(row["opens_at"]),
        "closesAt": iso_time(row["closes_at"]),
    }


def _redis_accounts(stores: Stores, sku_id: int) -> Answer | None:
    try:
        snapshot = stores.redis.snapshot(sku_id, most_holds=0)
    except RedisError:
        return None
    if snapshot is None:
        return None
    sale = snapshot.sale
    return {"epoch": sale.epoch, "stock": sale.stock, "ticket": sale.ticket, "holds": snapshot.hold_count}
