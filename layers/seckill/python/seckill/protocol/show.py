"""What a user may see of the ledger: his own reservations."""

from dataclasses import dataclass

from seckill.adapters.mysql import Database, Row
from seckill.domain.reservation import Reservation
from seckill.protocol.ledger import reservation_of


@dataclass(frozen=True, slots=True)
class Shown:
    """A reservation and its order, if it has one."""

    reservation: Reservation
    order_id: int | None


def latest_of_user(database: Database, sku_id: int, user: str) -> Shown | None:
    """This user's live, else latest, reservation of the sale. Raises DatabaseError."""
    return _shown(database.row("ledger.shown_by_user", sku_id, user))


def of_user_by_key(database: Database, key: str, user: str) -> Shown | None:
    """The reservation under this key; None when it is not this user's. Raises DatabaseError."""
    shown = _shown(database.row("ledger.shown_by_key", key))
    return shown if shown and shown.reservation.user == user else None


def _shown(row: Row | None) -> Shown | None:
    return Shown(reservation_of(row), row["order_id"]) if row else None
