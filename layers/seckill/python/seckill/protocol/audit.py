"""The audit of one sale: Redis, the ledger, the orders and the stock side by side (docs/protocol.md 6.6)."""

from dataclasses import dataclass, field
from typing import Any

from seckill.adapters.mysql import Database, Row
from seckill.adapters.redis import Redis, RedisError, Snapshot
from seckill.domain.accounts import (
    SOFT,
    Equation,
    LedgerAccounts,
    SoftTerms,
    gap_terms,
    hard_equations,
    soft_equations,
)
from seckill.domain.reservation import Status
from seckill.domain.sale import LARGEST_EXACT_INTEGER
from seckill.protocol.ledger import text

# A statement of this many keys stays below the 16 KB above which a proxy pins the connection.
PAGE_KEYS = 200


@dataclass
class Audit:
    """The verdict on one sale. `ok` is None when there is none: rebuilding, or too busy to read all holds at once."""

    sku_id: int
    state: str
    books: LedgerAccounts
    redis: Snapshot | None
    equations: list[Equation]
    oldest_pending_seconds: int
    notices_pending: int
    # What else in Redis's copy is wrong, in words: no equation counts it.
    copy_faults: list[str] = field(default_factory=list)
    ok: bool | None = None
    findings: list[str] = field(default_factory=list)
    drift_confirmed: bool = False

    @property
    def gap(self) -> int:
        """Units whose account is open (docs/protocol.md 1)."""
        return sum(self.gap_terms.values())

    @property
    def gap_terms(self) -> dict[str, int]:
        """The gap's parts, in units."""
        return gap_terms(self.books, self.equations)

    @property
    def drift(self) -> int:
        """Units by which Redis's copy differs from MySQL."""
        return sum(abs(equation.difference) for equation in self.equations if equation.name in SOFT)

    @property
    def hard_broken(self) -> bool:
        """Whether MySQL's own books are off: such a sale is never rebuilt automatically."""
        return any(not equation.holds for equation in self.equations if equation.name not in SOFT)

    def as_json(self) -> dict[str, Any]:
        """The accounts side by side, the equations with their terms, the verdict; units."""
        copy = self.redis and {
            "stock": self.redis.sale.stock,
            "ticket": self.redis.sale.ticket,
            "epoch": self.redis.sale.epoch,
            "holds": self.redis.hold_count,
        }
        return {
            "skuId": self.sku_id,
            "ok": self.ok,
            "findings": self.findings,
            "state": self.state,
            "redis": copy,
            "ledger": {
                "reserved": self.books.reserved,
                "landed": self.books.landed,
                "rolledBack": self.books.rolled_back,
            },
            "orders": self.books.ordered,
            "databaseStock": self.books.remaining,
            "total": self.books.total,
            "cap": self.books.cap,
            "epoch": self.books.epoch,
            "oldestPendingSeconds": self.oldest_pending_seconds,
            "noticesPending": self.notices_pending,
            "gap": self.gap,
            "gapTerms": " + ".join(f"{why} {units}" for why, units in self.gap_terms.items()),
            "drift": self.drift,
            "driftConfirmed": self.drift_confirmed,
            "equations": [str(equation) for equation in self.equations],
        }


def audit_sale(database: Database, redis: Redis, sku_id: int, stale_seconds: int) -> Audit | None:
    """Judge one sale; None when the database has none. Raises DatabaseError.

    First Redis's snapshot with its ticket t, then MySQL at one moment, without what was won after t: exact at any load.
    The highest ticket that has a row is read before the snapshot: Redis must have dealt it by then (I5).
    """
    before = database.row("audit.highest_ticket", sku_id)
    away = False
    try:
        snapshot = redis.snapshot(sku_id)
    except RedisError:
        snapshot, away = None, True
    with database.consistent_read() as reader:
        ticket = snapshot.sale.ticket if snapshot else LARGEST_EXACT_INTEGER
        row = reader.row("audit.accounts", sku_id=sku_id, ticket=ticket, stale_seconds=stale_seconds)
        if row is None:
            return None
        audit = _hard_audit(reader, row, snapshot)
        comparable = snapshot is not None and snapshot.sale.epoch == audit.books.epoch
        if snapshot is not None and comparable:
            audit.copy_faults = _copy_faults(row, snapshot)
        if snapshot is not None and comparable and snapshot.holds is not None:
            same_epoch = before is not None and before["epoch"] == audit.books.epoch
            highest_before = int(before["ticket"]) if before is not None and same_epoch else 0
            audit.equations += soft_equations(audit.books, _soft_terms(reader, row, snapshot, highest_before))
    _judge(audit, away, comparable)
    _remember_drift(database, row, audit)
    return audit


