"""The timeline of one reservation: what the ledger, the orders and the outbox remember of it, and since when."""

from datetime import UTC, datetime
from typing import Any

from functions.sale_admin.arguments import Arguments, ascii_in
from functions.sale_admin.stores import Stores
from seckill.adapters.mysql import Row
from seckill.domain.landing_message import LONGEST_KEY
from seckill.domain.reservation import Status

Answer = dict[str, Any]


def run_timeline(stores: Stores, arguments: Arguments) -> Answer:
    """Everything under this key at one moment; each of the three is null when it has nothing. Changes nothing."""
    key = ascii_in(arguments, "preDeductKey", LONGEST_KEY)
    with stores.database.consistent_read() as reader:
        ledger = reader.row("timeline.ledger", key)
        order = reader.row("timeline.order", key)
        notice = reader.row("timeline.notice", key)
    return {
        "preDeductKey": key,
        "ledger": ledger and _ledger(ledger),
        "order": order
        and {
            "orderId": order["order_id"],
            "skuId": order["sku_id"],
            "quantity": order["quantity"],
            "createdAt": _iso(order["created_at"]),
        },
        "notice": notice
        and {
            "skuId": notice["sku_id"],
            "reason": notice["reason"],
            "createdAt": _iso(notice["created_at"]),
            "sentAt": _iso(notice["sent_at"]),
        },
    }


def _ledger(row: Row) -> Answer:
    return {
        "skuId": row["sku_id"],
        "quantity": row["quantity"],
        "epoch": row["epoch"],
        "ticket": row["ticket"],
        "status": Status(row["status"]).name,
        "reason": row["reason"],
        "retryCount": row["retry_count"],
        "createdAt": _iso(row["created_at"]),
        "updatedAt": _iso(row["updated_at"]),
    }


def _iso(moment: datetime | None) -> str | None:
    """A time of the database's, which are in UTC."""
    return moment.replace(tzinfo=UTC).isoformat(timespec="milliseconds") if moment else None
