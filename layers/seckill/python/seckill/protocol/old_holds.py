"""Old holds: deductions that Redis still remembers after the stale age are finished by what the ledger says (6.2)."""

from collections.abc import Callable
from dataclasses import dataclass, field

from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis
from seckill.domain.deadline import Deadline
from seckill.domain.event import Event
from seckill.domain.reservation import Deduction, Hold, Reservation, Status
from seckill.protocol.abandon import Abandoned, abandon
from seckill.protocol.ledger import text

# A statement of this many keys stays far below the 16 KB above which a proxy pins the connection.
PAGE_HOLDS = 200
PAGE_SECONDS = 2.0


@dataclass
class OldHolds:
    """What one sweep did, in holds; `rebuild_needed` when a dead, poisoned or unreadable hold was left alone."""

    released: int = 0
    settled: int = 0
    failed: int = 0
    rebuild_needed: bool = False
    events: list[Event] = field(default_factory=list)


def sweep_old_holds(
    database: Database, redis: Redis, sku_id: int, deadline: Deadline, count: Callable[[str], None], stale_seconds: int
) -> OldHolds:
    """Finish the holds of one sale that are older than `stale_seconds` by Redis's clock. Raises the stores' errors.

    No row -> abandon; 2 -> settle; 3 -> release; 1 -> leave it to the stale rows' sweep.
    """
    done = OldHolds()
    view = redis.view(sku_id)
    if view is None:
        return done  # no whole copy: the rebuild sees to it
    oldest_allowed = view.now - stale_seconds * 1000
    old: list[Hold] = []
    for hold in redis.holds(sku_id):
        if hold is None:
            done.rebuild_needed = True
        elif hold.ms <= oldest_allowed:
            old.append(hold)
    for start in range(0, len(old), PAGE_HOLDS):
        if deadline.left() < PAGE_SECONDS:
            break  # the next pass goes on
        _finish(database, redis, sku_id, old[start : start + PAGE_HOLDS], done, count)
    return done


def _finish(
    database: Database, redis: Redis, sku_id: int, holds: list[Hold], done: OldHolds, count: Callable[[str], None]
) -> None:
    rows = database.rows("reconcile.statuses", [hold.key for hold in holds])
    statuses = {text(row["pre_deduct_key"]): row["status"] for row in rows}
    landed = [hold.key for hold in holds if statuses.get(hold.key) == Status.LANDED]
    if landed:
        done.events += [Event(key, sku_id, "old hold settled") for key in landed]
        done.settled += _counted(redis.settle(sku_id, landed), "HoldSettled", count)
    for hold in holds:
        status = statuses.get(hold.key)
        if status == Status.ROLLED_BACK:
            done.events.append(Event(hold.key, sku_id, "old hold released"))
            done.released += _counted(redis.release(sku_id, hold.key, hold.user), "HoldReleased", count)
        elif status is None:
            _give_up(database, redis, sku_id, hold, done, count)


def _give_up(
    database: Database, redis: Redis, sku_id: int, hold: Hold, done: OldHolds, count: Callable[[str], None]
) -> None:
    deduction = Deduction(hold.key, sku_id, hold.user, hold.epoch, hold.ticket, hold.quantity)
    verdict = abandon(database, redis, deduction)
    what = "it has a row by now" if isinstance(verdict, Reservation) else verdict.value
    done.events.append(Event(hold.key, sku_id, f"old hold without a row: {what}"))
    if verdict is Abandoned.TOMBSTONE:
        count("Abandoned")
        done.released += _counted(1, "HoldReleased", count)
    elif verdict in (Abandoned.DEAD, Abandoned.POISONED):
        done.rebuild_needed = True
    elif not isinstance(verdict, Reservation):
        done.failed += 1


def _counted(number: int, metric: str, count: Callable[[str], None]) -> int:
    for _ in range(number):
        count(metric)
    return number
