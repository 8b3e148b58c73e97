"""All that there is of one sale at one quiet moment, read by statements and commands that the product does not use."""

import json
from dataclasses import dataclass
from typing import Any

from tests.faults.market import Market

TABLES = ("sale", "stock", "pre_deduct", "order", "notice")


@dataclass(frozen=True)
class Row:
    """A row of the ledger."""

    key: str
    user: str
    quantity: int
    epoch: int
    ticket: int
    status: int
    reason: str | None

    @property
    def live(self) -> bool:
        return self.status in (1, 2)


@dataclass(frozen=True)
class Copy:
    """Redis's three hashes; the sentinels are in none of them."""

    sale: dict[str, str]
    held: dict[str, dict[str, Any]]
    buyers: dict[str, str]
    sentinels: tuple[str | None, str | None]

    @property
    def epoch(self) -> int | None:
        """The copy's epoch, when it is whole."""
        epoch = self.sale.get("epoch")
        return int(epoch) if epoch is not None and self.sentinels == (epoch, epoch) else None


@dataclass(frozen=True)
class Evidence:
    """One sale. Units are units, keys and users are text."""

    state: str
    epoch: int
    cap: int
    quantity: int
    total: int
    remaining: int
    rows: dict[str, Row]
    orders: list[tuple[str, str, int]]  # key, user, quantity
    notices: list[tuple[str, bool]]  # key, sent
    copy: Copy

    def units(self, *statuses: int) -> int:
        """Units of the rows at these statuses."""
        return sum(row.quantity for row in self.rows.values() if row.status in statuses)


def read_evidence(market: Market, sku_id: int) -> Evidence | None:
    """Everything of the sale; None when the database has none."""
    found: dict[str, list[dict[str, Any]]] = {}
    with market.database.cursor() as cursor:
        # All in one round trip: thousands of these are read.
        cursor.execute(";".join(f"SELECT * FROM seckill_{table} WHERE sku_id = {sku_id:d}" for table in TABLES))
        for table in TABLES:
            found[table] = list(cursor.fetchall())
            cursor.nextset()
    if not found["sale"]:
        assert not any(found.values()), f"parts of a sale that is not there: {found}"
        return None
    sale, stock = found["sale"][0], found["stock"][0]
    return Evidence(
        state=sale["state"],
        epoch=sale["epoch"],
        cap=sale["cap"],
        quantity=sale["quantity"],
        total=stock["total"],
        remaining=stock["remaining"],
        rows={row.key: row for row in map(_row, found["pre_deduct"])},
        orders=[(o["pre_deduct_key"].decode(), o["user_id"].decode(), o["quantity"]) for o in found["order"]],
        notices=[(n["pre_deduct_key"].decode(), n["sent_at"] is not None) for n in found["notice"]],
        copy=_copy(market, sku_id),
    )


def _row(row: dict[str, Any]) -> Row:
    return Row(
        row["pre_deduct_key"].decode(), row["user_id"].decode(), row["quantity"], row["epoch"], row["ticket"],
        row["status"], row["reason"],
    )  # fmt: skip


def _copy(market: Market, sku_id: int) -> Copy:
    pipeline = market.redis.pipeline()
    for part in ("sale", "held", "buyers"):
        pipeline.hgetall(f"seckill:{{{sku_id}}}:{part}")
    hashes = pipeline.execute()
    sale, held, buyers = ({field.decode(): text.decode() for field, text in found.items()} for found in hashes)
    sentinels = (held.pop("#epoch", None), buyers.pop("#epoch", None))
    return Copy(
        sale,
        {key: json.loads(text) for key, text in held.items()},
        {field.removeprefix("u:"): key for field, key in buyers.items()},
        sentinels,
    )
