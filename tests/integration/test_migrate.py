"""Migrations: from an empty database, again, all at once, and after one that died half-way."""

import itertools
import os
from collections.abc import Iterator
from importlib.resources import files

import pytest

from local.servers import Servers
from seckill.adapters.mysql import Database
from seckill.domain.deadline import Deadline
from seckill.protocol.migrate import Migrated, MigrationBusy, migrate
from tests.books import connect
from tests.crowd import at_once
from tests.ledger import Ledger

VERSIONS = sorted(
    int(file.name[:4]) for file in (files("seckill") / "sql" / "migrations").iterdir() if file.name.endswith(".sql")
)
TABLES = {
    "seckill_sale",
    "seckill_stock",
    "seckill_pre_deduct",
    "seckill_order",
    "seckill_notice",
    "seckill_top_up",
    "seckill_migration",
}

_numbers = itertools.count(1)


@pytest.fixture
def empty_database(servers: Servers) -> Iterator[str]:
    """The URL of a database without tables, dropped afterwards."""
    name = f"seckill_empty_{os.getpid()}_{next(_numbers)}"
    with connect(servers.database_url) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        try:
            yield servers.database_url.rpartition("/")[0] + "/" + name
        finally:
            cursor.execute(f"DROP DATABASE {name}")


def migrate_patiently(database: Database) -> Migrated:
    """Ask again while another test process migrates on a server they share."""
    deadline = Deadline(seconds=30, longest_wait=20)
    database.new_call(deadline)
    while True:  # each try waits a second for the lock
        try:
            return migrate(database)
        except MigrationBusy:
            assert deadline.left(), "another migration runs for ever"


def migrated(url: str) -> Migrated:
    """Migrate over a connection of its own."""
    database = Database(url)
    try:
        return migrate_patiently(database)
    finally:
        database.close()


def schema(url: str) -> dict[str, str]:
    """The definition of every table, without the counter of order ids."""
    ledger = Ledger(url, sku_id=0)
    names = [name for (name,) in ledger.select("SHOW TABLES")]
    return {name: ledger.select(f"SHOW CREATE TABLE {name}")[0][1].split(" AUTO_INCREMENT=")[0] for name in names}


def versions(url: str) -> list[int]:
    """The versions that the database says it has had."""
    return [
        version for (version,) in Ledger(url, sku_id=0).select("SELECT version FROM seckill_migration ORDER BY version")
    ]


def test_an_empty_database_gets_all_tables_and_says_so(empty_database: str) -> None:
    done = migrated(empty_database)
    assert (done.version, done.applied) == (VERSIONS[-1], VERSIONS)
    assert schema(empty_database).keys() >= TABLES
    assert versions(empty_database) == VERSIONS


def test_migrating_again_changes_nothing(empty_database: str) -> None:
    migrated(empty_database)
    before = schema(empty_database)
    again = migrated(empty_database)
    assert (again.version, again.applied) == (VERSIONS[-1], [])
    assert schema(empty_database) == before
    assert versions(empty_database) == VERSIONS


def test_migrations_at_once_apply_each_version_once(empty_database: str) -> None:
    applied = at_once([lambda: migrated(empty_database).applied] * 6)
    assert sorted(version for some in applied for version in some) == VERSIONS
    assert versions(empty_database) == VERSIONS
    assert schema(empty_database).keys() >= TABLES


@pytest.mark.parametrize("missing", ["the version row", "the version table", "all but one table"])
def test_a_migration_that_died_half_way_is_finished(empty_database: str, missing: str) -> None:
    """DDL commits by itself: tables may be there although the version never got its row."""
    migrated(empty_database)
    whole = schema(empty_database)
    ledger = Ledger(empty_database, sku_id=1001)
    ledger.run("INSERT INTO seckill_sale (sku_id, state, epoch, cap) VALUES (%(sku)s, 'open', 1, 5)")
    if missing == "the version row":
        ledger.run("DELETE FROM seckill_migration")
    else:
        ledger.run("DROP TABLE seckill_migration")
    if missing == "all but one table":
        for table in TABLES - {"seckill_migration", "seckill_sale"}:
            ledger.run(f"DROP TABLE {table}")
    assert migrated(empty_database).applied == VERSIONS
    assert schema(empty_database) == whole
    assert versions(empty_database) == VERSIONS
    assert ledger.cap() == 5, "what was there stays"


def test_the_lock_is_given_back_by_a_connection_that_lives_on(database: Database) -> None:
    migrate_patiently(database)
    released = database.row("migrate.unlock")
    assert released is not None
    assert list(released.values()) != [1], "this connection still held it"


def test_while_another_migration_runs_a_migration_says_so(empty_database: str) -> None:
    database = Database(empty_database)
    with (
        Ledger(empty_database, sku_id=0).locked("SELECT GET_LOCK(CONCAT('seckill_migrate.', DATABASE()), 5)"),
        pytest.raises(MigrationBusy),
    ):
        database.new_call(Deadline(seconds=30, longest_wait=20))
        migrate(database)


def test_a_statement_on_a_big_table_has_all_the_time_there_is(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seckill.protocol.migrate._migrations", lambda: [(9001, "slow", "DO SLEEP(1.5);")])
    database = Database(empty_database)
    database.new_call(Deadline(seconds=30, longest_wait=1))
    try:
        assert migrate(database).applied == [9001]
    finally:
        database.close()


def test_a_server_that_is_not_set_as_the_protocol_wants_is_named(empty_database: str) -> None:
    """Settings of the server, not of a session: a proxy would pin connections that set their own."""
    ledger = Ledger(empty_database, sku_id=0)
    ((timeout,),) = ledger.select("SELECT @@session.innodb_lock_wait_timeout")
    warnings = migrated(empty_database).warnings
    assert any("innodb_lock_wait_timeout" in warning for warning in warnings) == (timeout != 1)
    assert any("innodb_flush_log_at_trx_commit" in warning for warning in warnings) == (
        ledger.select("SELECT @@global.innodb_flush_log_at_trx_commit") != [(1,)]
    )
