"""The article's own fixed design, to the letter - and what it still loses.

- reserve: Lua takes a unit if there is one; INSERT into the ledger at status 1; if the insert fails, INCR gives the
  unit back; send; answer "reserved".
- consumer: read the status; if it is 1, create the order (stock - 1 and order, one transaction), then UPDATE status 2.
- reconcile: a row at status 1 is landed the same way; if landing fails and the database has stock, INCR Redis, then
  UPDATE status 3.

There is no key per user, no hold, no epoch, no ticket and no rebuild. Every reservation is of one unit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tests.model.search import Report, Step, search
from tests.model.state import LANDED, RESERVED, ROLLED_BACK, Key, User, changed

CallAt = Literal["start", "insert", "give back", "send", "end"]
START: CallAt = "start"


class Worker(NamedTuple):
    """A consumer or a reconciler, between two of its statements."""

    at: Literal["idle", "create order", "status 2", "check stock", "give back", "status 3"]
    key: Key


IDLE = Worker("idle", 0)


class State(NamedTuple):
    """Redis's stock, MySQL, and everybody who is between two steps."""

    stock: int
    replica_stock: int | None
    remaining: int
    status: tuple[int, ...]  # by key
    orders: tuple[int, ...]  # by key: how many
    given_back: tuple[int, ...]  # by key: how often
    late_inserts: frozenset[Key]
    calls: tuple[CallAt, ...]
    answered: frozenset[Key]
    workers: tuple[Worker, ...]
    ambiguous_inserts_left: int
    landing_failures_left: int
    fail_overs_left: int


@dataclass(frozen=True)
class Run:
    """Who asks, who works in the background, and how often each fault may happen."""

    users: tuple[User, ...]
    total: int = 1
    consumers: int = 0
    reconcilers: int = 0
    ambiguous_inserts: int = 0
    landing_failures: int = 0
    fail_overs: int = 0
    order_key_unique: bool = True

    def first_state(self) -> State:
        none = (0,) * len(self.users)
        return State(
            stock=self.total,
            replica_stock=None,
            remaining=self.total,
            status=none,
            orders=none,
            given_back=none,
            late_inserts=frozenset(),
            calls=(START,) * len(self.users),
            answered=frozenset(),
            workers=(IDLE,) * (self.consumers + self.reconcilers),
            ambiguous_inserts_left=self.ambiguous_inserts,
            landing_failures_left=self.landing_failures,
            fail_overs_left=self.fail_overs,
        )

    def search(self) -> Report:
        """Visit every state."""

        def steps(s: State) -> Iterator[Step[State]]:
            for number in range(len(self.users)):
                yield from reserve(s, number)
            for number, worker in enumerate(s.workers):
                yield from work(self, s, number, worker)
            yield from late_inserts_and_fail_over(s)

        return search(self.first_state(), steps, lambda s: broken_in(self, s), max_states=1_000_000)


def reserve(s: State, number: int) -> Iterator[Step[State]]:
    name, calls, at = f"call {number}", s.calls, s.calls[number]
    if at == "start" and s.stock >= 1:
        after = s._replace(stock=s.stock - 1, calls=changed(calls, number, "insert"))
        yield Step(f"{name}: Lua takes a unit, stock {after.stock}", after)
    elif at == "insert":
        status = changed(s.status, number, RESERVED)
        yield Step(f"{name}: INSERT ledger", s._replace(status=status, calls=changed(calls, number, "send")))
        if s.ambiguous_inserts_left:
            after = s._replace(
                ambiguous_inserts_left=s.ambiguous_inserts_left - 1,
                late_inserts=s.late_inserts | {number},
                calls=changed(calls, number, "give back"),
            )
            yield Step(f"{name}: INSERT ledger -> error (it may still run)", after)
    elif at == "give back":
        after = given_back(s, number)._replace(calls=changed(calls, number, "end"))
        yield Step(f"{name}: INCR, stock {after.stock}, answers 'failed'", after)
    elif at == "send":
        after = s._replace(answered=s.answered | {number}, calls=changed(calls, number, "end"))
        yield Step(f"{name}: send, answers 'reserved'", after)


