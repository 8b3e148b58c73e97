"""top up, close, open again, archive: rebuilds whose first transaction also changes the sale (docs/protocol.md 6.5)."""

from collections.abc import Callable

from seckill.adapters.mysql import Database, Duplicate, Row
from seckill.adapters.redis import Redis
from seckill.domain.sale import LARGEST_EXACT_INTEGER
from seckill.protocol.rebuild import Rebuilt, rebuild

OPERATION_ID_REUSED = "this operationId was used for another top-up"


class NoSuchSale(Exception):
    """The SKU is not on offer: never opened, or archived."""


class Refused(Exception):
    """The change is refused and nothing has changed; `code` is the contract's word."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


def top_up(database: Database, redis: Redis, sku_id: int, units: int, operation_id: str) -> bool:
    """Add units to total and remaining, once per operation_id; whether Redis has them.

    Never by raising live stock in Redis: a rebuild in between would count them twice (docs/protocol.md 7, O9). Raises
    NoSuchSale, Refused, RedisError, DatabaseError.
    """

    def change(sale: Row) -> None:
        if units % sale["quantity"]:
            raise Refused("INVALID_REQUEST", f"units must be a multiple of the sale's quantity {sale['quantity']}")
        if _topped_up(database, sku_id, units, operation_id):
            raise _NothingToChange
        try:
            database.execute("change_sale.insert_top_up", operation_id, sku_id, units)
        except Duplicate:  # taken by another sale's top-up since
            raise Refused("OPERATION_ID_REUSED", OPERATION_ID_REUSED) from None
        if database.execute("change_sale.add_stock", units=units, sku_id=sku_id, most=LARGEST_EXACT_INTEGER) != 1:
            raise Refused("INVALID_REQUEST", f"a sale has at most {LARGEST_EXACT_INTEGER} units")

    return _change(database, redis, sku_id, change)


def close_sale(database: Database, redis: Redis, sku_id: int) -> bool:
    """No new reservations; those that were promised land. Closing twice changes nothing. Raises as top_up."""

    def change(_: Row) -> None:
        if database.execute("change_sale.close", sku_id) != 1:
            raise _NothingToChange

    return _change(database, redis, sku_id, change)


def reopen_sale(database: Database, redis: Redis, sku_id: int, closes_at: int | None) -> bool:
    """Open a closed sale again, or keep an open one open, until `closes_at` (milliseconds since 1970) when given.

    Raises as top_up.
    """

    def change(sale: Row) -> None:
        if closes_at is not None and sale["opens_at"] is not None and closes_at <= sale["opens_at"]:
            raise Refused("INVALID_REQUEST", "closesAt must be later than opensAt")
        if closes_at is not None and _has_passed(database, closes_at):
            raise Refused("INVALID_REQUEST", "closesAt has passed")
        if database.execute("change_sale.reopen", sku_id=sku_id, closes_at=closes_at) != 1:
            raise _NothingToChange

    return _change(database, redis, sku_id, change)


def archive_sale(database: Database, redis: Redis, sku_id: int) -> None:
    """Forget a closed sale with nothing pending: its Redis keys go, sweeps leave it out, the ledger stays."""
    with database.transaction():
        sale = database.row("abandon.lock_sale", sku_id)
        if sale is None:
            raise NoSuchSale(f"there is no sale of SKU {sku_id}")
        if sale["state"] != "archived":
            pending = database.row("change_sale.pending", sku_id)
            if sale["state"] != "closed" or pending is None or pending["row_count"]:
                raise Refused("NOT_ARCHIVABLE", "only a closed sale with nothing pending can be archived")
            database.execute("change_sale.archive", sku_id)
    redis.remove(sku_id)


class _NothingToChange(Exception):
    """The sale is already as wanted."""


def _change(database: Database, redis: Redis, sku_id: int, change: Callable[[Row], None]) -> bool:
    try:
        result = rebuild(database, redis, sku_id, automatic=False, change=change)
    except _NothingToChange:
        result = rebuild(database, redis, sku_id)  # only when Redis is behind
    if result is Rebuilt.NO_SUCH_SALE:
        raise NoSuchSale(f"SKU {sku_id} is not on offer")
    if result is Rebuilt.PROMISED_TOO_MUCH:
        raise Refused("BOOKS_BROKEN", "more is pending than remains: mend the rows, then rebuild")
    return result in (Rebuilt.LOADED, Rebuilt.NOT_NEEDED)


def _has_passed(database: Database, milliseconds: int) -> bool:
    """By the database's clock, which also closes sales."""
    row = database.row("change_sale.has_passed", milliseconds)
    return row is not None and bool(row["has_passed"])


def _topped_up(database: Database, sku_id: int, units: int, operation_id: str) -> bool:
    """Whether this very top-up has been done; Refused when the id was used for another."""
    done = database.row("change_sale.top_up", operation_id)
    if done is None:
        return False
    if (done["sku_id"], done["units"]) != (sku_id, units):
        raise Refused("OPERATION_ID_REUSED", OPERATION_ID_REUSED)
    return True
