"""Fault C: the hot stock row held by one session, with as many more in line for it as make a full pool."""

from __future__ import annotations

import contextlib
import threading
from typing import Self

import pymysql

from drill.database import connect

POOL_CONNECTIONS = 20  # the incident's pool; all of it is busy with the hot row
LOCK_WAIT_EXCEEDED = 1205
# The holder may have to wait for landings under way; after this long the fault could not be injected.
HOLDER_LOCK_WAIT_SECONDS = 10


class HeldRow:
    """`with HeldRow(url, table, sku_id):` no other session changes that stock row meanwhile."""

    def __init__(self, database_url: str, table: str, sku_id: int) -> None:
        self._database_url = database_url
        self._lock_sql = f"SELECT remaining FROM {table} WHERE sku_id = %s FOR UPDATE"  # noqa: S608 (own constant)
        self._sku_id = sku_id
        self._released = threading.Event()
        self._in_line: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._holder = connect(self._database_url, autocommit=False)
        try:
            with self._holder.cursor() as cursor:
                cursor.execute("SET SESSION innodb_lock_wait_timeout = %s", (HOLDER_LOCK_WAIT_SECONDS,))
                cursor.execute(self._lock_sql, (self._sku_id,))
        except BaseException:
            self._holder.close()
            raise
        for _ in range(POOL_CONNECTIONS - 1):
            thread = threading.Thread(target=self._stand_in_line, name="pool connection", daemon=True)
            thread.start()
            self._in_line.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._holder.close()  # an open transaction ends with its session
        for thread in self._in_line:
            thread.join(
                timeout=5
            )  # each waits for the lock 1 s at most; daemon threads, so a stuck one ends with the drill

    def _stand_in_line(self) -> None:
        # A session that cannot be had (max_connections) leaves the pool that much smaller, no more.
        with contextlib.suppress(pymysql.MySQLError), contextlib.closing(connect(self._database_url)) as session:
            session.autocommit(False)
            with session.cursor() as cursor:
                cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
                while not self._released.is_set():  # ends with the hold, which the director bounds
                    try:
                        cursor.execute(self._lock_sql, (self._sku_id,))
                    except pymysql.OperationalError as error:
                        if error.args[0] != LOCK_WAIT_EXCEEDED:
                            raise
                    session.rollback()
