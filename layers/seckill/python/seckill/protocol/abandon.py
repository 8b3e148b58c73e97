"""abandon: give up a key that never got a ledger row, so that its unit can be sold again (docs/protocol.md 4.7)."""

from enum import Enum

from seckill.adapters.mysql import Database, DatabaseError, RowRefused
from seckill.adapters.redis import Redis, RedisError
from seckill.domain.reservation import Deduction, Reservation, Status
from seckill.protocol.ledger import read_by_key

# What sql/abandon.sql writes: such a key was never promised, so it needs no notice.
TOMBSTONE_REASON = "abandoned"


class Abandoned(Enum):
    """What became of the key when there is no live row under it."""

    TOMBSTONE = "a status-3 row, units given back (or to be given back by the sweeper when Redis was away)"
    DEAD = "its epoch is over: it can never be inserted, a rebuild has counted its units as free"
    POISONED = "its ticket can never be honoured: nothing is given back, a rebuild is needed"
    UNKNOWN = "the database did not say"


def abandon(database: Database, redis: Redis, deduction: Deduction) -> Abandoned | Reservation:
    """Write the key's tombstone and give its units back; a live row found instead is returned. Never raises."""
    verdict = write_off(database, deduction)
    if isinstance(verdict, Reservation) and verdict.live:
        return verdict
    if isinstance(verdict, Reservation) or verdict is Abandoned.TOMBSTONE:
        release_quietly(redis, deduction.sku_id, deduction.key, deduction.user)
        return Abandoned.TOMBSTONE
    return verdict


def write_off(database: Database, deduction: Deduction) -> Abandoned | Reservation:
    """The half of it that is MySQL's: TOMBSTONE only when this call wrote it, else the row that is there. Never raises.

    One transaction: lock the sale, insert the tombstone with the key's own epoch and ticket, cap += quantity. Never
    changes an existing row. Whatever COMMIT answered, the row itself decides.
    """
    try:
        verdict = _write_tombstone(database, deduction)
    except RowRefused:
        verdict = Abandoned.POISONED  # the ticket is taken or malformed - unless the row is under the key itself
    except DatabaseError:
        verdict = Abandoned.UNKNOWN  # lock wait, lost connection, ambiguous COMMIT: the row decides
    try:
        row = read_by_key(database, deduction.key)
    except DatabaseError:
        return Abandoned.UNKNOWN
    if row is None:
        return Abandoned.UNKNOWN if verdict is Abandoned.TOMBSTONE else verdict
    written = verdict is Abandoned.TOMBSTONE and row.status is Status.ROLLED_BACK
    return Abandoned.TOMBSTONE if written else row


def _write_tombstone(database: Database, deduction: Deduction) -> Abandoned:
    with database.transaction():
        sale = database.row("abandon.lock_sale", deduction.sku_id)
        if sale is None or sale["epoch"] != deduction.epoch:
            return Abandoned.DEAD
        if deduction.ticket > sale["cap"] or deduction.quantity != sale["quantity"]:
            return Abandoned.POISONED
        database.execute(
            "abandon.tombstone",
            deduction.key, deduction.sku_id, deduction.user, deduction.quantity, deduction.epoch, deduction.ticket,
        )  # fmt: skip
        database.execute("abandon.extend_cap", deduction.quantity, deduction.sku_id)
    return Abandoned.TOMBSTONE


def release_quietly(redis: Redis, sku_id: int, key: str, user: str) -> bool:
    """Release a key read at status 3; while Redis is away the hold stays, and the sweeper releases it later."""
    try:
        return redis.release(sku_id, key, user)
    except RedisError:
        return False
