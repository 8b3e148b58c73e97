"""A reservation: its key, its ticket, its row in the ledger (docs/protocol.md 2 and 3)."""

from dataclasses import dataclass
from enum import IntEnum


class Status(IntEnum):
    """Status of a ledger row. 2 and 3 are final."""

    RESERVED = 1
    LANDED = 2
    ROLLED_BACK = 3


LIVE = (Status.RESERVED, Status.LANDED)


@dataclass(frozen=True, slots=True)
class Deduction:
    """What a won Lua reserve gave: the key, and the ticket number it holds within its epoch."""

    key: str
    sku_id: int
    user: str
    epoch: int
    ticket: int
    quantity: int


@dataclass(frozen=True, slots=True)
class Hold:
    """An entry of Redis `held`: deducted, not yet known to be finished. `ms` is Redis TIME in milliseconds."""

    key: str
    user: str
    quantity: int
    epoch: int
    ticket: int
    ms: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """A row of the ledger."""

    key: str
    sku_id: int
    user: str
    quantity: int
    epoch: int
    ticket: int
    status: Status
    reason: str | None

    @property
    def live(self) -> bool:
        """Whether the row is a promise: reserved or landed."""
        return self.status in LIVE
