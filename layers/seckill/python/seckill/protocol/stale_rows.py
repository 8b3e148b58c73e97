"""Stale rows: promises that nobody landed in time are landed here, or after enough failures rolled back (6.1)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from seckill.adapters.mysql import Database, Row
from seckill.adapters.redis import Redis
from seckill.domain.deadline import Deadline
from seckill.domain.event import Event
from seckill.protocol.land import Landing, land
from seckill.protocol.ledger import text
from seckill.protocol.roll_back import RollBack, roll_back

# One landing transaction each, as large as an SQS batch.
PAGE_ROWS = 100
# 2,000 rows a pass: more wait for the next pass, so that the other parts get their turn.
PAGES = 20
# Rows without stock only wait for a person: some of them are tried and reported, after all others.
PAGES_WITHOUT_STOCK = 1
# Another page is begun only with this much time left: a page of slow landings takes some seconds.
PAGE_SECONDS = 5.0
LANDING_FAILED = "the order could not be written"
_BEGINNING = datetime(1970, 1, 1)


@dataclass
class StaleRows:
    """What one sweep did, in rows."""

    found: int = 0
    landed: int = 0
    rolled_back: int = 0
    failed: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


def sweep_stale_rows(
    database: Database,
    redis: Redis,
    deadline: Deadline,
    count: Callable[[str], None],
    *,
    stale_seconds: int,
    landing_attempts: int,
    done: StaleRows | None = None,
) -> StaleRows:
    """Land the rows that are at status 1 for longer than `stale_seconds` by the database's clock. Raises DatabaseError
    when the database would not go on: `done` has what was done until then. A row's failure never stops the others.
    """
    done = done or StaleRows()
    for in_stock, pages in ((True, PAGES), (False, PAGES_WITHOUT_STOCK)):
        for page in _pages(database, deadline, stale_seconds, in_stock, pages):
            _work_off(database, redis, page, done, count, landing_attempts)
    return done


def _pages(
    database: Database, deadline: Deadline, stale_seconds: int, in_stock: bool, most: int
) -> Iterator[list[Row]]:
    after_time, after_key = _BEGINNING, b""
    for _ in range(most):
        page = database.rows(
            "reconcile.stale_page",
            stale_seconds=stale_seconds, in_stock=in_stock,
            after_time=after_time, after_key=after_key, page=PAGE_ROWS,
        )  # fmt: skip
        if page:
            after_time, after_key = page[-1]["created_at"], page[-1]["pre_deduct_key"]
            yield page
        if len(page) < PAGE_ROWS or deadline.left() < PAGE_SECONDS:
            return


def _work_off(
    database: Database, redis: Redis, page: list[Row], done: StaleRows, count: Callable[[str], None], attempts: int
) -> None:
    skus = {text(row["pre_deduct_key"]): row["sku_id"] for row in page}
    landings = land(database, redis, skus, count)
    for key, landing in landings.items():
        done.found += 1
        count("StaleFound")
        if landing is Landing.LANDED:
            done.landed += 1
            done.events.append(Event(key, skus[key], "stale row landed"))
            count("StaleLanded")
    for key, landing in landings.items():  # last: counting may raise, and by then it is known what has landed
        if landing is Landing.ROW_REFUSED and _one_failure_more(database, key) >= attempts:
            _take_back(database, redis, key, skus[key], done, count)
        elif not landing.finished:
            done.failed.append(key)
            done.events.append(Event(key, skus[key], f"stale row not landed: {landing.value}"))
            if landing is not Landing.FAILED:  # a hiccup passes by itself
                count("StuckReservation")


def _one_failure_more(database: Database, key: str) -> int:
    """Count a failure that names this row alone; how many there have been."""
    database.execute("reconcile.count_retry", key)
    row = database.row("reconcile.retry_count", key)
    return row["retry_count"] if row else 0


def _take_back(
    database: Database, redis: Redis, key: str, sku_id: int, done: StaleRows, count: Callable[[str], None]
) -> None:
    verdict = roll_back(database, redis, key, sku_id, LANDING_FAILED)
    done.events.append(Event(key, sku_id, f"roll back: {verdict.value}"))
    if verdict is RollBack.ROLLED_BACK:
        done.rolled_back += 1
        count("RolledBack")
    elif verdict is RollBack.TOO_LITTLE_REMAINS:
        done.failed.append(key)
        count("StuckReservation")
    elif verdict is not RollBack.NOT_RESERVED:
        done.failed.append(key)
