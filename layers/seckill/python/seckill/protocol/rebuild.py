"""rebuild: a new epoch in MySQL, then Redis loaded with what MySQL has not promised (docs/protocol.md 6.4).

Letters in the comments are docs/protocol.md's.
"""

from collections.abc import Callable
from enum import Enum

from seckill.adapters.mysql import CommitUnknown, Database, DatabaseError, Row
from seckill.adapters.redis import Redis, RedisError
from seckill.domain.reservation import Hold, Status
from seckill.domain.sale import next_epoch
from seckill.protocol.ledger import text

# Live rows read at a time: some 100 KB, so that a long sale neither fills memory nor holds one long result.
LIVE_PAGE_ROWS = 1_000
# A COMMIT whose answer was lost is thrown away and a fresh epoch begun (b); a database that loses more is down.
BUMPS = 3


class Rebuilt(Enum):
    """How a rebuild ended, when nothing was raised."""

    LOADED = "Redis has the new epoch"
    NOT_LOADED = "the epoch is new, Redis got a still newer one or was not there: the next beat sees to it"
    NOT_NEEDED = "somebody has rebuilt past what was observed, and Redis is there"
    TOO_SOON = "less than 30 s since the last automatic rebuild"
    PROMISED_TOO_MUCH = "more is pending than remains: nothing bumped, a person mends the rows"
    NO_SUCH_SALE = "the database has no such sale on offer"


class _Stop(Exception):
    """Leaves the first transaction, which is rolled back."""

    def __init__(self, why: Rebuilt) -> None:
        super().__init__(why.name)
        self.why = why


def rebuild(
    database: Database,
    redis: Redis,
    sku_id: int,
    *,
    observed: int | None = None,
    automatic: bool = True,
    change: Callable[[Row], None] | None = None,
) -> Rebuilt:
    """Give the sale a new epoch and load Redis with it. Raises RedisError and DatabaseError: nothing was bumped
    (or it is not known, and the next beat finds out).

    `observed` is the epoch a requester saw go wrong (None: saw no whole copy); an automatic rebuild is not done when
    someone has rebuilt past it. `change` is run on the locked sale row inside the first transaction: top-ups, closing
    and opening again are rebuilds that also change the sale, so they must be safe to run twice (b).
    """
    for _ in range(BUMPS):
        redis_epoch = redis.epoch(sku_id)  # (0): unreachable, so no bump
        try:
            with database.transaction():
                epoch = _bump(database, redis, sku_id, redis_epoch, observed, automatic, change)
        except _Stop as stop:
            return stop.why
        except CommitUnknown:
            continue  # (b): throw it all away
        return Rebuilt.LOADED if load_copy(database, redis, sku_id, epoch) else Rebuilt.NOT_LOADED
    raise CommitUnknown(0, f"{BUMPS} COMMITs of a rebuild were not answered")


def _bump(
    database: Database,
    redis: Redis,
    sku_id: int,
    redis_epoch: int | None,
    observed: int | None,
    automatic: bool,
    change: Callable[[Row], None] | None,
) -> int:
    """(a): the first transaction's statements; the new epoch."""
    sale = database.row("rebuild.lock_sale", sku_id)
    if sale is None or sale["state"] == "archived":
        raise _Stop(Rebuilt.NO_SUCH_SALE)
    if automatic:
        _stop_if_not_needed(redis, sale, observed)
    if change:
        change(sale)
    unpromised = database.row("rebuild.unpromised", sku_id)
    if unpromised is None or unpromised["units"] < 0:
        raise _Stop(Rebuilt.PROMISED_TOO_MUCH)
    epoch = next_epoch(sale["epoch"], redis_epoch)
    database.execute("rebuild.bump", epoch, int(unpromised["units"]), sku_id)
    return epoch


def _stop_if_not_needed(redis: Redis, sale: Row, observed: int | None) -> None:
    rebuilt_past = observed is None or sale["epoch"] > observed
    if not rebuilt_past and not sale["rebuilt_lately"]:
        return
    copy = redis.view(sale["sku_id"])
    if copy is None or copy.epoch != sale["epoch"]:
        return  # Redis is not there: neither reason counts
    raise _Stop(Rebuilt.NOT_NEEDED if rebuilt_past else Rebuilt.TOO_SOON)


def load_copy(database: Database, redis: Redis, sku_id: int, epoch: int) -> bool:
    """(c) and (d): load Redis with this epoch, read at one moment. False when a newer epoch was there or a store was
    away: the epoch waits, and the next beat loads it.
    """
    try:
        copy = _copy_of(database, sku_id, epoch)
        if copy is None:
            return False
        fields, holds, buyers = copy
        redis.load(sku_id, fields, epoch, holds, buyers)
        loaded = redis.view(sku_id)
        if _archived(database, sku_id):  # meanwhile: its keys may be gone already, and nothing else would remove these
            redis.remove(sku_id)
            return False
    except (DatabaseError, RedisError):
        return False
    return loaded is not None and loaded.epoch == epoch


def _archived(database: Database, sku_id: int) -> bool:
    sale = database.row("rebuild.sale", sku_id)
    return sale is not None and sale["state"] == "archived"


def _copy_of(database: Database, sku_id: int, epoch: int) -> tuple[dict[str, str], list[Hold], dict[str, str]] | None:
    """What Redis's copy of this epoch must hold: the sale's fields, the holds, the buyers. None for another epoch."""
    with database.consistent_read() as reader:
        sale = reader.row("rebuild.sale", sku_id)
        unpromised = reader.row("rebuild.unpromised", sku_id)
        if sale is None or unpromised is None or sale["epoch"] != epoch or sale["state"] == "archived":
            return None
        live = _live_rows(reader, sku_id)
    fields = {
        "state": sale["state"],
        "stock": str(int(unpromised["units"])),
        "quantity": str(sale["quantity"]),
        "opens_at": _time_field(sale["opens_at"]),
        "closes_at": _time_field(sale["closes_at"]),
    }
    holds = [_hold(row) for row in live if row["status"] == Status.RESERVED]
    buyers = {text(row["user_id"]): text(row["pre_deduct_key"]) for row in live}
    return fields, holds, buyers


def _live_rows(reader: Database, sku_id: int) -> list[Row]:
    """All rows at 1 and 2, in pages by user; ends because each page starts after the last one's end."""
    live: list[Row] = []
    after = b""
    while True:
        page = reader.rows("rebuild.live_page", sku_id, after, LIVE_PAGE_ROWS)
        live += page
        if len(page) < LIVE_PAGE_ROWS:
            return live
        after = page[-1]["user_id"]


def _hold(row: Row) -> Hold:
    return Hold(
        key=text(row["pre_deduct_key"]),
        user=text(row["user_id"]),
        quantity=row["quantity"],
        epoch=row["epoch"],
        ticket=row["ticket"],
        ms=int(row["created_ms"]),
    )


def _time_field(milliseconds: int | None) -> str:
    return "" if milliseconds is None else str(milliseconds)
