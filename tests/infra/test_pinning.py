"""Nothing the request path sends pins RDS Proxy (AWS: "Avoiding pinning an RDS Proxy")."""

import re
from pathlib import Path

import pytest

from infra.functions import LANDING_BATCH

SHARED = Path(__file__).parents[2] / "layers" / "seckill" / "python" / "seckill"
# `migrate` alone runs these, as the master user and on a connection that ends with it.
OF_MIGRATE = {"migrate.sql", "app_user.sql"}
PINS = {
    "a named or a table lock": r"\b(GET_LOCK|LOCK\s+TABLES?|FLUSH\s+TABLES)\b",
    "a variable": r"(^|;)\s*SET\b|@\w",
    "a prepared statement": r"\b(PREPARE|EXECUTE|DEALLOCATE)\b",
    "a temporary table": r"\bTEMPORARY\b",
    "a function that looks back": r"\b(ROW_COUNT|FOUND_ROWS)\(",
    "an executable comment": r"/\*M?!",
}


@pytest.mark.parametrize("pin", PINS)
def test_no_statement_holds(pin: str) -> None:
    files = [file for file in (SHARED / "sql").glob("*.sql") if file.name not in OF_MIGRATE]
    assert files
    for file in files:
        text = re.sub(r"^--.*$", "", file.read_text(), flags=re.MULTILINE)
        for statement in re.split(r"\n\s*\n", text):
            assert not re.search(PINS[pin], statement.strip(), flags=re.IGNORECASE), (file.name, statement)


def test_the_adapter_sets_the_sessions_isolation_and_nothing_for_one_transaction() -> None:
    sets = re.findall(r'"(SET [^"]+)"', (SHARED / "adapters" / "mysql.py").read_text())
    assert sets == ["SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"]  # tracked, so it does not pin


def test_a_whole_batch_is_far_below_16_kb() -> None:
    longest = max(
        len(statement) for file in (SHARED / "sql").glob("*.sql") for statement in file.read_text().split("-- name: ")
    )
    key_and_comma = 36 + len("'',")
    assert longest + LANDING_BATCH * key_and_comma < 16 * 1024 / 2
