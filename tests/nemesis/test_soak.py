"""The state machine: some traces in CI, always the same ones; `make soak` plays new ones for as long as it is told to.

SOAK_SECONDS=1800 SOAK_SEED=7 pytest tests/nemesis/test_soak.py -s
"""

import os
import random
import time

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.faults.market import Market
from tests.nemesis.machine import OneSale

SOAK_SECONDS = float(os.environ.get("SOAK_SECONDS", "0"))
SOAK_SEED = int(os.environ.get("SOAK_SEED") or random.randrange(10**6))
# A failing trace is simplified for five minutes at most (hypothesis's own bound).
SIMPLIFY_SECONDS = 600

FEW = settings(
    max_examples=40,
    stateful_step_count=12,
    deadline=None,  # a busy machine is no failure
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
MANY = settings(FEW, max_examples=100, stateful_step_count=60, derandomize=False)


@pytest.mark.timeout(SIMPLIFY_SECONDS + SOAK_SECONDS)
def test_whatever_happens_in_whatever_order_the_books_hold(market: Market) -> None:
    class Here(OneSale):
        pass

    Here.market = market
    if not SOAK_SECONDS:
        run_state_machine_as_test(Here, settings=FEW)
    ends, number = time.monotonic() + SOAK_SECONDS, SOAK_SEED
    while time.monotonic() < ends:
        print(f"SOAK_SEED={number}: {MANY.max_examples} traces", flush=True)
        run_state_machine_as_test(seed(number)(Here), settings=MANY)
        number += 1
