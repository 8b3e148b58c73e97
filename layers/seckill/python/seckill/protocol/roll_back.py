"""roll back: the one way from a promise to status 3, with a notice in the same transaction (docs/protocol.md 6.1)."""

import contextlib
from enum import Enum

from seckill.adapters.mysql import Database, DatabaseError, Duplicate
from seckill.adapters.redis import Redis
from seckill.domain.reservation import Reservation, Status
from seckill.protocol.abandon import release_quietly
from seckill.protocol.ledger import read_by_key, reservation_of


class RollBack(Enum):
    """How it ended."""

    ROLLED_BACK = "status 3, notice written, units given back"
    BUSY = "somebody is landing the row"
    NOT_RESERVED = "the row is final, or gone"
    ORDER_EXISTS = "there is an order: landing mends the row"
    TOO_LITTLE_REMAINS = "the stock row does not cover the units: a person must look"
    UNKNOWN = "the database did not say"


def roll_back(database: Database, redis: Redis, key: str, sku_id: int, reason: str) -> RollBack:
    """Take a promise back. Never raises for a store; whatever COMMIT answered, the row itself decides.

    The sale's lock comes first and is held for milliseconds: a row that is being landed is skipped, not waited for.
    """
    try:
        verdict, row = _transaction(database, key, sku_id, reason)
    except DatabaseError:
        verdict, row = RollBack.UNKNOWN, None
    if verdict is RollBack.UNKNOWN:
        verdict, row = _as_the_row_says(database, key)
    if verdict is RollBack.ROLLED_BACK and row:
        release_quietly(redis, row.sku_id, row.key, row.user)
    return verdict


def _transaction(database: Database, key: str, sku_id: int, reason: str) -> tuple[RollBack, Reservation | None]:
    with database.transaction():
        if database.row("abandon.lock_sale", sku_id) is None:
            return RollBack.TOO_LITTLE_REMAINS, None
        found = database.row("roll_back.lock_row", key)
        if found is None:
            return RollBack.BUSY, None
        row = reservation_of(found)
        if row.status is not Status.RESERVED:
            return RollBack.NOT_RESERVED, row
        if database.row("roll_back.order_exists", key):
            return RollBack.ORDER_EXISTS, row
        stock = database.row("roll_back.remaining", sku_id)
        if stock is None or stock["remaining"] < row.quantity:
            return RollBack.TOO_LITTLE_REMAINS, row
        database.execute("roll_back.mark_rolled_back", reason, key)
        # Whatever the row's epoch: I1 has counted its units as live until now.
        database.execute("abandon.extend_cap", row.quantity, sku_id)
        with contextlib.suppress(Duplicate):  # mended or restored data: the user has been told, once is enough
            database.execute("roll_back.insert_notice", key)
    return RollBack.ROLLED_BACK, row


def _as_the_row_says(database: Database, key: str) -> tuple[RollBack, Reservation | None]:
    try:
        row = read_by_key(database, key)
    except DatabaseError:
        return RollBack.UNKNOWN, None
    rolled_back = row is not None and row.status is Status.ROLLED_BACK
    return (RollBack.ROLLED_BACK if rolled_back else RollBack.UNKNOWN), row
