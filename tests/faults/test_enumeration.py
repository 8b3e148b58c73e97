"""Every call that a clean run makes to a store is a fault point; every fault strikes every point.

In CI each point meets one fault of each column, and Redis's trouble is mixed by a seed; `FAULTS=full` runs the whole
product. `FAULTS_SEED=7 pytest tests/faults -k "..."` repeats a run of seed 7.
"""

import os
import random
from collections.abc import Callable, Iterator

import pytest

from tests.faults.faults import COLUMNS, Fault, Trouble
from tests.faults.market import Market
from tests.faults.recording import Point
from tests.faults.run import FaultRun, clean_run, fault_run
from tests.faults.scenarios import SCENARIOS, Scenario

Record = Callable[[str, object], None]

FULL = os.environ.get("FAULTS") == "full"
# Processes that share a test run share its id, and so the seed.
SEED = os.environ.get("FAULTS_SEED") or os.environ.get("PYTEST_XDIST_TESTRUNUID", f"{random.randrange(10**6)}")[:6]
# Each scenario's points are dealt to this many tests, so that they can run beside each other.
PARTS = 8 if FULL else 2
# Who stops with locks makes everybody else wait for seconds: in CI one of this many.
LOCKS_KEPT = 10
# So many broken runs tell enough.
MOST_FAILURES = 5

_recorded: dict[str, list[Point]] = {}


def points_of(market: Market, scenario: Scenario) -> list[Point]:
    """Recorded once by each test process."""
    name = str(scenario)
    if name not in _recorded:
        _recorded[name] = clean_run(market, scenario)
    return _recorded[name]


def runs_at(scenario: Scenario, point: Point, column: str) -> Iterator[FaultRun]:
    """Those of one point and one column."""
    dice = random.Random(f"{SEED} {scenario} {point} {column}")
    faults = [fault for fault in COLUMNS[column] if fault.fits(point)]
    quantity, silence = dice.choice((1, 2)), dice.choice((False, True))
    if FULL:
        for fault in faults:
            for trouble in Trouble:
                yield FaultRun(scenario, point, fault, trouble, quantity, silence)
        return
    fault = dice.choice(faults)
    if faults == [Fault.PAUSES, Fault.PAUSES_CUT]:
        fault = Fault.PAUSES if dice.randrange(LOCKS_KEPT) == 0 else Fault.PAUSES_CUT
    yield FaultRun(scenario, point, fault, dice.choice(list(Trouble)), quantity, silence)


@pytest.mark.timeout(7200 if FULL else 900)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_whatever_happens_at_any_call_the_books_balance_afterwards(
    market: Market, scenario: Scenario, column: str, part: int, record_property: Record
) -> None:
    points = points_of(market, scenario)[part::PARTS]
    runs = [run for point in points for run in runs_at(scenario, point, column)]
    record_property("fault points", [f"{scenario} {point}" for point in points])
    record_property("fault runs", len(runs))
    record_property("fault seed", SEED)
    broken = []
    for run in runs:
        try:
            fault_run(market, run)
        except Exception as error:  # noqa: BLE001  one broken run must not hide the others
            broken.append(f"{run}\n{type(error).__name__}: {error}")
        if len(broken) == MOST_FAILURES:
            break
    assert not broken, f"with FAULTS_SEED={SEED}:\n\n" + "\n\n".join(broken)
