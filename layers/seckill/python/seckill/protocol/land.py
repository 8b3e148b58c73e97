"""land: write the orders of reservations, whole batch in one transaction (docs/protocol.md 5).

Only the ledger is trusted. Redis is never consulted; it is told afterwards which holds to forget.
"""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from seckill.adapters.mysql import Database, DatabaseError, Deadlock, RowRefused
from seckill.adapters.redis import Redis, RedisError
from seckill.domain.reservation import Reservation, Status
from seckill.protocol.ledger import reservation_of, text


class Landing(Enum):
    """What became of one key. `finished`: its message can be forgotten."""

    LANDED = "this call wrote the order"
    ALREADY_LANDED = "the row was at 2"
    ROLLED_BACK = "the row was at 3: nothing to land"
    NO_ROW = "the ledger does not know the key"
    ROW_REFUSED = "an error that names this row, alone in its transaction"
    OUT_OF_STOCK = "the stock row is missing or too small for this row alone"
    FAILED = "the database would not, this time"

    @property
    def finished(self) -> bool:
        return self in (Landing.LANDED, Landing.ALREADY_LANDED, Landing.ROLLED_BACK)


class _OutOfStock(Exception):
    """A stock row is missing or too small for what should land."""


@dataclass
class _Landings:
    """Outcomes by key, and the landed keys by SKU, whose holds can be forgotten."""

    outcomes: dict[str, Landing] = field(default_factory=dict)
    landed: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    mended: int = 0

    def add(self, row: Reservation, outcome: Landing) -> None:
        self.outcomes[row.key] = outcome
        if outcome in (Landing.LANDED, Landing.ALREADY_LANDED):
            self.landed[row.sku_id].append(row.key)

    def merge(self, other: "_Landings") -> None:
        self.outcomes |= other.outcomes
        self.mended += other.mended
        for sku_id, keys in other.landed.items():
            self.landed[sku_id] += keys


def land(database: Database, redis: Redis, keys: Iterable[str], count: Callable[[str], None]) -> dict[str, Landing]:
    """Land every key that is at status 1; what became of each. A store's failure is an outcome, never an exception.

    An error that names a row sends the batch through one by one, so that one bad reservation fails alone; a deadlock
    tries the whole batch once more; anything else fails every key, since 100 lock waits of a second would burn all
    receives.
    `count` is told the names of metrics. At most some hundreds of keys: an event's batch, a page of stale rows.
    """
    wanted = sorted(set(keys))
    landings = _landed_together(database, wanted)
    for outcome in landings.outcomes.values():
        if outcome is Landing.LANDED:
            count("OrderLanded")
        elif not outcome.finished:
            count("LandingFailed")
    for _ in range(landings.mended):
        count("InvariantBroken")
    for sku_id, landed in landings.landed.items():
        _settle_quietly(redis, sku_id, landed)
    return landings.outcomes


def _landed_together(database: Database, keys: list[str]) -> _Landings:
    for _ in range(2):
        try:
            return _land_transaction(database, keys)
        except Deadlock:
            continue
        except (RowRefused, _OutOfStock):
            return _landed_one_by_one(database, keys)
        except DatabaseError:
            break
    return _all_failed(keys)


def _landed_one_by_one(database: Database, keys: list[str]) -> _Landings:
    landings = _Landings()
    for position, key in enumerate(keys):
        try:
            landings.merge(_land_transaction(database, [key]))
        except RowRefused:
            landings.outcomes[key] = Landing.ROW_REFUSED
        except _OutOfStock:
            landings.outcomes[key] = Landing.OUT_OF_STOCK
        except DatabaseError:
            # Not this row's fault: the rest would wait just as long.
            landings.merge(_all_failed(keys[position:]))
            break
    return landings


def _all_failed(keys: list[str]) -> _Landings:
    return _Landings(outcomes=dict.fromkeys(keys, Landing.FAILED))


def _land_transaction(database: Database, keys: list[str]) -> _Landings:
    """Orders, status and stock of all these keys, or none of them. Raises _OutOfStock and DatabaseError."""
    landings = _Landings(outcomes=dict.fromkeys(keys, Landing.NO_ROW))
    if not keys:
        return landings
    with database.transaction():
        rows = [reservation_of(row) for row in database.rows("land.lock_rows", keys)]
        reserved = [row for row in rows if row.status is Status.RESERVED]
        ordered = _ordered(database, reserved)
        fresh = [row for row in reserved if row.key not in ordered]
        if fresh:
            database.execute("land.insert_orders", [row.key for row in fresh])
        if reserved:
            database.execute("land.mark_landed", [row.key for row in reserved])
        _take_stock(database, fresh)
    landings.mended = len(reserved) - len(fresh)
    for row in rows:
        landings.add(row, _outcome(row))
    return landings


def _ordered(database: Database, reserved: list[Reservation]) -> set[str]:
    """Keys at status 1 that have an order all the same: mended or restored data. They take no stock."""
    if not reserved:
        return set()
    found = database.rows("land.existing_orders", [row.key for row in reserved])
    return {text(row["pre_deduct_key"]) for row in found}


def _take_stock(database: Database, fresh: list[Reservation]) -> None:
    """The hot rows last and in ascending order: held for the shortest time, no deadlock between two batches."""
    units: Counter[int] = Counter()
    for row in fresh:
        units[row.sku_id] += row.quantity
    for sku_id in sorted(units):
        if database.execute("land.take_stock", units[sku_id], sku_id, units[sku_id]) != 1:
            raise _OutOfStock(sku_id)


def _outcome(row: Reservation) -> Landing:
    match row.status:
        case Status.RESERVED:
            return Landing.LANDED
        case Status.LANDED:
            return Landing.ALREADY_LANDED
        case Status.ROLLED_BACK:
            return Landing.ROLLED_BACK


def _settle_quietly(redis: Redis, sku_id: int, keys: list[str]) -> None:
    """While Redis is away the holds stay; the sweeper settles them later."""
    with contextlib.suppress(RedisError):
        redis.settle(sku_id, keys)
