"""Old holds: deductions that Redis still remembers after the stale age are finished by what the ledger says (6.2)."""

from collections.abc import Callable
from dataclasses import dataclass, field

from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis
from seckill.domain.deadline import Deadline
from seckill.domain.event import Event
from seckill.domain.reservation import Deduction, Hold, Reservation, Status
from seckill.protocol.abandon import Abandoned, write_off
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
    database: Database,
    redis: Redis,
    sku_id: int,
    deadline: Deadline,
    count: Callable[[str], None],
    stale_seconds: int,
    done: OldHolds | None = None,
) -> OldHolds:
    """Finish the holds of one sale that are older than `stale_seconds` by Redis's clock. Raises the stores' errors:
    `done` has what was done until then.

    No row -> abandon; 2 -> settle; 3 -> release; 1 -> leave it to the stale rows' sweep.
    """
    done = done or OldHolds()
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
        done.settled += _counted(redis.settle(sku_id, landed), "HoldSettled", count)
        done.events += [Event(key, sku_id, "old hold settled") for key in landed]
    for hold in holds:
        status = statuses.get(hold.key)
        if status == Status.ROLLED_BACK:
            if _released(redis, sku_id, hold, done, count):
                done.events.append(Event(hold.key, sku_id, "old hold released"))
        elif status is None:
            _give_up(database, redis, sku_id, hold, done, count)


def _give_up(
    database: Database, redis: Redis, sku_id: int, hold: Hold, done: OldHolds, count: Callable[[str], None]
) -> None:
    deduction = Deduction(hold.key, sku_id, hold.user, hold.epoch, hold.ticket, hold.quantity)
    verdict = write_off(database, deduction)
    what = "it has a row by now" if isinstance(verdict, Reservation) else verdict.value
    done.events.append(Event(hold.key, sku_id, f"old hold without a row: {what}"))
    if verdict is Abandoned.TOMBSTONE:
        count("Abandoned")
        _released(redis, sku_id, hold, done, count)
    elif isinstance(verdict, Reservation):
        if not verdict.live:  # written by somebody else meanwhile, who may have died before the release
            _released(redis, sku_id, hold, done, count)
    elif verdict in (Abandoned.DEAD, Abandoned.POISONED):
        done.rebuild_needed = True
    else:
        done.failed += 1


def _released(redis: Redis, sku_id: int, hold: Hold, done: OldHolds, count: Callable[[str], None]) -> bool:
    # Counted only when Redis says so: another pass may have been there first.
    given_back = redis.release(sku_id, hold.key, hold.user)
    done.released += _counted(given_back, "HoldReleased", count)
    return given_back


def _counted(number: int, metric: str, count: Callable[[str], None]) -> int:
    for _ in range(number):
        count(metric)
    return number
