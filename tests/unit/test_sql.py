"""The SQL files: every statement has a name that the code calls, and a dialect that all supported servers speak."""

import ast
import re
from importlib.resources import files
from pathlib import Path

import pytest

import functions
import seckill
from seckill.adapters.mysql import sql

SQL_FOLDER = Path(str(files("seckill"))) / "sql"
SQL_FILES = sorted(SQL_FOLDER.rglob("*.sql"))
CODE_FILES = sorted(
    file for package in (seckill, functions) for folder in package.__path__ for file in Path(folder).rglob("*.py")
)
TREES = {file: ast.parse(file.read_text()) for file in CODE_FILES}
STATEMENT = re.compile(r"[a-z_]+\.[a-z_]+")
CALLS = ("execute", "rows", "row")


def defined_statements() -> set[str]:
    """ "<verb>.<statement>" for every `-- name:` line."""
    return {
        f"{file.stem}.{name}"
        for file in SQL_FOLDER.glob("*.sql")
        for name in re.findall(r"^-- name: (\w+)$", file.read_text(), flags=re.MULTILINE)
    }


def calls_of_the_database() -> set[str]:
    """The literal first argument of every .execute, .rows and .row in the code that has a statement's form."""
    first_arguments = (
        node.args[0]
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS and node.args
    )
    return {
        node.value
        for node in first_arguments
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and STATEMENT.fullmatch(node.value)
    }


def literals() -> list[tuple[str, str]]:
    """(where, text) of every string in the code."""
    return [
        (f"{file.name}:{node.lineno}", node.value)
        for file, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def without_comments(text: str) -> str:
    return re.sub(r"--.*", "", text)


def test_every_statement_that_the_code_calls_exists() -> None:
    assert len(calls_of_the_database()) > 20, "the calls were found"
    assert calls_of_the_database() - defined_statements() == set()


def test_every_statement_that_exists_is_used() -> None:
    assert defined_statements() - {text for _, text in literals()} == set()


def test_no_name_is_used_twice_in_a_file() -> None:
    for file in SQL_FOLDER.glob("*.sql"):
        names = re.findall(r"^-- name: (\w+)$", file.read_text(), flags=re.MULTILINE)
        assert len(names) == len(set(names)), file.name


def test_every_statement_loads_and_is_one_statement() -> None:
    for name in defined_statements():
        text = sql(name)
        assert text, name
        assert ";" not in text, f"{name} is more than one statement"


# Each is missing from, or means something else on, one of MySQL 8.0 to 9.x and MariaDB 10.6+; or, the last four, fires
# on any unique key and would change another user's row (docs/protocol.md 3).
FORBIDDEN = {
    "FOR SHARE": r"\bFOR\s+SHARE\b",
    "MD5()": r"\bMD5\s*\(",
    "RETURNING": r"\bRETURNING\b",
    "VALUES ... AS new": r"\)\s*AS\s+new\b",
    "ON DUPLICATE KEY": r"\bON\s+DUPLICATE\s+KEY\b",
    "INSERT IGNORE": r"\bINSERT\s+IGNORE\b",
    "UPDATE IGNORE": r"\bUPDATE\s+IGNORE\b",
    "REPLACE": r"\bREPLACE\s+INTO\b",
}


@pytest.mark.parametrize("file", SQL_FILES, ids=lambda file: str(file.name))
def test_the_sql_stays_inside_the_common_dialect(file: Path) -> None:
    text = without_comments(file.read_text())
    found = [name for name, pattern in FORBIDDEN.items() if re.search(pattern, text, flags=re.IGNORECASE)]
    assert found == []


def test_no_sql_hides_in_the_code() -> None:
    """Only what forms a transaction is written in the adapter; everything else is a named, commented statement."""
    verbs = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|REPLACE|CREATE|ALTER|DROP)\s")
    assert [where for where, text in literals() if verbs.match(text)] == []


def test_times_are_the_databases_in_utc() -> None:
    # UNIX_TIMESTAMP() is the moment itself; with an argument it reads that in the session's time zone.
    local = r"\b(NOW|CURRENT_TIMESTAMP|SYSDATE|LOCALTIME|CURDATE|CURTIME|FROM_UNIXTIME)\b|UNIX_TIMESTAMP\(\s*[^\s)]"
    for file in SQL_FILES:
        assert not re.search(local, without_comments(file.read_text()), flags=re.IGNORECASE), file.name


def test_indexes_are_made_with_their_tables() -> None:
    """One added later would be reported last of several violated unique keys (docs/protocol.md 3)."""
    added = r"\bCREATE\s+(UNIQUE\s+)?INDEX\b|\bADD\s+(UNIQUE|KEY|INDEX)\b"
    for file in SQL_FILES:
        assert not re.search(added, without_comments(file.read_text()), flags=re.IGNORECASE), file.name
