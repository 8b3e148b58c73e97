"""A sale: one SKU on offer (docs/protocol.md 2)."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

LARGEST_SKU_ID = 2**63 - 1
# Lua numbers are doubles: above this, an epoch or a count is no longer exact.
LARGEST_EXACT_INTEGER = 2**53
# Further ahead than this, Redis's epoch is garbage, not a newer generation (docs/protocol.md 6.4).
LARGEST_EPOCH_LEAD = 1_000_000

# The end of the year 9999, in milliseconds since 1970: what a date can still be written for, and Redis's copy takes.
END_OF_TIME = 253_402_300_800_000

_SKU_ID = re.compile(r"[1-9][0-9]{0,18}")
_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SaleView:
    """The sale as Redis's copy shows it at Redis's own time, all times in milliseconds since 1970."""

    state: str
    epoch: int
    stock: int
    ticket: int
    quantity: int
    opens_at: int | None
    closes_at: int | None
    now: int

    @property
    def phase(self) -> str:
        """SCHEDULED, OPEN, SOLD_OUT or CLOSED, as a shopper would see it."""
        if self.state != "open" or (self.closes_at is not None and self.now >= self.closes_at):
            return "CLOSED"
        if self.opens_at is not None and self.now < self.opens_at:
            return "SCHEDULED"
        return "OPEN" if self.stock >= self.quantity else "SOLD_OUT"


def parse_sku_id(text: str) -> int:
    """The SKU's number; ValueError unless it matches `[1-9][0-9]{0,18}` and fits a signed 64-bit integer."""
    if not _SKU_ID.fullmatch(text) or int(text) > LARGEST_SKU_ID:
        raise ValueError("a SKU is a whole number from 1 to 2^63 - 1, without leading zeros")
    return int(text)


def next_epoch(known: int, observed: int | None) -> int:
    """The generation after MySQL's and Redis's; Redis's is left out when it is garbage (docs/protocol.md 6.4a)."""
    if observed is None or observed > LARGEST_EXACT_INTEGER or observed - known > LARGEST_EPOCH_LEAD:
        observed = 0
    return max(known, observed) + 1


def iso_time(milliseconds: int | None) -> str | None:
    """ISO 8601 in UTC with an offset, or None."""
    if milliseconds is None:
        return None
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC).replace(microsecond=milliseconds % 1000 * 1000)
    return moment.isoformat(timespec="milliseconds" if milliseconds % 1000 else "seconds")


def parse_time(text: str) -> int:
    """Milliseconds since 1970 of an ISO 8601 time; ValueError without an offset, before 1970 or after the year 9999."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time needs an offset, e.g. 2026-11-11T20:00:00+08:00")
    since = moment - _EPOCH_START
    milliseconds = (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    if not 0 <= milliseconds < END_OF_TIME:
        raise ValueError("a time is one of the years 1970 to 9999, in UTC")
    return milliseconds
