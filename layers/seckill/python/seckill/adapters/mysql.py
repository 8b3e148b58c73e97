"""MySQL (InnoDB, READ COMMITTED, primary only), the truth: one connection, named statements, classified errors.

Statements live in sql/<verb>.sql, each under a line `-- name: <statement>`, and are called `"<verb>.<statement>"`.
"""

import re
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pymysql
from pymysql.cursors import DictCursor

from seckill.adapters.environment import from_environment
from seckill.adapters.iam_tokens import Role, Token, database_token
from seckill.domain.deadline import Deadline

ACCESS_DENIED, DUPLICATE, LOCK_TIMEOUT, DEADLOCK = 1045, 1062, 1205, 1213
# Errors that name a row: its data will never fit, however often it is tried (docs/protocol.md 6.1).
ROW_CODES = frozenset({1048, DUPLICATE, 1264, 1366, 1406, 1451, 1452, 1644, 3819, 4025})
# The connection is gone, was never had, or leads to a server that is no longer the primary (1290, 1792, 1836).
UNREACHABLE_CODES = frozenset(
    {
        0,
        1040,
        1053,
        1152,
        1153,
        1158,
        1159,
        1160,
        1161,
        1203,
        1290,
        1792,
        1836,
        1927,
        2002,
        2003,
        2006,
        2013,
        2014,
        2055,
    }
)

Row = dict[str, Any]


class DatabaseError(Exception):
    """A statement failed; `code` is the server's or the client's number."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Unreachable(DatabaseError):
    """No connection, or lost while waiting: what had been sent may have run or may still run."""


class CommitUnknown(Unreachable):
    """COMMIT was sent and did not answer OK: the transaction may or may not be there."""


class LockTimeout(DatabaseError):
    """Somebody held the lock for too long; only this statement was undone."""


class Deadlock(DatabaseError):
    """The whole transaction was undone."""


class RowRefused(DatabaseError):
    """The row itself cannot be written."""


class Duplicate(RowRefused):
    """A unique key is taken; which one, only a SELECT tells (servers differ in the text)."""


class Database:
    """One connection to the primary, used by one call at a time.

    `url` is mysql://user:password@host:port/database. Every wait is bounded by the deadline of `new_call`. Raises
    DatabaseError's subclasses only.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: _Connection | None = None
        self._checked = False
        self._in_transaction = False
        self.deadline = Deadline(seconds=1.0)

    def new_call(self, deadline: Deadline) -> None:
        """Begin a call: its first statement checks the connection, since a container may have slept for minutes."""
        self.deadline = deadline
        self._checked = False

    def execute(self, statement: str, *arguments: Any, **named: Any) -> int:
        """Run a named statement; rows affected."""
        return int(self._send(statement, sql(statement), arguments or named).rowcount)

    def rows(self, statement: str, *arguments: Any, **named: Any) -> list[Row]:
        """Run a named SELECT; its rows by column name."""
        return list(self._send(statement, sql(statement), arguments or named).fetchall())

    def row(self, statement: str, *arguments: Any, **named: Any) -> Row | None:
        """The first row of a named SELECT, if any."""
        found = self.rows(statement, *arguments, **named)
        return found[0] if found else None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside commits together. On any exception ROLLBACK; never a reconnect inside.

        A lock-wait time-out undoes one statement only, so a later COMMIT would keep half a transaction
        (docs/protocol.md 5). Raises CommitUnknown when COMMIT did not answer OK.
        """
        self._send("begin", "START TRANSACTION")
        self._in_transaction = True
        try:
            yield
            self._commit()
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._in_transaction = False

    @contextmanager
    def consistent_read(self) -> Iterator["Database"]:
        """A REPEATABLE READ transaction on a connection of its own: all its SELECTs see one moment."""
        reader = Database(self._url)
        reader.new_call(self.deadline)
        try:
            # For the session, which ends here: RDS Proxy follows that, but pins a connection set for one transaction.
            reader._send("isolation", "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader._send("begin", "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            reader._in_transaction = True
            yield reader
        finally:
            reader.close()

    def run_script(self, text: str) -> None:
        """Run the statements of a migration, one after the other; a line that ends with ; ends a statement."""
        for part in re.split(r";[ \t]*$", _without_comments(text), flags=re.MULTILINE):
            if part.strip():
                self._send("script", part.strip())

    def close(self) -> None:
        """Drop the connection; the server rolls back what was not committed."""
        if self._connection is not None:
            self._connection.drop()
            self._connection = None

    def _send(self, name: str, text: str, arguments: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """The one place where a statement leaves this process; `name` tells which."""
        connection = self._ready()
        try:
            cursor = connection.cursor(DictCursor)
            cursor.execute(text, arguments or None)
            return cursor
        except (pymysql.MySQLError, OSError) as error:
            failure = _classified(error, name)
            if isinstance(failure, Unreachable):
                self.close()
            raise failure from error

    def _ready(self) -> "_Connection":
        if self._in_transaction:
            if self._connection is None:
                raise Unreachable(2006, "the connection was lost inside the transaction")
            return self._connection
        if self._connection is not None and not self._checked:
            self._check(self._connection)
        if self._connection is None:
            self._connection = _connect(self._url, self)
        self._checked = True
        return self._connection

    def _check(self, connection: "_Connection") -> None:
        try:
            connection.ping(reconnect=False)
        except (pymysql.MySQLError, OSError):
            self.close()

    def _commit(self) -> None:
        try:
            self._send("commit", "COMMIT")
        except DatabaseError as error:
            self.close()
            raise CommitUnknown(error.code, f"COMMIT: {error}") from error

    def _roll_back(self) -> None:
        try:
            if self._connection is not None:
                self._send("rollback", "ROLLBACK")
        except DatabaseError:
            self.close()  # the server rolls back when the connection ends


class _Connection(pymysql.Connection):
    """PyMySQL's connection; each wait, the handshake's too, is what the owner's deadline allows at that moment."""

    def __init__(self, owner: Database, **settings: Any) -> None:
        self._owner = owner
        super().__init__(**settings)

    @property
    def _wait(self) -> float:
        return self._owner.deadline.wait()

    @_wait.setter
    def _wait(self, seconds: float | None) -> None:
        """PyMySQL keeps fixed time-outs here; they are not used."""

    connect_timeout = _read_timeout = _write_timeout = _wait

    def connect(self, sock: socket.socket | None = None) -> None:
        super().connect(sock or _dialled(str(self.host), self.port, self._owner))

    def drop(self) -> None:
        self._force_close()  # type: ignore[attr-defined]


