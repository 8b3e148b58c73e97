"""I0-I5 as arithmetic: each holds on balanced books, finds its own breakage, and shows terms that add up."""

import re
from dataclasses import replace

import pytest

from seckill.domain.accounts import Equation, LedgerAccounts, SoftTerms, hard_equations, soft_equations

# 100 units. 5 landed in an earlier epoch; tickets 1-50 of this one are spent: 10 reserved, 30 landed, 10 rolled back.
BOOKS = LedgerAccounts(
    total=100,
    remaining=65,
    cap=105,
    epoch=2,
    used=50,
    reserved=10,
    landed=35,
    rolled_back=10,
    ordered=35,
    stale=0,
    landed_without_order=0,
    orders_without_landed=0,
    rolled_back_without_notice=0,
)
# Ticket 55: five deductions have no row yet, two of the rolled-back ones are still held.
REDIS = SoftTerms(
    stock=48, ticket=55, held_without_row=5, held_rolled_back=2, live_seen=45, rolled_back_later=0, highest_before=50
)


def broken(equations: list[Equation]) -> list[str]:
    """Names of those that do not hold."""
    return [equation.name for equation in equations if not equation.holds]


def value_of(words_and_numbers: str) -> int:
    """The sum that a reader would do: `cap 3 - used 1` is 2."""
    return sum(int(sign + number) for sign, number in re.findall(r"([+-]?)[^+\-\d]*(\d+)", words_and_numbers))


def test_the_equations_hold_on_books_that_balance() -> None:
    assert broken(hard_equations(BOOKS)) == []
    assert broken(soft_equations(BOOKS, REDIS)) == []
    assert [equation.name for equation in soft_equations(BOOKS, REDIS)] == ["I3", "I4", "I5"]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"landed_without_order": 7}, ["I0"]),  # the incident: 7 units that are at 2 and have no order
        ({"orders_without_landed": 1}, ["I0"]),
        ({"landed_without_order": 1, "orders_without_landed": 1}, ["I0"]),
        ({"cap": 106}, ["I1"]),
        ({"cap": 104}, ["I1"]),
        ({"used": 51}, ["I1"]),
        ({"reserved": 11}, ["I1"]),
        ({"landed": 34}, ["I1"]),
        ({"total": 101}, ["I1", "I2"]),
        ({"remaining": 66}, ["I2"]),
        ({"ordered": 34}, ["I2"]),
        ({"remaining": 9}, ["I2", "remaining covers reserved"]),
    ],
    ids=str,
)
def test_a_number_that_is_off_breaks_the_hard_equations_it_is_in(change: dict[str, int], names: list[str]) -> None:
    assert broken(hard_equations(replace(BOOKS, **change))) == names


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"stock": 55}, ["I3", "I4"]),
        ({"stock": 41}, ["I3", "I4"]),
        ({"ticket": 56}, ["I4"]),
        ({"ticket": 49}, ["I4", "I5"]),
        ({"held_without_row": 6}, ["I3"]),
        ({"held_rolled_back": 1}, ["I3", "I4"]),
        ({"live_seen": 44}, ["I3"]),
        ({"rolled_back_later": 1}, ["I4"]),
        ({"highest_before": 55}, []),
        ({"highest_before": 56}, ["I5"]),
    ],
    ids=str,
)
def test_a_number_that_is_off_breaks_the_soft_equations_it_is_in(change: dict[str, int], names: list[str]) -> None:
    assert broken(soft_equations(BOOKS, replace(REDIS, **change))) == names


def test_a_lost_deduction_whose_row_exists_is_found_by_i5_alone() -> None:
    """The copy looks like one taken before that deduction: a unit more, a ticket less."""
    lost = replace(REDIS, ticket=54, held_without_row=0, live_seen=49, highest_before=55)
    assert broken(soft_equations(BOOKS, replace(lost, stock=51, held_rolled_back=0))) == ["I5"]


@pytest.mark.parametrize("off", [0, 3])
def test_the_terms_of_each_equation_add_up_to_its_two_sides(off: int) -> None:
    books = replace(BOOKS, cap=BOOKS.cap + off, landed_without_order=off)
    for equation in hard_equations(books)[:3] + soft_equations(books, replace(REDIS, stock=48 + off))[:2]:
        name, terms, sides = str(equation).split(": ")
        left_terms, _, right_terms = terms.partition(" = ")
        left, sign, right = re.fullmatch(r"(-?\d+) (=|<>) (-?\d+)", sides).groups()  # type: ignore[union-attr]
        assert (name, value_of(left_terms)) == (equation.name, int(left))
        if re.search(r"\d", right_terms):
            assert value_of(right_terms) == int(right)
        assert sign == ("=" if equation.holds else "<>")
        assert equation.difference == int(left) - int(right)
