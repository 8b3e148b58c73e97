"""The drill's own way to the database: its own connection and URL reading, shared with nothing of the product."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pymysql

CONNECT_TIMEOUT_SECONDS = 5
# Longer than the longest lock wait the drill asks for (10 s).
STATEMENT_TIMEOUT_SECONDS = 30


def connect(url: str, *, database: str | None = None, autocommit: bool = True) -> pymysql.Connection:
    """A session on `mysql://user:password@host:port/name`; `database` overrides the name."""
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 3306,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        database=database if database is not None else parts.path.lstrip("/"),
        charset="utf8mb4",
        autocommit=autocommit,
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        read_timeout=STATEMENT_TIMEOUT_SECONDS,
        write_timeout=STATEMENT_TIMEOUT_SECONDS,
    )


def with_database(url: str, name: str) -> str:
    """The same server, another database."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()
