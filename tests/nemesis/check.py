"""The verdict: the buyers' history held against the ledger, by statements that the product does not use."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.books import connect
from tests.nemesis.buyers import Asked, Outcome

TOMBSTONE = "abandoned"
# What a buyer may be told; after a fail-over to a copy from before the sale, also that there is none.
ANSWERS = {0, 200, 202, 404, 409, 410, 503}


@dataclass(frozen=True)
class Row:
    """A row of the ledger. `landed_at` and the notices' times are seconds since 1970."""

    key: str
    user: str
    quantity: int
    status: int
    reason: str | None
    landed_at: float | None


@dataclass(frozen=True)
class Ledger:
    """What MySQL has of one sale in the end. `orders` are the keys of all orders, `top_ups` (time, units)."""

    sku_id: int
    total: int
    rows: dict[str, Row]
    orders: list[str]
    order_users: list[str]
    notices: dict[str, float]
    top_ups: list[tuple[float, int]]

    def total_at(self, moment: float) -> int:
        """Units there were at that time. A top-up counts from its beginning: nobody can be promised them before."""
        return self.total - sum(units for at, units in self.top_ups if at > moment)


@dataclass(frozen=True)
class Outstanding:
    """A promise, for as long as it was there beyond doubt: from the first time anybody saw it to its roll-back."""

    key: str
    user: str
    quantity: int
    begins: float
    ends: float


def verdict(ledger: Ledger, history: Iterable[Asked]) -> list[str]:
    """What is wrong with the sale, in a quiet moment after the end; nothing if all is well."""
    asked = [one for one in history if one.sku_id == ledger.sku_id]
    outstanding = _outstanding(ledger, asked)
    problems = [
        *_kept(ledger, asked),
        *_orders(ledger, asked),
        *_never_too_much(ledger, outstanding),
        *_one_each(outstanding),
        *(f"{one.user} was answered {one.status} {one.code}" for one in asked if one.status not in ANSWERS),
    ]
    return [f"SKU {ledger.sku_id}: {problem}" for problem in problems]


def _kept(ledger: Ledger, asked: Sequence[Asked]) -> Iterator[str]:
    """P2: the key of every 2xx has exactly one order or a notice, and so has every row that was ever a promise."""
    orders = Counter(ledger.orders)
    told = {(one.key, one.user) for one in asked if one.outcome is Outcome.OK}
    for key, user in sorted(told, key=str):
        row = ledger.rows.get(key or "")
        if row is None or row.user != user:
            yield f"{user} was promised {key}, and the ledger has {row}"
    promised = {key for key, _ in told} | {row.key for row in ledger.rows.values() if row.reason != TOMBSTONE}
    for key in sorted(promised, key=str):
        ends = orders[key or ""], int(key in ledger.notices)
        if ends not in ((1, 0), (0, 1)):
            yield f"{key} has {ends[0]} orders and {ends[1]} notices"
    for one in asked:
        if one.outcome is Outcome.OK and one.code == "LANDED" and orders[one.key or ""] != 1:
            yield f"{one.user} was told that {one.key} had landed"


def _orders(ledger: Ledger, asked: Sequence[Asked]) -> Iterator[str]:
    """P1, P5: no more orders than units, one for a user, and only for those who asked."""
    units = sum(ledger.rows[key].quantity for key in ledger.orders if key in ledger.rows)
    if units > ledger.total:
        yield f"{units} units ordered of {ledger.total}"
    for key in ledger.orders:
        if key not in ledger.rows:
            yield f"the order of {key} has no row in the ledger"
    for user, number in Counter(ledger.order_users).items():
        if number > 1:
            yield f"{user} has {number} orders"
    for user in set(ledger.order_users) - {one.user for one in asked}:
        yield f"{user} has an order and never asked"


def _outstanding(ledger: Ledger, asked: Sequence[Asked]) -> list[Outstanding]:
    """Only what is beyond doubt: the time of a statement comes before its COMMIT, so a row's own creation time could
    be before the roll-back that it had to wait for.
    """
    seen: dict[str, float] = {row.key: row.landed_at for row in ledger.rows.values() if row.landed_at is not None}
    for one in asked:
        if one.outcome is Outcome.OK and one.key:
            seen[one.key] = min(one.ended, seen.get(one.key, one.ended))
    promises = [
        Outstanding(key, row.user, row.quantity, seen[key], ledger.notices.get(key, float("inf")))
        for key, row in ledger.rows.items()
        if key in seen
    ]
    return [one for one in promises if one.begins < one.ends]  # an answer may come after its roll-back


def _never_too_much(ledger: Ledger, outstanding: Sequence[Outstanding]) -> Iterator[str]:
    """P3: promises outstanding and orders together never exceeded the total, at no moment. Names the first one."""
    changes = [(one.begins, one.quantity) for one in outstanding] + [(one.ends, -one.quantity) for one in outstanding]
    units = 0
    for moment, change in sorted(changes):  # at the same moment, what ends goes first
        units += change
        if units > ledger.total_at(moment):
            yield f"{units} units were promised of {ledger.total_at(moment)} at {moment:.3f}"
            return


def _one_each(outstanding: Sequence[Outstanding]) -> Iterator[str]:
    """P5: at no moment had a user two promises."""
    of_user: dict[str, list[Outstanding]] = defaultdict(list)
    for one in outstanding:
        of_user[one.user].append(one)
    for user, promises in of_user.items():
        promises.sort(key=lambda one: one.begins)
        for first, second in itertools.pairwise(promises):
            if second.begins < first.ends:
                yield f"{user} had two promises at {second.begins:.3f}: {first.key} and {second.key}"


def read_ledger(database_url: str, sku_id: int) -> Ledger | None:
    """Everything of a sale; None when it never came to be."""
    with connect(database_url) as connection, connection.cursor() as cursor:

        def select(text: str) -> list[tuple[Any, ...]]:
            cursor.execute(text, [sku_id])
            return list(cursor.fetchall())

        stock = select("SELECT total FROM seckill_stock WHERE sku_id = %s")
        if not stock:
            return None
        rows = select(
            "SELECT pre_deduct_key, user_id, quantity, status, reason, IF(status = 2, updated_at, NULL)"
            " FROM seckill_pre_deduct WHERE sku_id = %s"
        )
        orders = select("SELECT pre_deduct_key, user_id FROM seckill_order WHERE sku_id = %s")
        notices = select("SELECT pre_deduct_key, created_at FROM seckill_notice WHERE sku_id = %s")
        top_ups = select("SELECT created_at, units FROM seckill_top_up WHERE sku_id = %s")
    return Ledger(
        sku_id=sku_id,
        total=stock[0][0],
        rows={
            key.decode(): Row(key.decode(), user.decode(), quantity, status, reason, _seconds(landed_at))
            for key, user, quantity, status, reason, landed_at in rows
        },
        orders=[key.decode() for key, _ in orders],
        order_users=[user.decode() for _, user in orders],
        notices={key.decode(): at.replace(tzinfo=UTC).timestamp() for key, at in notices},
        top_ups=[(at.replace(tzinfo=UTC).timestamp(), units) for at, units in top_ups],
    )


def _seconds(time: datetime | None) -> float | None:
    return time.replace(tzinfo=UTC).timestamp() if time else None
