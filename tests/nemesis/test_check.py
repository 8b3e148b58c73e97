"""The verdict turns red for every way in which a promise can be broken."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.nemesis.buyers import Asked
from tests.nemesis.check import Ledger, Row, verdict

SKU_ID = 7


def asked(user: str, at: float, key: str | None, status: int = 202, code: str = "RESERVED") -> Asked:
    return Asked(user, SKU_ID, invoked=at - 0.1, ended=at, status=status, code=code, key=key)


def landed(key: str, user: str, at: float) -> Row:
    return Row(key, user, quantity=1, status=2, reason=None, landed_at=at)


def rolled_back(key: str, user: str, reason: str = "the order could not be written") -> Row:
    return Row(key, user, quantity=1, status=3, reason=reason, landed_at=None)


# amy's first promise was rolled back at 3, when ben could have her unit; she got the one of the top-up at 4.
HISTORY = (
    asked("amy", 1, "a1"),
    asked("ben", 2, None, 409, "SOLD_OUT"),
    asked("ben", 3.5, "b1"),
    asked("amy", 5, "a2"),
    asked("amy", 6, "a2", 200, "LANDED"),
    asked("carl", 7, "c1", 503, "OUTCOME_UNKNOWN"),
)
ROWS = (
    rolled_back("a1", "amy"),
    landed("b1", "ben", 3.6),
    landed("a2", "amy", 5.5),
    rolled_back("c1", "carl", "abandoned"),
)
LEDGER = Ledger(
    sku_id=SKU_ID,
    total=2,
    rows={row.key: row for row in ROWS},
    orders=["b1", "a2"],
    order_users=["ben", "amy"],
    notices={"a1": 3.0},
    top_ups=[(4.0, 1)],
)


def with_row(row: Row) -> Ledger:
    return replace(LEDGER, rows=LEDGER.rows | {row.key: row})


def test_a_sale_that_went_well_has_no_problems() -> None:
    assert verdict(LEDGER, HISTORY) == []


@pytest.mark.parametrize(
    ("ledger", "history", "problem"),
    [
        (LEDGER, [asked("dora", 8, "d1")], "dora was promised d1, and the ledger has None"),
        (LEDGER, [asked("dora", 8, "b1", 200)], "dora was promised b1"),
        (LEDGER, [asked("carl", 8, "c1")], "c1 has 0 orders and 0 notices"),
        (replace(LEDGER, notices={}), [], "a1 has 0 orders and 0 notices"),
        (replace(LEDGER, orders=["b1", "a2", "a2"]), [], "a2 has 2 orders and 0 notices"),
        (replace(LEDGER, notices={"a1": 3.0, "b1": 9.0}), [], "b1 has 1 orders and 1 notices"),
        (replace(LEDGER, orders=["b1"]), [], "amy was told that a2 had landed"),
        (replace(LEDGER, total=1), [], "2 units ordered of 1"),
        (replace(LEDGER, orders=["b1", "a2", "x"]), [], "the order of x has no row in the ledger"),
        (replace(LEDGER, order_users=["ben", "ben"]), [], "ben has 2 orders"),
        (replace(LEDGER, order_users=["ben", "eve"]), [], "eve has an order and never asked"),
        (replace(LEDGER, notices={"a1": 4.5}), [], "2 units were promised of 1 at 3.500"),
        (replace(LEDGER, top_ups=[(5.2, 1)]), [], "2 units were promised of 1 at 5.000"),
        (replace(LEDGER, notices={"a1": 5.1}), [], "amy had two promises at 5.000: a1 and a2"),
        (with_row(landed("d1", "dora", 1.5)), [], "2 units were promised of 1 at 1.500"),
        (LEDGER, [asked("dora", 8, None, 500, "Internal Server Error")], "dora was answered 500"),
    ],
)
def test_a_broken_promise_is_named(ledger: Ledger, history: Sequence[Asked], problem: str) -> None:
    assert any(problem in found for found in verdict(ledger, [*HISTORY, *history])), verdict(
        ledger, [*HISTORY, *history]
    )


def test_what_belongs_to_another_sale_is_left_to_that() -> None:
    assert verdict(LEDGER, [*HISTORY, replace(asked("dora", 8, "d1"), sku_id=8)]) == []
