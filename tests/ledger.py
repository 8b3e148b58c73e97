"""The tables, read and changed by hand: what an operator, a crash or a restore may have left there."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.books import connect


@dataclass(frozen=True)
class Row:
    """A row of the ledger, and how many orders its key has."""

    key: str
    user: str
    epoch: int
    ticket: int
    status: int
    reason: str | None
    orders: int


@dataclass(frozen=True)
class Ledger:
    """The rows of one sale; statements run in autocommit."""

    database_url: str
    sku_id: int

    def rows(self) -> dict[str, Row]:
        """All rows of the sale by key, in the order of their keys."""
        found = self.select(
            "SELECT l.pre_deduct_key, l.user_id, l.epoch, l.ticket, l.status, l.reason, COUNT(o.order_id)"
            " FROM seckill_pre_deduct l LEFT JOIN seckill_order o ON o.pre_deduct_key = l.pre_deduct_key"
            " WHERE l.sku_id = %(sku)s"
            " GROUP BY l.pre_deduct_key, l.user_id, l.epoch, l.ticket, l.status, l.reason ORDER BY l.pre_deduct_key"
        )
        rows = (Row(row[0].decode(), row[1].decode(), *row[2:]) for row in found)
        return {row.key: row for row in rows}

    def statuses(self) -> dict[str, int]:
        """Statuses by key."""
        return {key: row.status for key, row in self.rows().items()}

    def select(self, text: str, **values: Any) -> list[tuple[Any, ...]]:
        """Rows of a SELECT; %(sku)s is the sale's SKU."""
        with connect(self.database_url) as connection, connection.cursor() as cursor:
            cursor.execute(text, {"sku": self.sku_id, **values})
            return list(cursor.fetchall())

    def run(self, text: str, **values: Any) -> int:
        """Rows affected by a statement; %(sku)s is the sale's SKU."""
        with connect(self.database_url) as connection, connection.cursor() as cursor:
            return cursor.execute(text, {"sku": self.sku_id, **values})

    def cap(self) -> int:
        """How many tickets of this epoch are honoured."""
        ((cap,),) = self.select("SELECT cap FROM seckill_sale WHERE sku_id = %(sku)s")
        return int(cap)

    def remaining(self) -> int:
        """Units without an order."""
        ((remaining,),) = self.select("SELECT remaining FROM seckill_stock WHERE sku_id = %(sku)s")
        return int(remaining)

    def roll_back(self, key: str, reason: str = "could not be landed") -> None:
        """Status 1 -> 3 with the books kept, as docs/protocol.md 6.1 does it."""
        changed = self.run(
            "UPDATE seckill_pre_deduct SET status = 3, reason = %(reason)s"
            " WHERE pre_deduct_key = %(key)s AND status = 1",
            key=key,
            reason=reason,
        )
        assert changed == 1
        self.run("UPDATE seckill_sale SET cap = cap + quantity WHERE sku_id = %(sku)s")

    @contextlib.contextmanager
    def refusing(self, table: str, condition: str, code: int = 1644) -> Iterator[None]:
        """Rows of this sale for which `condition` (over NEW) holds cannot be inserted: the server says error `code`."""
        name = f"refuse_{table}_{self.sku_id}"
        self.run(
            f"CREATE TRIGGER {name} BEFORE INSERT ON {table} FOR EACH ROW"
            f" IF NEW.sku_id = {self.sku_id} AND {condition} THEN"
            " SIGNAL SQLSTATE '45000'"
            f" SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'refused by the test'; END IF"
        )
        try:
            yield
        finally:
            self.run(f"DROP TRIGGER {name}")

    @contextlib.contextmanager
    def locked(self, statement: str) -> Iterator[None]:
        """Another session holds the locks that `statement` takes, and in the end gives them back unused."""
        with connect(self.database_url) as connection, connection.cursor() as cursor:
            cursor.execute("START TRANSACTION")
            cursor.execute(statement, {"sku": self.sku_id})
            try:
                yield
            finally:
                cursor.execute("ROLLBACK")
