"""open_sale: put a SKU on offer, in MySQL and then in Redis (docs/protocol.md 6.5)."""

from dataclasses import dataclass

from seckill.adapters.mysql import CommitUnknown, Database, DatabaseError, Duplicate, Row
from seckill.adapters.redis import Redis, RedisError
from seckill.domain.sale import next_epoch
from seckill.protocol.audit import books_are_broken
from seckill.protocol.rebuild import Rebuilt, load_copy, rebuild


@dataclass(frozen=True, slots=True)
class Offer:
    """What is put on offer; times in milliseconds since 1970."""

    sku_id: int
    total: int
    quantity: int = 1
    opens_at: int | None = None
    closes_at: int | None = None

    def __post_init__(self) -> None:
        if self.quantity < 1:
            raise ValueError("quantity is a whole number, at least 1")
        if self.total < 0 or self.total % self.quantity:
            raise ValueError("total is a multiple of quantity, at least 0")
        if any(time is not None and time < 0 for time in (self.opens_at, self.closes_at)):
            raise ValueError("a sale opens and closes after 1970")
        if self.opens_at is not None and self.closes_at is not None and self.closes_at <= self.opens_at:
            raise ValueError("closesAt must be later than opensAt")


class AlreadyOpen(Exception):
    """The SKU is or was on offer with other arguments, or it is archived."""


def open_sale(database: Database, redis: Redis, offer: Offer) -> bool:
    """Open the sale; whether Redis has it (if not, the next beat loads it). The same call again changes nothing and
    reloads a missing copy. Raises AlreadyOpen, RedisError and DatabaseError.
    """
    known = database.row("sale.as_opened", offer.sku_id)
    if known is None:
        epoch = next_epoch(0, redis.epoch(offer.sku_id))
        try:
            _insert(database, offer, epoch)
        except (Duplicate, CommitUnknown):
            known = database.row("sale.as_opened", offer.sku_id)
            if known is None:
                raise
    if known is not None:
        if known["state"] == "archived":
            raise AlreadyOpen(f"SKU {offer.sku_id} was on offer and is archived")
        if not _same(known, offer):
            raise AlreadyOpen(f"SKU {offer.sku_id} is or was on offer with other arguments")
        return _loaded_again(database, redis, known)
    return _catalogued(database, redis) and load_copy(database, redis, offer.sku_id, epoch)


def _insert(database: Database, offer: Offer, epoch: int) -> None:
    with database.transaction():
        database.execute(
            "sale.insert_sale",
            offer.sku_id,
            epoch,
            offer.total,
            offer.quantity,
            offer.opens_at,
            offer.closes_at,
        )
        database.execute("sale.insert_stock", offer.sku_id, offer.total, offer.total)


def _same(known: Row, offer: Offer) -> bool:
    return (known["opened_total"], known["quantity"], known["opens_at"], known["closes_at"]) == (
        offer.total, offer.quantity, offer.opens_at, offer.closes_at,
    )  # fmt: skip


def _loaded_again(database: Database, redis: Redis, known: Row) -> bool:
    """A missing or older copy is replaced under a new epoch: the old one's tickets may be spent.

    Not when the sale's own books are off: a new cap would hide it, and a person has to see it first.
    """
    if not _catalogued(database, redis):
        return False
    try:
        if books_are_broken(database, known["sku_id"]):
            return False
        return rebuild(database, redis, known["sku_id"]) in (Rebuilt.LOADED, Rebuilt.NOT_NEEDED)
    except (RedisError, DatabaseError):
        return False


def _catalogued(database: Database, redis: Redis) -> bool:
    """Before the load (docs/protocol.md 3): all SKUs, or a lost catalogue would come back with some missing."""
    try:
        redis.add_to_catalogue(row["sku_id"] for row in database.rows("sale.on_offer"))
    except (RedisError, DatabaseError):
        return False
    return True
