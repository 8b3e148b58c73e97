"""`migrate` as the master user lets the functions' user do what the protocol does, and no more."""

import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from local.servers import Servers
from seckill.adapters.mysql import Database, DatabaseError
from seckill.domain.deadline import Deadline
from seckill.protocol.app_user import grant_app_user

USER, PASSWORD = "app_user_of_the_test", "only-here"


@pytest.fixture
def app(servers: Servers, database: Database) -> Iterator[Database]:
    """A connection of the functions' user. RDS's plugin is not to be had here, so the user has a password."""
    database.run_script(f"DROP USER IF EXISTS {USER}@`%`;\nCREATE USER {USER}@`%` IDENTIFIED BY '{PASSWORD}';")
    grant_app_user(database, USER)
    grant_app_user(database, USER)  # again changes nothing
    parts = urlsplit(servers.database_url)
    address = f"{parts.hostname}:{parts.port}{parts.path}"
    connection = Database(f"mysql://{USER}:{PASSWORD}@{address}" + (f"?{parts.query}" if parts.query else ""))
    connection.new_call(Deadline(seconds=30, longest_wait=5))
    yield connection
    connection.close()
    database.run_script(f"DROP USER {USER}@`%`;")


def test_the_functions_user_may_select_insert_and_update_the_books(app: Database) -> None:
    operation = str(uuid.uuid4())  # on a server of one's own, the row of the last time is still there
    app.run_script(
        f"INSERT INTO seckill_top_up (operation_id, sku_id, units, created_at) VALUES ('{operation}', 1, 0, NOW(3));\n"
        f"UPDATE seckill_top_up SET units = 0 WHERE operation_id = '{operation}';\n"
        f"SELECT units FROM seckill_top_up WHERE operation_id = '{operation}' LOCK IN SHARE MODE;\n"
        f"SELECT units FROM seckill_top_up WHERE operation_id = '{operation}' FOR UPDATE;"
    )


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM seckill_top_up WHERE operation_id = 'none'",
        "TRUNCATE TABLE seckill_order",
        "DROP TABLE seckill_notice",
        "ALTER TABLE seckill_sale ADD COLUMN more INT",
        "CREATE TABLE seckill_more (id INT)",
        "UPDATE seckill_migration SET version = 0",
    ],
)
def test_the_functions_user_may_not(app: Database, statement: str) -> None:
    with pytest.raises(DatabaseError) as refused:
        app.run_script(statement + ";")
    assert refused.value.code in (1044, 1142)  # denied, to the database or to the table


def test_a_server_without_rds_plugin_says_so(database: Database) -> None:
    with pytest.raises(DatabaseError):
        grant_app_user(database, "nobody_has_made")
