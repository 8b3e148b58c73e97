"""One sale as a hypothesis state machine: whatever happens in whatever order, the books hold after every step.

It plays in the market of the fault runs (tests/faults): real servers, processes forked from this one, time that goes by
on demand. `shop.check()` asserts P1-P7 and I0-I4 after each step; the end asserts that everybody's account is closed.
"""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from seckill.domain.deadline import Deadline
from tests.faults.child import Child, Parent
from tests.faults.faults import DIED, Fault, fail
from tests.faults.market import Market
from tests.faults.recording import Call, Watcher
from tests.faults.shop import open_shop
from tests.faults.standing import acting, hear
from tests.nemesis.verbs import REDIS_TROUBLES, VERBS, RedisTrouble, Verb, asks, live_row

# More than there are units, so that a unit promised twice finds its second buyer.
USERS = ("amy", "ben", "carl", "dora", "eve")
# Each is a process, and two are enough to overtake one another.
MOST_STANDING = 2

users = st.sampled_from(USERS)
verbs = st.sampled_from(VERBS)
faults = st.sampled_from((Fault.DIES, Fault.LOST_AFTER, Fault.PAUSES, Fault.LOST_BEFORE, Fault.DEADLOCK, Fault.REFUSED))
# reserve makes three calls to the stores when all is well, other verbs up to 16. A process that does not come to the
# call of that number is not disturbed.
early, late = st.integers(1, 3), st.integers(1, 16)


class Struck:
    """A watcher that lets a fault happen at the call of that number, or the like of it that fits there."""

    def __init__(self, fault: Fault, position: int, reached: Callable[[int | None], None]) -> None:
        self._fault = fault
        self._position = position
        self._reached = reached
        self._session: int | None = None  # of the database, whose locks others would wait for

    def __call__(self, call: Call) -> object:
        if call.point.position != self._position:
            return self._done(call)
        fault = self._fault if self._fault.fits(call.point) else Fault.LOST_BEFORE
        answer, error = None, None
        if fault in (Fault.DIES, Fault.LOST_AFTER, Fault.PAUSES):
            try:
                answer = self._done(call)
            except Exception as raised:  # noqa: BLE001  a refusal is an answer, too
                error = raised
        self._reached(self._session if call.point.holding else None)
        if fault is Fault.DIES:
            os._exit(DIED)
        if fault is not Fault.PAUSES:
            fail(fault, call)
        if error:
            raise error
        return answer

    def _done(self, call: Call) -> object:
        answer = call.do()
        if call.point.adapter == "mysql":
            connection = call.adapter._connection
            self._session = connection.thread_id() if connection else None
        return answer


class OneSale(RuleBasedStateMachine):
    """Rules are what may happen. Every draw is a name or a number, never a key, so that a trace can be played again.

    The rules are few, since hypothesis leaves some out of each trace and chooses evenly among the rest.
    """

    market: Market  # given by a subclass: hypothesis makes the instances

    def __init__(self) -> None:
        super().__init__()
        self.ending = ExitStack()
        self.standing: list[Child] = []

    @initialize(
        lots=st.integers(1, 3),
        quantity=st.sampled_from((1, 2)),
        bought=st.lists(users, max_size=2),
        unlucky=st.none() | users,
    )
    def opens(self, lots: int, quantity: int, bought: list[str], unlucky: str | None) -> None:
        self.shop = self.ending.enter_context(open_shop(self.market, quantity))
        self.unlucky = unlucky
        self.shop.open(lots)
        for user in bought:
            self.shop.ask(user)
        self.shop.keep_earlier_copy()

    @rule(user=users)
    def somebody_asks(self, user: str) -> None:
        self.shop.ask(user)

    @rule(user=users, fault=faults, position=early | late)
    def a_call_fails(self, user: str, fault: Fault, position: int) -> None:
        self._act(asks, user, fault, position)

    @rule()
    def everybody_asks(self) -> None:
        for user in USERS:
            self.shop.ask(user)

    @rule(verb=verbs, user=users, fault=st.none() | faults, position=late)
    def works(self, verb: Verb, user: str, fault: Fault | None, position: int) -> None:
        self._act(verb, user, fault, position)

    @precondition(lambda self: self.standing)
    @rule(position=st.integers(0, MOST_STANDING - 1))
    def goes_on(self, position: int) -> None:
        child = self.standing.pop(position % len(self.standing))
        child.go_on()
        hear(self.shop, child)

    @rule()
    def messages_arrive(self) -> None:
        self._refuse_orders_of_the_unlucky()
        self.shop.deliver()
        self.shop.answer_rebuild_requests()

    @rule()
    def two_reconcilers_pass_at_once(self) -> None:
        self._refuse_orders_of_the_unlucky()
        self.shop.beat()

    @rule()
    def a_replica_gets_all_there_is(self) -> None:
        self.shop.keep_earlier_copy()

    @rule(trouble=st.sampled_from(REDIS_TROUBLES), units=st.integers(-3, 3).filter(bool))
    def redis_is_in_trouble(self, trouble: RedisTrouble, units: int) -> None:
        self.shop.redis_kept = False
        trouble(self.shop, units)

    # -- how it is done -------------------------------------------------------------------------------------------

    def _act(self, verb: Verb, user: str, fault: Fault | None, position: int) -> None:
        """In a process of its own, which meets the fault at its call of that number, if it makes so many."""
        self._refuse_orders_of_the_unlucky()
        if fault is Fault.PAUSES and len(self.standing) == MOST_STANDING:
            self.goes_on(0)
        work = verb(self.shop, user)

        def watcher(parent: Parent) -> Watcher:
            if fault is None:
                return lambda call: call.do()
            return Struck(fault, position, parent.reached if fault is Fault.PAUSES else lambda _: None)

        child = self.ending.enter_context(acting(self.shop, work, watcher))
        if child.until_point():
            self.standing.append(child)
            if child.session is not None:  # else everybody would wait for its locks
                with self.market.database.cursor() as cursor:
                    cursor.execute("KILL %s", [child.session])
        hear(self.shop, child)

    def _refuse_orders_of_the_unlucky(self) -> None:
        row = live_row(self.shop, self.unlucky) if self.unlucky else None
        if row and row.status == 1:
            with self.market.database.cursor() as cursor:
                cursor.execute("INSERT IGNORE INTO refused_orders VALUES (%s)", [row.key])

    # -- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def the_books_hold(self) -> None:
        self.shop.check()

    def teardown(self) -> None:
        with self.ending:
            if sys.exception() is None:  # else a step has failed, and tells enough
                self._everything_ends()

    def _everything_ends(self) -> None:
        while self.standing:
            self.goes_on(0)
        self.shop.to_a_fixpoint()
        done = self.shop.front.reconcile(Deadline(seconds=30, longest_wait=5))
        verdicts = [(audit.ok, audit.gap, audit.drift, audit.findings) for audit in done.audits]
        assert verdicts == [(True, 0, 0, [])], verdicts
        assert not done.failed
        assert not self.shop.unheard_notices()
        self.shop.check()
