"""The books of a sale and the equations they must satisfy (docs/protocol.md 1 and 6.6). All numbers are units."""

from dataclasses import dataclass

# Equations that Redis can break; the others rest on MySQL alone.
SOFT = ("I3", "I4", "I5")


@dataclass(frozen=True, slots=True)
class LedgerAccounts:
    """MySQL's accounts at one moment."""

    total: int
    remaining: int
    cap: int
    epoch: int
    used: int  # units of the current epoch that have any ledger row
    reserved: int
    landed: int
    rolled_back: int
    ordered: int
    stale: int  # at status 1 for longer than the stale age
    landed_without_order: int
    orders_without_landed: int
    rolled_back_without_notice: int


@dataclass(frozen=True, slots=True)
class SoftTerms:
    """The terms of I3, I4 and I5: Redis's snapshot, and MySQL's side without what was won after it (ticket t)."""

    stock: int
    ticket: int
    held_without_row: int
    held_rolled_back: int
    live_seen: int  # at status 1 and 2, without rows of this epoch above t
    rolled_back_later: int  # at status 3, of this epoch above t
    highest_before: int  # the highest ticket of this epoch that had a row before the snapshot


@dataclass(frozen=True, slots=True)
class Equation:
    """One equation with both sides; `terms` spells the arithmetic out."""

    name: str
    left: int
    right: int
    terms: str

    @property
    def holds(self) -> bool:
        return self.left == self.right

    @property
    def difference(self) -> int:
        return self.left - self.right

    def __str__(self) -> str:
        sign = "=" if self.holds else "<>"
        return f"{self.name}: {self.terms}: {self.left} {sign} {self.right}"


def hard_equations(books: LedgerAccounts) -> list[Equation]:
    """I0, I1, I2 and remaining - pending >= 0: true after every transaction, whatever Redis does."""
    unlike = books.landed_without_order + books.orders_without_landed
    overdraft = max(0, books.reserved - books.remaining)
    return [
        Equation(
            "I0", unlike, 0,
            f"landed without order {books.landed_without_order} + orders without landed {books.orders_without_landed}",
        ),
        Equation(
            "I1", books.cap - books.used + books.reserved + books.landed, books.total,
            f"cap {books.cap} - used {books.used} + reserved {books.reserved} + landed {books.landed} = total",
        ),
        Equation(
            "I2", books.remaining + books.ordered, books.total,
            f"remaining {books.remaining} + ordered {books.ordered} = total",
        ),
        Equation("remaining covers reserved", overdraft, 0, f"reserved {books.reserved} - remaining {books.remaining}"),
    ]  # fmt: skip


def soft_equations(books: LedgerAccounts, soft: SoftTerms) -> list[Equation]:
    """I3, I4 and I5: Redis's copy against MySQL, exact at any load."""
    return [
        Equation(
            "I3", soft.stock + soft.held_without_row + soft.held_rolled_back, books.total - soft.live_seen,
            f"stock {soft.stock} + held without row {soft.held_without_row} + held rolled back {soft.held_rolled_back}"
            f" = total {books.total} - live {soft.live_seen}",
        ),
        Equation(
            "I4", books.cap - soft.rolled_back_later - soft.ticket, soft.stock + soft.held_rolled_back,
            f"cap {books.cap} - rolled back later {soft.rolled_back_later} - ticket {soft.ticket}"
            f" = stock {soft.stock} + held rolled back {soft.held_rolled_back}",
        ),
        Equation(
            "I5", max(0, soft.highest_before - soft.ticket), 0,
            f"tickets with a row {soft.highest_before} beyond ticket {soft.ticket}",
        ),
    ]  # fmt: skip


def gap_terms(books: LedgerAccounts, soft: list[Equation]) -> dict[str, int]:
    """Units for which somebody's account is open, by why; their sum is the gap (docs/protocol.md 1)."""
    return {
        "stale": books.stale,
        "landed without order": books.landed_without_order,
        "orders without landed": books.orders_without_landed,
        "rolled back without notice": books.rolled_back_without_notice,
        "difference in I3": sum(abs(equation.difference) for equation in soft if equation.name == "I3"),
    }