def books_are_broken(database: Database, sku_id: int) -> bool:
    """Whether a hard equation is off, whatever Redis says: such a sale is never rebuilt automatically.

    Raises DatabaseError.
    """
    with database.consistent_read() as reader:
        row = reader.row("audit.accounts", sku_id=sku_id, ticket=LARGEST_EXACT_INTEGER, stale_seconds=0)
        return row is not None and _hard_audit(reader, row, None).hard_broken


def _hard_audit(reader: Database, row: Row, snapshot: Snapshot | None) -> Audit:
    sku_id = row["sku_id"]

    def units(statement: str) -> int:
        found = reader.row(statement, sku_id)
        return int(found["units"]) if found else 0

    books = LedgerAccounts(
        total=row["total"],
        remaining=row["remaining"],
        cap=row["cap"],
        epoch=row["epoch"],
        used=int(row["used"]),
        reserved=int(row["reserved"]),
        landed=int(row["landed"]),
        rolled_back=int(row["rolled_back"]),
        ordered=int(row["ordered"]),
        stale=int(row["stale"]),
        landed_without_order=units("audit.landed_without_order"),
        orders_without_landed=units("audit.orders_without_landed"),
        rolled_back_without_notice=units("audit.rolled_back_without_notice"),
    )
    notices = reader.row("audit.notices_pending", sku_id)
    return Audit(
        sku_id, row["state"], books, snapshot, hard_equations(books),
        oldest_pending_seconds=int(row["oldest_pending_seconds"]),
        notices_pending=int(notices["notices"]) if notices else 0,
    )  # fmt: skip


def _soft_terms(reader: Database, row: Row, snapshot: Snapshot, highest_before: int) -> SoftTerms:
    holds = snapshot.holds or ()
    statuses: dict[str, int] = {}
    for start in range(0, len(holds), PAGE_KEYS):
        keys = [hold.key for hold in holds[start : start + PAGE_KEYS]]
        statuses |= {text(r["pre_deduct_key"]): r["status"] for r in reader.rows("reconcile.statuses", keys)}
    return SoftTerms(
        stock=snapshot.sale.stock,
        ticket=snapshot.sale.ticket,
        held_without_row=sum(hold.quantity for hold in holds if hold.key not in statuses),
        held_rolled_back=sum(hold.quantity for hold in holds if statuses.get(hold.key) == Status.ROLLED_BACK),
        live_seen=int(row["live_seen"]),
        rolled_back_later=int(row["rolled_back_later"]),
        highest_before=highest_before,
    )


def _copy_faults(row: Row, snapshot: Snapshot) -> list[str]:
    """Of a copy of MySQL's epoch: its fields changed with the epoch only, so they are the sale's at any load."""
    faults = [
        f"Redis says {name} {shown}, MySQL {row[name]}"
        for name in ("state", "quantity", "opens_at", "closes_at")
        if (shown := getattr(snapshot.sale, name)) != row[name]
    ]
    if snapshot.unreadable_holds:
        faults.append(f"{snapshot.unreadable_holds} holds in Redis cannot be read")
    return faults


def _judge(audit: Audit, redis_away: bool, comparable: bool) -> None:
    """What is said of the equations. Never "ok" while one is off, and no verdict on what could not be compared."""
    audit.findings = [str(equation) for equation in audit.equations if not equation.holds] + audit.copy_faults
    if audit.findings:
        audit.ok = False
    elif redis_away:
        audit.findings.append("no verdict: Redis did not answer")
    elif not comparable:
        audit.findings.append("no verdict: rebuilding, Redis has no copy of MySQL's epoch")
    elif audit.redis is not None and audit.redis.holds is None:
        audit.findings.append(f"no verdict: busy, {audit.redis.hold_count} holds are too many for one moment")
    else:
        audit.ok = True


def _remember_drift(database: Database, row: Row, audit: Audit) -> None:
    """A soft violation pages only when a later audit of the same epoch sees it again; an equal audit clears it."""
    if (audit.drift or audit.copy_faults) and audit.redis is not None and audit.redis.sale.epoch == audit.books.epoch:
        audit.drift_confirmed = row["drift_epoch"] == audit.books.epoch
        database.execute("audit.remember_drift", sku_id=audit.sku_id, epoch=audit.books.epoch)
    elif audit.ok and row["drift_epoch"] is not None:
        database.execute("audit.clear_drift", audit.sku_id)