def _dialled(host: str, port: int, owner: Database) -> socket.socket:
    """As socket.create_connection, which would grant the whole time-out anew to each address of the name."""
    problem = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        dialled = socket.socket(family, kind, protocol)
        try:
            dialled.settimeout(owner.deadline.wait())
            dialled.connect(address)
            dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            dialled.close()
            problem = error
        else:
            return dialled
    raise problem


def _connect(url: str, owner: Database) -> _Connection:
    """A connection; one that IAM refuses is tried once more with a password signed afresh (nothing was sent yet)."""
    try:
        try:
            return _open(url, owner)
        except pymysql.OperationalError as error:
            if error.args[0] != ACCESS_DENIED or not _signed(url):
                raise
            _token(url).refused()
            return _open(url, owner)
    except (pymysql.MySQLError, OSError) as error:
        failure = _classified(error, "connect")
        raise failure if isinstance(failure, Unreachable) else Unreachable(failure.code, str(failure)) from error


def _open(url: str, owner: Database) -> _Connection:
    parts = urlsplit(url)
    tls = parse_qs(parts.query).get("tls") == ["true"]
    return _Connection(
        owner,
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        # PyMySQL would encode a text as Latin-1.
        password=(_token(url).text() if _signed(url) else unquote(parts.password or "")).encode(),
        database=parts.path.strip("/"),
        charset="utf8mb4",
        autocommit=True,
        # An empty or missing context means "encrypt if the server likes, believe anybody".
        ssl=ssl.create_default_context() if tls else None,
        ssl_disabled=not tls,
    )


def _signed(url: str) -> bool:
    return parse_qs(urlsplit(url).query).get("auth") == ["iam"]


@cache
def _token(url: str) -> Token:
    """The password of this URL's user, signed with the function's role: one for all connections of the container."""
    parts = urlsplit(url)
    host, port, user = parts.hostname or "", parts.port or 3306, unquote(parts.username or "")
    return Token(lambda: database_token(from_environment(Role), host=host, port=port, user=user))


def _classified(error: BaseException, name: str) -> DatabaseError:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    kinds: dict[int, type[DatabaseError]] = {
        DUPLICATE: Duplicate,
        LOCK_TIMEOUT: LockTimeout,
        DEADLOCK: Deadlock,
    }
    kind = kinds.get(code)
    if kind is None and code in ROW_CODES:
        kind = RowRefused
    if kind is None and (code in UNREACHABLE_CODES or not isinstance(error, pymysql.MySQLError)):
        kind = Unreachable
    return (kind or DatabaseError)(code, f"{name}: {error.args[-1] if error.args else type(error).__name__}")


@cache
def _statements(verb: str) -> dict[str, str]:
    text = (files("seckill") / "sql" / f"{verb}.sql").read_text()
    parts = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)
    return {
        name: _without_comments(body).strip().removesuffix(";")
        for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def sql(statement: str) -> str:
    """The text of "<verb>.<statement>"; KeyError when there is none."""
    verb, name = statement.split(".")
    return _statements(verb)[name]


def _without_comments(text: str) -> str:
    return re.sub(r"^--.*\n?", "", text, flags=re.MULTILINE)
