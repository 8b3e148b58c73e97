"""A real MySQL-family server on a private data directory: the machine's own, or its distribution's."""

import contextlib
import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from local.servers import debian
from local.servers.processes import Server, ServerError

Family = Literal["MariaDB", "MySQL"]

# CHECK constraints and SKIP LOCKED, both of which the protocol needs.
_OLDEST: dict[Family, tuple[int, int]] = {"MariaDB": (10, 6), "MySQL": (8, 0)}

# Places that are often missing in the PATH: an ordinary user's on Debian, a script's with brew.
_FURTHER_PLACES = (
    "/usr/sbin",
    "/usr/local/sbin",
    "/usr/libexec",
    "/opt/homebrew/bin",
    "/usr/local/bin",
    "/opt/homebrew/opt/mariadb/bin",
    "/opt/homebrew/opt/mysql/bin",
    "/usr/local/opt/mariadb/bin",
    "/usr/local/opt/mysql/bin",
)

# Beside the bootstrap's things, at the root of the checkout.
_FETCHED = Path(__file__).resolve().parents[2] / ".tools" / "database"

# It takes 1 s for MariaDB and 5 s for MySQL; a slow disk or a busy machine multiplies that.
_INITIALIZE_TIMEOUT_S = 120


@dataclass(frozen=True)
class Program:
    """A server program and how to run it."""

    command: tuple[str, ...]
    prefix: Path  # where its bin or sbin and share directories are
    family: Family

    def base_command(self, data: Path) -> list[str]:
        as_root = ["--user=root"] if os.geteuid() == 0 else []
        messages = next((self.prefix / "share").glob("m*/english"), None)
        return [
            *self.command,
            "--no-defaults",  # must be the first
            f"--basedir={self.prefix}",
            *([f"--lc-messages-dir={messages.parent}"] if messages else []),
            f"--datadir={data}",
            # Of its own: a server that starts removes every temporary table it finds, also a running neighbour's.
            f"--tmpdir={data.parent}",
            *as_root,
        ]

    def initialize(self, data: Path) -> None:
        """Writes the system tables into the empty directory `data`; root has no password.

        Raises:
            ServerError: the program can't work on this directory (AppArmor may forbid it).
        """
        if self.family == "MySQL":
            options, sql = ["--initialize-insecure"], ""
        else:
            # What mariadb-install-db does; that script can't be told how an unpacked server has to be run.
            options = ["--bootstrap", "--enforce-storage-engine=", "--max-allowed-packet=8M"]
            sql = self._system_tables()
        try:
            done = subprocess.run(
                [*self.base_command(data), *options],
                input=sql,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=_INITIALIZE_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServerError(f"{self.command[-1]}: {error}") from error
        if done.returncode != 0:
            last = " | ".join(done.stdout.strip().splitlines()[-3:])
            raise ServerError(f"{self.command[-1]} cannot make a data directory: {last}")

    def _system_tables(self) -> str:
        """The SQL files are named mysql_* before MariaDB 11 and mariadb_* since."""
        parts = ["CREATE DATABASE IF NOT EXISTS mysql;", "USE mysql;", "SET @auth_root_socket=NULL;"]
        for name in ("system_tables", "performance_tables", "system_tables_data"):
            found = next((self.prefix / "share").glob(f"m*/m*_{name}.sql"), None)
            if found is None:
                raise ServerError(f"{self.command[-1]}: no m*_{name}.sql under {self.prefix}/share")
            parts.append(found.read_text())
        return "\n".join(parts)


class DatabaseServer(Server):
    """MariaDB >= 10.6 or MySQL >= 8.0; user root without a password, on 127.0.0.1 only.

    Data that were committed survive `kill`; a power cut may take the last second.

    Args:
        directory: where its files go.
        family: "MariaDB" or "MySQL"; whichever is there when it is not given.
        options: further server options, such as "--default-time-zone=+08:00"; they come last and win.
    """

    name: ClassVar[str] = "database"

    def __init__(self, directory: Path, *, family: Family | None = None, options: Sequence[str] = ()) -> None:
        super().__init__(directory)
        self._families: tuple[Family, ...] = (family,) if family else ("MariaDB", "MySQL")
        self._options = tuple(options)
        self._program: Program | None = None

    @property
    def url(self) -> str:
        return self._url("seckill")

    def _url(self, database: str) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        """Makes the database if it is not there, and answers its URL."""
        create_database("127.0.0.1", self.port, "root", "", name)
        return self._url(name)

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def prepare(self) -> None:
        own = [functools.partial(_inspected, (str(file),), file.parent.parent) for file in _installed()]
        candidates: list[Callable[[], Program]] = [*own, functools.partial(_fetched, self._families)]
        reasons = []
        for candidate in candidates:
            shutil.rmtree(self._data, ignore_errors=True)
            self._data.mkdir()
            try:
                program = candidate()
                if program.family not in self._families:
                    raise ServerError(f"{program.command[-1]} is {program.family}")
                program.initialize(self._data)
            except ServerError as error:
                reasons.append(str(error))
            else:
                self._program = program
                return
        raise ServerError(
            f"no database server can be had ({'; '.join(reasons)}): install MariaDB >= 10.6 or MySQL >= 8.0 "
            "(macOS: brew install mariadb), or point SECKILL_TEST_DATABASE_URL at one"
        )

    def command(self) -> Sequence[str]:
        assert self._program is not None  # noqa: S101 - prepare() ran
        (self.directory / "files").mkdir(exist_ok=True)
        of_family = {
            "MariaDB": ["--log-warnings=1"],
            # The X plugin would listen on a port and a socket of its own.
            "MySQL": ["--mysqlx=OFF"],
        }[self._program.family]
        return [
            *self._program.base_command(self._data),
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
            # In the data directory; an absolute path could exceed the 104 bytes that a socket's may have.
            "--socket=sock",
            f"--pid-file={self.directory / 'pid'}",
            f"--secure-file-priv={self.directory / 'files'}",
            "--skip-log-bin",
            "--transaction-isolation=READ-COMMITTED",
            "--default-time-zone=+00:00",
            "--innodb-lock-wait-timeout=1",
            "--character-set-server=utf8mb4",
            "--max-connections=300",
            # Written at each commit, synced each second: enough against the death of the process.
            "--innodb-flush-log-at-trx-commit=2",
            *of_family,
            *self._options,
        ]

    def answers(self) -> bool:
        try:
            with contextlib.closing(_connect("127.0.0.1", self.port, "root", "")) as connection:
                cursor = connection.cursor()
                cursor.execute("SELECT @@datadir")
                (data,) = cursor.fetchone() or ("",)
        except pymysql.Error:
            return False
        return Path(data).resolve() == self._data.resolve()

    def start(self) -> None:
        super().start()
        self.create_database("seckill")


def create_database(host: str, port: int, user: str, password: str, name: str) -> None:
    """Makes the database if it is not there. Raises pymysql.Error."""
    with contextlib.closing(_connect(host, port, user, password)) as connection:
        connection.cursor().execute(f"CREATE DATABASE IF NOT EXISTS `{name}` CHARACTER SET utf8mb4")


def has_database(host: str, port: int, user: str, password: str, name: str) -> bool:
    """Whether the database is there and the user may use it. Raises pymysql.Error when the server can't be reached."""
    with contextlib.closing(_connect(host, port, user, password)) as connection:
        try:
            connection.select_db(name)
        except pymysql.Error:
            return False
    return True


def _connect(host: str, port: int, user: str, password: str) -> "Connection[Cursor]":
    return pymysql.connect(host=host, port=port, user=user, password=password, connect_timeout=2, read_timeout=10)


def _installed() -> list[Path]:
    """The machine's own server programs, the PATH's first."""
    places = [*os.environ.get("PATH", os.defpath).split(os.pathsep), *_FURTHER_PLACES]
    found = (shutil.which(name, path=place) for place in places for name in ("mariadbd", "mysqld"))
    # One may be a link to another.
    return list(dict.fromkeys(Path(program).resolve() for program in found if program))


def _fetched(families: Sequence[Family]) -> Program:
    """Raises ServerError."""
    root = debian.unpacked(_FETCHED, [family.lower() for family in families])
    program = next(iter([*root.glob("usr/sbin/mariadbd"), *root.glob("usr/sbin/mysqld")]))
    return _inspected((*debian.loader_command(root), str(program)), root / "usr")


def _inspected(command: tuple[str, ...], prefix: Path) -> Program:
    """Raises ServerError when the program does not run here or is too old."""
    try:
        answer = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerError(f"{command[-1]} does not run: {error}") from error
    family: Family = "MariaDB" if "MariaDB" in answer else "MySQL"
    found = re.search(r"Ver (\d+)\.(\d+)", answer)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version < _OLDEST[family]:
        raise ServerError(f"{command[-1]} is too old: {answer.strip()}")
    return Program(command, prefix, family)
