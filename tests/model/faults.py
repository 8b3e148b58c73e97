"""What Redis does to us: fail-over with lost writes, split brain, FLUSHALL, and a copy that is simply wrong.

The other faults are in the rules themselves, at the step that they hit: an insert whose outcome is unknown, a landing
that fails to its last attempt, a load that arrives twice. Death needs no step: whoever died takes none.
"""

from collections.abc import Iterator

from tests.model.search import Step
from tests.model.state import Copy, State

MISSING = Copy(epoch=0, stock=0, ticket=0, held=frozenset(), buyers=(), sound=False)


def lose_redis(s: State, units: int, split_brain: bool) -> Iterator[Step[State]]:
    """Every loss that may still happen; a wrong stock is wrong by `units`."""
    copies = s.copies
    may_fail_over = s.left.fail_overs and s.replica is None and len(copies) == 1
    if may_fail_over and split_brain:
        both = tuple(copy._replace(sound=False) for copy in (copies[0], copies[0]))
        yield Step("split brain: a replica is promoted, the old primary goes on", failed_over(s)._replace(copies=both))
    elif may_fail_over:
        yield Step("a replica stops receiving writes", failed_over(s)._replace(replica=copies[0]._replace(sound=False)))
    if len(copies) == 2:
        yield Step("the old primary dies", s._replace(copies=copies[1:]))
    if s.replica:
        yield Step("fail-over: the replica takes over", s._replace(copies=(s.replica,), replica=None))
    if s.left.flushes:
        left = s.left._replace(flushes=s.left.flushes - 1)
        yield Step("FLUSHALL", s.with_copy(0, MISSING)._replace(left=left))
    if s.left.corruptions:
        yield from corrupt(s, units)


def corrupt(s: State, units: int) -> Iterator[Step[State]]:
    left = s.left._replace(corruptions=s.left.corruptions - 1)
    for server, copy in enumerate(s.copies):
        if copy.epoch == 0:
            continue
        for what, wrong in (
            ("one reservation too many in stock", copy._replace(stock=copy.stock + units)),
            ("ticket back at 0", copy._replace(ticket=0)),
            ("buyers lost", copy._replace(buyers=(None,) * len(copy.buyers))),
            ("holds lost", copy._replace(held=frozenset())),
        ):
            after = s.with_copy(server, wrong._replace(sound=False))
            yield Step(f"Redis is wrong{s.at(server)}: {what}", after._replace(left=left))


def failed_over(s: State) -> State:
    return s._replace(left=s.left._replace(fail_overs=s.left.fail_overs - 1))
