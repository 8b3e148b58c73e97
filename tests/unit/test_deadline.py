"""How long a call may still wait, by a clock that the test sets."""

from types import SimpleNamespace

import pytest

from seckill.domain import deadline as module
from seckill.domain.deadline import LONGEST_WAIT_SECONDS, SHORTEST_WAIT_SECONDS, Deadline

STARTED = 1_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """`clock.seconds` is what time.monotonic says; no other clock is there to be asked."""
    set_by_test = SimpleNamespace(seconds=STARTED)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: set_by_test.seconds))
    return set_by_test


def test_one_wait_is_a_second_at_most_however_much_is_left(clock: SimpleNamespace) -> None:
    assert LONGEST_WAIT_SECONDS == 1.0
    assert Deadline(2.5, started=STARTED).wait() == 1.0


def test_a_wait_is_what_is_left_when_that_is_less(clock: SimpleNamespace) -> None:
    deadline = Deadline(2.5, started=STARTED)
    clock.seconds += 2.25
    assert deadline.left() == 0.25
    assert deadline.wait() == 0.25


def test_waits_one_after_the_other_end_with_the_deadline(clock: SimpleNamespace) -> None:
    deadline = Deadline(2.5, started=STARTED)
    waits = []
    for _ in range(4):
        waits.append(deadline.wait())
        clock.seconds += waits[-1]
    assert waits == [1.0, 1.0, 0.5, SHORTEST_WAIT_SECONDS]


def test_after_the_deadline_nothing_is_left_and_a_wait_is_still_a_time_out_a_socket_can_take(
    clock: SimpleNamespace,
) -> None:
    deadline = Deadline(2.5, started=STARTED)
    clock.seconds += 3_600
    assert deadline.left() == 0.0
    assert 0 < deadline.wait() <= 0.01


def test_a_function_with_more_time_may_wait_longer(clock: SimpleNamespace) -> None:
    deadline = Deadline(8.0, longest_wait=2.0, started=STARTED)
    assert deadline.wait() == 2.0
    clock.seconds += 7
    assert deadline.wait() == 1.0


def test_a_deadline_begins_when_it_is_made() -> None:
    deadline = Deadline(60.0)
    assert 59.0 < deadline.left() <= 60.0
