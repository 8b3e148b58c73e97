"""The local schedule invokes a function at a steady rate, as EventBridge does."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from local.scheduler import next_beat
from local.servers import SupervisedProcess, wait_until
from local.state import CHECKOUT

DEADLINE_SECONDS = 20
INTERVAL_SECONDS = 0.3
TIMEOUT_SECONDS = 1.5


@pytest.mark.parametrize(
    ("now", "expected"),
    [(100.0, 130.0), (100.1, 130.0), (129.9, 130.0), (130.0, 160.0), (190.5, 220.0)],
    ids=["at once", "soon", "just in time", "a whole interval", "beats missed"],
)
def test_beats_keep_step_and_missed_ones_are_left_out(now: float, expected: float) -> None:
    assert next_beat(100.0, 30.0, now) == expected


def note_beat(event: Any, context: Any) -> None:
    """Runs in the scheduler's container: notes the beat, and fails as it was told to."""
    beats = Path(os.environ["BEATS"])
    number = len(beats.read_text().splitlines()) if beats.exists() else 0
    left = context.get_remaining_time_in_millis()
    with beats.open("a") as file:
        file.write(json.dumps({"at": time.monotonic(), "event": event, "left": left}) + "\n")
    failure = {1: "raise", 3: "die", 5: "hang"}.get(number)
    if failure == "raise":
        raise RuntimeError("boom")
    if failure == "die":
        os._exit(1)
    if failure == "hang":
        time.sleep(DEADLINE_SECONDS)


def test_beats_come_at_their_rate_whatever_becomes_of_an_invocation(tmp_path: Path) -> None:
    beats = tmp_path / "beats"
    flags = {
        "--handler": "tests.unit.test_scheduler.note_beat",
        "--region": "eu-west-1",
        "--interval-seconds": INTERVAL_SECONDS,
        "--timeout-seconds": TIMEOUT_SECONDS,
    }
    command = [sys.executable, "-m", "local.scheduler"]
    for flag, value in flags.items():
        command += [flag, str(value)]
    environment = dict(os.environ) | {"BEATS": str(beats)}
    scheduler = SupervisedProcess(command, log=tmp_path / "scheduler.log", env=environment, cwd=CHECKOUT)
    try:
        # One after the hanging one: its container was ended for it, and replaced.
        in_time = wait_until(lambda: beats.exists() and beats.read_text().count("\n") >= 7, DEADLINE_SECONDS)
        assert in_time, scheduler.last_words()
        log = scheduler.log.read_text()
    finally:
        scheduler.kill()
    noted = [json.loads(text) for text in beats.read_text().splitlines()]
    assert all(beat["event"]["detail-type"] == "Scheduled Event" for beat in noted)
    assert all(beat["event"]["region"] == "eu-west-1" for beat in noted)
    assert all(0 < beat["left"] <= TIMEOUT_SECONDS * 1000 for beat in noted)
    # The first three beats belong to one container. They are two intervals apart, less what the first one came late.
    assert noted[2]["at"] - noted[0]["at"] > INTERVAL_SECONDS
    assert "boom" in log
    assert log.count("ended with status 1, starting another") == 2
