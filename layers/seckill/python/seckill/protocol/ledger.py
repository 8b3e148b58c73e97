"""Reading the ledger: what every judgement starts from (docs/protocol.md 4.5)."""

from typing import Any

from seckill.adapters.mysql import Database
from seckill.domain.reservation import Reservation, Status


def reservation_of(row: dict[str, Any]) -> Reservation:
    """The reservation in a row of the ledger."""
    return Reservation(
        key=text(row["pre_deduct_key"]),
        sku_id=row["sku_id"],
        user=text(row["user_id"]),
        quantity=row["quantity"],
        epoch=row["epoch"],
        ticket=row["ticket"],
        status=Status(row["status"]),
        reason=row["reason"],
    )


def text(column: bytes) -> str:
    """A key or a user; bytes that nobody wrote through this code are shown, not choked on."""
    return column.decode(errors="backslashreplace")


def read_by_key(database: Database, key: str) -> Reservation | None:
    """The reservation with this key, by a plain read; None when there is no row. Raises DatabaseError."""
    row = database.row("ledger.by_key", key)
    return reservation_of(row) if row else None
