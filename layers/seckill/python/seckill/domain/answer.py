"""The answers of reserve, as HTTP's vocabulary names them."""

from dataclasses import dataclass
from enum import StrEnum

from seckill.domain.reservation import Status


class Refusal(StrEnum):
    """Why there is no reservation. The last two mean: ask again."""

    SOLD_OUT = "SOLD_OUT"
    NOT_OPEN = "NOT_OPEN"
    CLOSED = "CLOSED"
    NO_SUCH_SALE = "NO_SUCH_SALE"
    UNAVAILABLE = "UNAVAILABLE"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"


METRIC_OF = {
    Refusal.SOLD_OUT: "SoldOut",
    Refusal.UNAVAILABLE: "Unavailable",
    Refusal.OUTCOME_UNKNOWN: "OutcomeUnknown",
}


@dataclass(frozen=True, slots=True)
class Reserved:
    """A promise: this key ends in exactly one order, or in a notice. `new` when this very call made the row."""

    key: str
    status: Status
    quantity: int
    new: bool

    @property
    def name(self) -> str:
        """The answer in a log line."""
        return self.status.name

    @property
    def metric(self) -> str:
        """What the answer counts as."""
        return "ReservationWon" if self.new else "ReservationReplayed"


@dataclass(frozen=True, slots=True)
class Refused:
    """No promise. `key` when one was made, `opens_at` in milliseconds since 1970 with NOT_OPEN."""

    refusal: Refusal
    key: str | None = None
    opens_at: int | None = None

    @property
    def name(self) -> str:
        """The answer in a log line."""
        return self.refusal.value

    @property
    def metric(self) -> str | None:
        """What the answer counts as; a sale that is not on offer or not open counts as nothing."""
        return METRIC_OF.get(self.refusal)


Answer = Reserved | Refused
