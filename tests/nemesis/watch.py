"""Watches the books while everything breaks, and tells when nothing is left open afterwards."""

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pymysql
import redis

from local.servers import Servers
from tests.books import assert_books_balance, connect
from tests.redis_copy import RedisCopy

# Each look costs the database ten short statements.
PAUSE_SECONDS = 0.1


@dataclass
class Watcher:
    """Looks at a random sale's books again and again while the database is there."""

    database_url: str
    sku_ids: Sequence[int]
    dice: random.Random
    looks: int = 0
    problems: list[str] = field(default_factory=list)

    def run(self, closing: threading.Event) -> None:
        """Until `closing`, which the first problem sets."""
        while not closing.wait(PAUSE_SECONDS):
            try:
                self._look(self.dice.choice(self.sku_ids))
            except pymysql.MySQLError:
                continue  # it is being killed
            except AssertionError as error:
                self.problems.append(str(error))
                closing.set()

    def _look(self, sku_id: int) -> None:
        """I0, I1, I2 and P3."""
        books = assert_books_balance(self.database_url, sku_id)
        assert books.reserved + books.landed <= books.total, f"P3: {books}"
        self.looks += 1


def open_ends(servers: Servers, sku_id: int) -> list[str]:
    """What is not finished: P4, and P7 as it shows. Books that do not balance or cannot be read are not, either."""
    try:
        return _open_ends(servers, sku_id)
    except (AssertionError, pymysql.MySQLError, redis.RedisError) as error:
        return [f"{type(error).__name__}: {error}"]


def _open_ends(servers: Servers, sku_id: int) -> list[str]:
    books = assert_books_balance(servers.database_url, sku_id)
    with connect(servers.database_url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT state, epoch FROM seckill_sale WHERE sku_id = %s", [sku_id])
        ((state, epoch),) = cursor.fetchall()
        cursor.execute(
            "SELECT user_id, pre_deduct_key FROM seckill_pre_deduct WHERE sku_id = %s AND status IN (1, 2)", [sku_id]
        )
        buyers = {user.decode(): key.decode() for user, key in cursor.fetchall()}
    copy = RedisCopy(servers.redis_url, sku_id)
    sale, held, buyers_there = copy.everything()
    open_ends = {
        f"{books.reserved} units pending": books.reserved > 0,
        f"the copy is of epoch {sale.get('epoch')}, MySQL of {epoch}": sale.get("epoch") != str(epoch),
        f"the copy is {sale.get('state')}, the sale {state}": sale.get("state") != state,
        f"Redis stock {sale.get('stock')}, remaining {books.remaining}": sale.get("stock") != str(books.remaining),
        f"{len(held)} holds": held != {"#epoch": str(epoch)},
        "Redis knows other buyers": buyers_there
        != {"#epoch": str(epoch)} | {f"u:{user}": key for user, key in buyers.items()},
    }
    return [name for name, is_open in open_ends.items() if is_open]