def work(run: Run, s: State, number: int, worker: Worker) -> Iterator[Step[State]]:
    key, reconciles = worker.key, number >= run.consumers
    name = f"reconciler {number - run.consumers}" if reconciles else f"consumer {number}"

    def then(worker: Worker, s: State = s) -> State:
        return s._replace(workers=changed(s.workers, number, worker))

    if worker.at == "idle":
        for key, status in enumerate(s.status):
            if status == RESERVED:
                yield Step(f"{name} reads key {key} at status 1", then(Worker("create order", key)))
    elif worker.at == "create order":
        after = with_order(run, s, key)
        if after:
            what = f"{name} creates the order of key {key}, remaining {after.remaining}"
            yield Step(what, then(Worker("status 2", key), after))
        elif reconciles:
            yield Step(f"{name} cannot land key {key}", then(Worker("check stock", key)))
        if s.landing_failures_left and reconciles:
            failed = s._replace(landing_failures_left=s.landing_failures_left - 1)
            yield Step(f"{name} fails to land key {key} to the last attempt", then(Worker("check stock", key), failed))
    elif worker.at == "status 2":
        after = s._replace(status=changed(s.status, key, LANDED))
        yield Step(f"{name}: UPDATE key {key} to status 2", then(IDLE, after))
    elif worker.at == "check stock" and s.remaining >= 1:
        yield Step(f"{name} sees stock in the database", then(Worker("give back", key)))
    elif worker.at == "give back":
        after = given_back(s, key)
        yield Step(f"{name}: INCR for key {key}, stock {after.stock}", then(Worker("status 3", key), after))
    elif worker.at == "status 3":
        after = s._replace(status=changed(s.status, key, ROLLED_BACK))
        yield Step(f"{name}: UPDATE key {key} to status 3", then(IDLE, after))


def late_inserts_and_fail_over(s: State) -> Iterator[Step[State]]:
    for key in s.late_inserts:
        after = s._replace(late_inserts=s.late_inserts - {key}, status=changed(s.status, key, RESERVED))
        yield Step(f"the INSERT of key {key} did run", after)
    if s.fail_overs_left:
        after = s._replace(fail_overs_left=s.fail_overs_left - 1, replica_stock=s.stock)
        yield Step("a replica stops receiving writes", after)
    if s.replica_stock is not None:
        yield Step("fail-over: the replica takes over", s._replace(stock=s.replica_stock, replica_stock=None))


def with_order(run: Run, s: State, key: Key) -> State | None:
    """The order transaction; an order that exists already is as good as a new one."""
    if run.order_key_unique and s.orders[key]:
        return s
    if s.remaining < 1:
        return None
    return s._replace(remaining=s.remaining - 1, orders=changed(s.orders, key, s.orders[key] + 1))


def given_back(s: State, key: Key) -> State:
    return s._replace(stock=s.stock + 1, given_back=changed(s.given_back, key, s.given_back[key] + 1))


def broken_in(run: Run, s: State) -> Iterator[str]:
    """What is wrong now, and what would stay wrong if everybody died and reconcile landed all it can."""
    keys = range(len(run.users))
    outstanding = sum(1 for key in keys if s.status[key] == RESERVED and not s.orders[key])
    if any(count > 1 for count in s.orders):
        yield "double order"
    if sum(s.orders) + outstanding > run.total:
        yield "over-promise"
    if any(count > 1 for count in s.given_back):
        yield "double give-back"
    if any(s.status[key] == ROLLED_BACK and s.orders[key] for key in keys):
        yield "order and roll-back"
    live = [run.users[key] for key in keys if s.status[key] in (RESERVED, LANDED)]
    if len(live) != len(set(live)):
        yield "two reservations of one user"
    for key in keys:
        if s.status[key] == RESERVED and (after := with_order(run, s, key) if not s.orders[key] else s):
            s = after._replace(status=changed(s.status, key, LANDED))
    sellable = s.remaining - sum(1 for status in s.status if status == RESERVED)
    if s.stock != sellable:
        yield "lost unit" if s.stock < sellable else "inflated stock"
    if any(not s.orders[key] and s.status[key] != ROLLED_BACK for key in s.answered):
        yield "promise without order"


RUNS = {
    "a crash": Run((0,)),
    "an ambiguous insert": Run((0, 1), ambiguous_inserts=1),
    "a fail-over": Run((0, 1), fail_overs=1),
    "a double click": Run((0, 0), total=2),
    "two consumers, order key not unique": Run((0,), total=2, consumers=2, order_key_unique=False),
    "a consumer and a reconciler, one landing fails": Run((0, 1), consumers=1, reconcilers=1, landing_failures=1),
    "two reconcilers, landings fail": Run((0,), reconcilers=2, landing_failures=2),
    "two consumers": Run((0,), total=2, consumers=2),
}
