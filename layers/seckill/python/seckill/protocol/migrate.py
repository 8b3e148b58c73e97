"""migrate: bring a database of any earlier version to this one; running it again changes nothing."""

from dataclasses import dataclass, replace
from importlib.resources import files

from seckill.adapters.mysql import Database, DatabaseError

# What docs/protocol.md 3 asks of the server itself: per-request SETs would pin a proxy's connections.
WANTED_SETTINGS = {
    "isolation": "READ-COMMITTED",
    "time_zone": "+00:00",
    "innodb_lock_wait_timeout": "1",
    "innodb_flush_log_at_trx_commit": "1",
}


@dataclass(frozen=True, slots=True)
class Migrated:
    """The schema's version, the versions applied by this call, and server settings that differ from the wanted."""

    version: int
    applied: list[int]
    warnings: list[str]


class MigrationBusy(Exception):
    """Another migration is running."""


def migrate(database: Database) -> Migrated:
    """Apply the migrations this database has not had, in order. Raises DatabaseError, MigrationBusy."""
    row = database.row("migrate.lock")
    if row is None or row["got"] != 1:
        raise MigrationBusy("another migration is running")
    # One statement on a big table may take all the time there is.
    database.deadline = replace(database.deadline, longest_wait=database.deadline.left())
    try:
        database.execute("migrate.version_table")
        had = {row["version"] for row in database.rows("migrate.applied")}
        applied = []
        for version, name, text in _migrations():
            if version not in had:
                database.run_script(text)
                database.execute("migrate.mark_applied", version, name)
                applied.append(version)
        return Migrated(max({*had, *applied}), applied, _warnings(database))
    finally:
        _unlock(database)


def _migrations() -> list[tuple[int, str, str]]:
    """(version, name, text) of sql/migrations/NNNN_name.sql, ascending."""
    folder = files("seckill") / "sql" / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name[:4]), name[5:-4], (folder / name).read_text()) for name in names]


def _warnings(database: Database) -> list[str]:
    settings = {row["Variable_name"]: str(row["Value"]) for row in database.rows("migrate.server_settings")}
    settings["isolation"] = settings.get("transaction_isolation") or settings.get("tx_isolation", "")
    if settings["time_zone"] == "UTC":
        settings["time_zone"] = "+00:00"
    return [
        f"{name} is {settings.get(name)}, should be {wanted}"
        for name, wanted in WANTED_SETTINGS.items()
        if settings.get(name) != wanted
    ]


def _unlock(database: Database) -> None:
    try:
        database.row("migrate.unlock")
    except DatabaseError:
        database.close()  # the lock goes with its connection
