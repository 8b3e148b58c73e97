"""EventBridge's schedule: invokes a function at a steady rate.

    python -m local.scheduler --handler functions.reconcile.handler.lambda_handler --interval-seconds 30 ...

EventBridge's finest rate is a minute, so a deployment has a second target for each tick, the beat queue, which
hands it to the same function 30 s later. Here the schedule itself beats every half minute, so there is no beat
queue: the function runs the same pass at the same distance. (What a `{"job": "beat"}` message asks for is that
pass.) The audit of every half hour is left out, too: each pass audits every sale.

One container, and a beat that falls due while it is busy is left out. On AWS a second container would take it;
passes may overlap, but nothing relies on it. An invocation that fails is not repeated: the next beat is near.
"""

from __future__ import annotations

import argparse
import functools
import logging
import time
import uuid
from datetime import UTC, datetime
from typing import Any, NoReturn

from local.container import Container, log_to_stderr
from local.containers import Function, keep_containers
from local.lambda_context import ACCOUNT_ID

logger = logging.getLogger("local.scheduler")


def scheduled_event(region: str) -> dict[str, Any]:
    """The event of one tick. Source: EventBridge user guide, "Scheduled Event" (source aws.events)."""
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": ACCOUNT_ID,
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": region,
        "resources": [f"arn:aws:events:{region}:{ACCOUNT_ID}:rule/beat"],
        "detail": {},
    }


def next_beat(first: float, interval_seconds: float, now: float) -> float:
    """The first beat after `now`, on the same clock: beats that fell due meanwhile are left out, the rest keep step."""
    beats_so_far = (now - first) // interval_seconds + 1
    return first + beats_so_far * interval_seconds


def beat_for_ever(interval_seconds: float, region: str, container: Container) -> NoReturn:
    """A container's life: a beat at once, then one each interval, until the process is ended."""
    first = beat = time.monotonic()
    while True:
        time.sleep(max(0.0, beat - time.monotonic()))
        try:
            container.invoke(scheduled_event(region))
        except Exception:
            # Whatever a handler raises, an asynchronous invocation has nobody to tell.
            logger.exception("the function raised")
        beat = next_beat(first, interval_seconds, time.monotonic())


def main() -> None:
    """The command line that the stack starts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--handler", required=True)
    parser.add_argument("--region", required=True)
    parser.add_argument("--interval-seconds", type=float, required=True)
    parser.add_argument("--timeout-seconds", type=float, required=True)
    arguments = parser.parse_args()
    log_to_stderr()
    function = Function(handler=arguments.handler, region=arguments.region, timeout_seconds=arguments.timeout_seconds)
    keep_containers(function, 1, functools.partial(beat_for_ever, arguments.interval_seconds, arguments.region))


if __name__ == "__main__":
    main()
