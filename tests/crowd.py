"""Many calls at the same moment."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

# All threads are there long before; a thread that fails to start breaks the barrier instead of hanging the test.
START_WITHIN_SECONDS = 30


def at_once(calls: Iterable[Callable[[], T]]) -> list[T]:
    """Run each call in a thread of its own, all let go together; their results in order, the first error raised."""
    waiting = list(calls)
    barrier = threading.Barrier(len(waiting))

    def run(call: Callable[[], T]) -> T:
        barrier.wait(START_WITHIN_SECONDS)
        return call()

    with ThreadPoolExecutor(len(waiting)) as pool:
        return [future.result() for future in [pool.submit(run, call) for call in waiting]]
