"""What an error of the database is taken for, each one made by a real server."""

import contextlib
import threading
import time

import pytest

from local.servers import DatabaseServer
from seckill.adapters.mysql import (
    Database,
    DatabaseError,
    Deadlock,
    Duplicate,
    LockTimeout,
    RowRefused,
    Unreachable,
)
from tests.books import connect
from tests.ledger import Ledger
from tests.proxy import Proxy
from tests.sales import Sales, fresh_sku_id
from tests.stores import open_database, thread_of

LOCK_STOCK = "SELECT 1 FROM seckill_stock WHERE sku_id = %(sku)s FOR UPDATE"


def test_a_taken_key_is_a_duplicate(database: Database) -> None:
    sku_id = fresh_sku_id()
    database.execute("sale.insert_stock", sku_id, 1, 1)
    with pytest.raises(Duplicate) as failure:
        database.execute("sale.insert_stock", sku_id, 1, 1)
    assert failure.value.code == 1062


def test_a_row_against_a_check_is_a_refused_row_and_no_duplicate(database: Database) -> None:
    with pytest.raises(RowRefused) as failure:
        database.execute("sale.insert_stock", fresh_sku_id(), 1, -1)
    assert not isinstance(failure.value, Duplicate)
    assert failure.value.code in (3819, 4025)  # MySQL's and MariaDB's number for it


def test_a_value_too_long_for_its_column_is_a_refused_row(database: Database, sales: Sales) -> None:
    sku_id = sales.open(total=1)
    with pytest.raises(RowRefused) as failure:
        database.execute("abandon.tombstone", "k" * 37, sku_id, "alice", 1, 1, 1)
    assert failure.value.code == 1406


def test_a_statement_that_is_wrong_is_none_of_the_known_failures(database: Database) -> None:
    with pytest.raises(DatabaseError) as failure:
        database.run_script("SELECT no_such_column FROM seckill_sale;")
    assert type(failure.value) is DatabaseError
    assert failure.value.code == 1054


def test_a_lock_held_by_another_session_is_a_lock_time_out(own_database: DatabaseServer) -> None:
    with contextlib.closing(open_database(own_database.url)) as database:
        sku_id = stock_rows(database, 1)[0]
        held = Ledger(own_database.url, sku_id).locked(LOCK_STOCK)
        with held, pytest.raises(LockTimeout) as failure:
            database.execute("land.take_stock", 1, sku_id, 1)
        assert failure.value.code == 1205
        assert database.execute("land.take_stock", 1, sku_id, 1) == 1


def test_the_victim_of_a_deadlock_is_told_so_and_keeps_nothing(own_database: DatabaseServer) -> None:
    with contextlib.closing(open_database(own_database.url)) as database:
        first, second, *weight = stock_rows(database, 12)
        with connect(own_database.url) as other, other.cursor() as cursor:
            # The server gives up the lighter transaction: this one, with more rows changed, it keeps.
            cursor.execute("START TRANSACTION")
            cursor.execute("UPDATE seckill_stock SET total = total + 1 WHERE sku_id IN %s", ([second, *weight],))
            waiting = threading.Thread(
                target=cursor.execute, args=("UPDATE seckill_stock SET total = total + 1 WHERE sku_id = %s", (first,))
            )
            with pytest.raises(Deadlock) as failure, database.transaction():
                database.execute("land.take_stock", 1, first, 1)
                waiting.start()
                database.execute("land.take_stock", 1, second, 1)
            assert failure.value.code == 1213
            waiting.join(10)
            assert not waiting.is_alive()
            cursor.execute("ROLLBACK")
        assert Ledger(own_database.url, first).remaining() == 1
        assert database.execute("land.take_stock", 1, first, 1) == 1


def test_a_connection_killed_while_it_waits_is_a_lost_connection(own_database: DatabaseServer) -> None:
    with Proxy(own_database.url) as proxy, contextlib.closing(open_database(proxy.url)) as database:
        sku_id = stock_rows(database, 1)[0]
        with Ledger(own_database.url, sku_id).locked(LOCK_STOCK):
            killer = threading.Thread(target=kill_waiting, args=(own_database.url, database))
            proxy.before(rb"UPDATE seckill_stock", killer.start)
            with pytest.raises(Unreachable):
                database.execute("land.take_stock", 1, sku_id, 1)
            killer.join(10)
        assert database.execute("land.take_stock", 1, sku_id, 1) == 1


def kill_waiting(database_url: str, database: Database) -> None:
    """KILL a connection as soon as its UPDATE runs; gives up when the lock's own time-out would have come."""
    thread = thread_of(database)
    text = "SELECT 1 FROM information_schema.processlist WHERE id = %s AND info LIKE 'UPDATE%%'"
    with connect(database_url) as other, other.cursor() as cursor:
        give_up = time.monotonic() + 0.9
        while cursor.execute(text, (thread,)) == 0 and time.monotonic() < give_up:
            pass
        cursor.execute("KILL %s", (thread,))


def stock_rows(database: Database, count: int) -> list[int]:
    """SKUs of new stock rows of one unit, ascending."""
    sku_ids = [fresh_sku_id() for _ in range(count)]
    for sku_id in sku_ids:
        database.execute("sale.insert_stock", sku_id, 1, 1)
    return sku_ids
