"""The search: visits every state that can be reached from the first one, breadth first.

Breadth first means that the trace printed for a broken promise is a shortest one. The search knows nothing of the
protocol: it is given the first state, a function that lists the steps possible in a state, and a function that names
the promises a state breaks.
"""

import gc
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=tuple[object, ...])


class Step(NamedTuple, Generic[S]):
    """One thing that can happen, and the state after it."""

    what: str
    state: S


@dataclass(frozen=True)
class Report:
    """What a search found."""

    states: int
    steps: int
    seconds: float
    exhaustive: bool  # every reachable state was visited
    traces: dict[str, list[str]]  # broken promise -> the shortest way to break it

    def __str__(self) -> str:
        extent = "all" if self.exhaustive else "stopped after"
        verdict = ", ".join(f"{p} in {len(t)} steps" for p, t in sorted(self.traces.items())) or "nothing broken"
        return f"{extent} {self.states:,} states, {self.steps:,} steps, {self.seconds:.1f} s: {verdict}"

    def trace(self, promise: str) -> str:
        """The numbered steps that break `promise`."""
        return "\n".join(f"{number:3}. {what}" for number, what in enumerate(self.traces[promise], 1))


def search(
    first: S,
    steps_from: Callable[[S], Iterable[Step[S]]],
    broken_in: Callable[[S], Iterable[str]],
    *,
    until: frozenset[str] = frozenset(),
    max_states: int,
) -> Report:
    """Visit every state reachable from `first`; stop early when all promises in `until` are found broken.

    `max_states` bounds memory: beyond it the search stops and the report says that it was not exhaustive.
    """
    began = time.perf_counter()
    share = _sharing(first)
    came_from: dict[S, S | None] = {first: None}
    waiting = deque([first])
    breaks: dict[str, S] = {}
    steps = 0
    exhaustive = True
    with _without_garbage_collection():
        while waiting:
            state = waiting.popleft()
            for promise in broken_in(state):
                breaks.setdefault(promise, state)
            if (until and until <= breaks.keys()) or len(came_from) > max_states:
                exhaustive = False
                break
            for _, after in steps_from(state):
                steps += 1
                if after not in came_from:
                    kept = share(after)
                    came_from[kept] = state
                    waiting.append(kept)
    traces = {promise: _trace(state, came_from, steps_from) for promise, state in breaks.items()}
    return Report(len(came_from), steps, time.perf_counter() - began, exhaustive, traces)


def _trace(state: S, came_from: dict[S, S | None], steps_from: Callable[[S], Iterable[Step[S]]]) -> list[str]:
    trace: list[str] = []
    before = came_from[state]
    while before is not None:
        # The label is found again instead of being kept: millions of states never need theirs.
        trace.append(next(what for what, after in steps_from(before) if after == state))
        state, before = before, came_from[before]
    return trace[::-1]


def _sharing(first: S) -> Callable[[S], S]:
    """Makes equal parts of different states one object: it halves the memory and speeds up comparison."""
    pools: list[dict[object, object]] = [{} for _ in first]
    make = first._make  # type: ignore[attr-defined]  # states are NamedTuples; typing has no word for that

    def share(state: S) -> S:
        shared: S = make(pool.setdefault(part, part) for pool, part in zip(pools, state, strict=True))
        return shared

    return share


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """States hold no cycles, and the collector would walk millions of them again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
