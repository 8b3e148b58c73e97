"""The books of a sale, read by SQL of its own that shares nothing with the product's."""

from dataclasses import dataclass
from urllib.parse import urlsplit

import pymysql


@dataclass(frozen=True)
class Books:
    """The accounts of one sale in MySQL, in units, at one moment."""

    total: int
    remaining: int
    cap: int
    used_tickets: int  # units of the current epoch that have any ledger row
    reserved: int
    landed: int
    rolled_back: int
    ordered: int
    unlike: int  # keys at status 2 without an order of that quantity, and orders whose row is not at 2


def read_books(database_url: str, sku_id: int) -> Books:
    """Read the accounts in one consistent snapshot."""
    with connect(database_url) as connection, connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")

        def one(text: str) -> int:
            cursor.execute(text, {"sku": sku_id})
            row = cursor.fetchone()
            assert row is not None, text
            return int(row[0] or 0)

        ledger = "SELECT SUM(quantity) FROM seckill_pre_deduct WHERE sku_id = %(sku)s"
        return Books(
            total=one("SELECT total FROM seckill_stock WHERE sku_id = %(sku)s"),
            remaining=one("SELECT remaining FROM seckill_stock WHERE sku_id = %(sku)s"),
            cap=one("SELECT cap FROM seckill_sale WHERE sku_id = %(sku)s"),
            used_tickets=one(f"{ledger} AND epoch = (SELECT epoch FROM seckill_sale WHERE sku_id = %(sku)s)"),
            reserved=one(f"{ledger} AND status = 1"),
            landed=one(f"{ledger} AND status = 2"),
            rolled_back=one(f"{ledger} AND status = 3"),
            ordered=one("SELECT SUM(quantity) FROM seckill_order WHERE sku_id = %(sku)s"),
            unlike=one(
                "SELECT COUNT(*) FROM seckill_pre_deduct l LEFT JOIN seckill_order o"
                " ON o.pre_deduct_key = l.pre_deduct_key AND o.quantity = l.quantity AND o.user_id = l.user_id"
                " WHERE l.sku_id = %(sku)s AND (l.status = 2) <> (o.order_id IS NOT NULL)"
            )
            + one(
                "SELECT COUNT(*) FROM seckill_order o LEFT JOIN seckill_pre_deduct l"
                " ON l.pre_deduct_key = o.pre_deduct_key WHERE o.sku_id = %(sku)s AND l.pre_deduct_key IS NULL"
            ),
        )


def assert_books_balance(database_url: str, sku_id: int) -> Books:
    """I0, I1 and I2 of docs/protocol.md hold for the sale."""
    books = read_books(database_url, sku_id)
    assert books.unlike == 0, f"I0: orders and rows at 2 are not the same keys: {books}"
    assert books.cap - books.used_tickets + books.reserved + books.landed == books.total, f"I1: {books}"
    assert books.remaining + books.ordered == books.total, f"I2: {books}"
    assert books.remaining - books.reserved >= 0, f"more is promised than remains: {books}"
    return books


def connect(database_url: str) -> "pymysql.Connection[pymysql.cursors.Cursor]":
    """A plain connection of the test's own; autocommit, closed by `with`."""
    parts = urlsplit(database_url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        password=parts.password or "",
        database=parts.path.strip("/"),
        autocommit=True,
        ssl_disabled=True,  # loopback; a TLS context costs each connection 20 ms
    )
