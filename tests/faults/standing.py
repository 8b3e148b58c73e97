"""Processes in which something happens at a call of one's choice, while others go on."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.faults.child import Child, Parent
from tests.faults.faults import DIED, Fault, fail, strike
from tests.faults.market import Process
from tests.faults.recording import Call, Point, Watcher, watch
from tests.faults.scenarios import Tell
from tests.faults.shop import Shop

Work = Callable[[Process, Tell], None]


def acting(shop: Shop, work: Work, watcher_for: Callable[[Parent], Watcher]) -> Child:
    """`work` in a process of its own, its calls watched."""

    def watched(parent: Parent) -> None:
        watch(watcher_for(parent))
        work(shop.market.image, parent.tell)

    return Child(watched)


@contextmanager
def at_its_point(shop: Shop, work: Work, watcher_for: Callable[[Parent], Watcher]) -> Iterator[None]:
    """`work` in a process of its own, which has come to its point and goes on at the end of the block."""
    with acting(shop, work, watcher_for) as child:
        assert child.until_point(), "the process never came to its point"
        yield
        child.go_on()
        hear(shop, child)


def standing(shop: Shop, work: Work, name: str, *, before: bool = False) -> AbstractContextManager[None]:
    """As at_its_point: it stands after (or before) its first call of that name."""
    return at_its_point(shop, work, lambda parent: _stop_once(parent, name, before))


def paused_at(shop: Shop, work: Work, point: Point) -> AbstractContextManager[None]:
    """As at_its_point: it stands after the call of a recorded point."""
    return at_its_point(shop, work, lambda parent: strike(Fault.PAUSES, point, parent.reached))


def losing_answers(shop: Shop, work: Work, name: str, fault: Fault, times: int) -> None:
    """`work` in a process of its own, whose first calls of that name lose the connection, done or not (`fault`)."""
    with acting(shop, work, lambda _: _lose(name, fault, times)) as child:
        assert not child.until_point()
        assert child.exit_status == 0
        hear(shop, child)


def dying_after(shop: Shop, work: Work, name: str) -> None:
    """`work` in a process of its own, which dies right after its first call of that name."""

    def watcher(call: Call) -> object:
        answer = call.do()
        return os._exit(DIED) if call.point.name == name else answer

    with acting(shop, work, lambda _: watcher) as child:
        assert not child.until_point()
        assert child.exit_status == DIED
        hear(shop, child)


def hear(shop: Shop, child: Child) -> None:
    """What the process has told shoppers since the last look."""
    while child.said:
        shop.told(*child.said.pop(0))
    shop.check()


def _stop_once(parent: Parent, name: str, before: bool) -> Watcher:
    stopped = False

    def watcher(call: Call) -> object:
        nonlocal stopped
        if stopped or call.point.name != name:
            return call.do()
        stopped = True
        if before:
            parent.reached(None)
            return call.do()
        answer = call.do()
        parent.reached(None)
        return answer

    return watcher


def _lose(name: str, fault: Fault, times: int) -> Watcher:
    left = times

    def watcher(call: Call) -> object:
        nonlocal left
        if call.point.name != name or left == 0:
            return call.do()
        left -= 1
        if fault.errs_after:
            call.do()
        fail(fault, call)

    return watcher
