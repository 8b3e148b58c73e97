"""The runs that are searched: who asks, what is for sale, and how often each fault may happen."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace

from tests.model.promises import Promises
from tests.model.rules import Model, Rules, steps_from
from tests.model.search import Report, Step, search
from tests.model.state import Call, Copy, Database, Left, Rebuild, State, User


@dataclass(frozen=True)
class Scenario:
    """One run; `users` says who makes each reserve call, so (0, 1, 0) is a retry by user 0."""

    users: tuple[User, ...]
    total: int = 1
    quantity: int = 1
    mixed_quantities: tuple[int, ...] = ()
    ambiguous_inserts: int = 0
    roll_backs: int = 0
    rebuilds: int = 0
    duplicated_loads: int = 0
    fail_overs: int = 0
    split_brain: bool = False
    flushes: int = 0
    corruptions: int = 0
    top_ups: int = 0
    redis_at_start: Copy | None = None
    rules: Rules = field(default_factory=Rules)

    def __str__(self) -> str:
        """What differs from the quietest run."""
        said = [f"users {self.users}"]
        for one in fields(self)[1:]:
            value = getattr(self, one.name)
            if value != one.default and one.name != "rules":
                counted = isinstance(value, int | tuple) and not isinstance(value, bool | Copy)
                said.append(f"{one.name} {value}" if counted else one.name)
        return ", ".join(said).replace("_", "-")

    def without(self, *rules: str) -> "Scenario":
        """The same run with rules switched off."""
        return replace(self, rules=replace(self.rules, **dict.fromkeys(rules, False)))

    def search(self, *, until: frozenset[str] = frozenset(), max_states: int = 20_000_000) -> Report:
        """Visit every state of this run, or stop when the promises in `until` are found broken."""
        model = Model(
            user_of=self.users,
            quantity=self.quantity,
            mixed_quantities=self.mixed_quantities,
            duplicated_loads=self.duplicated_loads,
            split_brain=self.split_brain,
            first_redis_epoch=self.redis_at_start.epoch if self.redis_at_start else 1,
            rules=self.rules,
        )

        def steps(state: State) -> Iterator[Step[State]]:
            return steps_from(model, state)

        promises = Promises(model, buyers_may_vanish=self.corruptions > 0)
        return search(self.first_state(), steps, promises.broken_in, until=until, max_states=max_states)

    def first_state(self) -> State:
        """An open sale that nobody has asked for."""
        calls = len(self.users)
        nobody = (None,) * (max(self.users) + 1)
        fresh = Copy(epoch=1, stock=self.total, ticket=0, held=frozenset(), buyers=nobody, sound=True)
        return State(
            copies=(self.redis_at_start or fresh,),
            replica=None,
            database=Database(self.total, self.total, 1, self.total, (None,) * calls, frozenset(), frozenset()),
            won=(None,) * calls,
            calls=(Call("start", None, 0),) * calls,
            late=frozenset(),
            rebuilds=(Rebuild("start", 0, None, 0),) * self.rebuilds,
            answered=frozenset(),
            left=Left(
                ambiguous_inserts=self.ambiguous_inserts,
                roll_backs=self.roll_backs,
                fail_overs=self.fail_overs,
                flushes=self.flushes,
                corruptions=self.corruptions,
                top_ups=self.top_ups,
            ),
            broken=frozenset(),
        )


TWO, THREE, RETRY, DOUBLE_CLICK = (0, 1), (0, 1, 2), (0, 1, 0), (0, 0)

# Redis left over from another life of the database: many epochs ahead, and wrong.
OLD_REDIS = Copy(epoch=9, stock=3, ticket=2, held=frozenset(), buyers=(None, None), sound=False)

FOR_CI = (
    # retries and ambiguity
    Scenario(RETRY, ambiguous_inserts=1, roll_backs=1, rebuilds=1),
    Scenario(DOUBLE_CLICK, total=2, ambiguous_inserts=1, roll_backs=1, rebuilds=2),
    Scenario(TWO, ambiguous_inserts=1, roll_backs=1, rebuilds=2),
    # fail-over
    Scenario(RETRY, ambiguous_inserts=1, roll_backs=1, fail_overs=1),
    Scenario(TWO, ambiguous_inserts=1, roll_backs=1, rebuilds=1, fail_overs=1),
    Scenario(TWO, roll_backs=1, rebuilds=2, fail_overs=1),
    Scenario(TWO, rebuilds=1, fail_overs=2),
    Scenario(THREE, rebuilds=1, fail_overs=1),
    Scenario(RETRY, total=2, fail_overs=1),
    Scenario(TWO, total=4, quantity=2, roll_backs=1, rebuilds=1, fail_overs=1),
    # split brain
    Scenario(THREE, rebuilds=1, fail_overs=1, split_brain=True),
    Scenario(TWO, roll_backs=1, rebuilds=1, fail_overs=1, split_brain=True),
    # flush and duplicated load
    Scenario(THREE, rebuilds=1, flushes=1, duplicated_loads=1),
    Scenario(TWO, roll_backs=1, rebuilds=1, flushes=1, duplicated_loads=1, fail_overs=1),
    # Redis is wrong
    Scenario(THREE, corruptions=2),
    Scenario(RETRY, roll_backs=1, rebuilds=1, corruptions=1),
    Scenario(RETRY, rebuilds=1, redis_at_start=OLD_REDIS),
    # top-up
    Scenario(THREE, rebuilds=1, top_ups=1),
    Scenario(TWO, ambiguous_inserts=1, rebuilds=1, top_ups=1, fail_overs=1),
)

FULL = (
    Scenario(RETRY, ambiguous_inserts=2, roll_backs=1, rebuilds=2),
    Scenario(RETRY, ambiguous_inserts=1, roll_backs=1, rebuilds=1, fail_overs=1),
    Scenario(THREE, ambiguous_inserts=1, roll_backs=1, rebuilds=1, fail_overs=1),
    Scenario(THREE, total=2, rebuilds=1, fail_overs=1),
    Scenario(THREE, total=4, quantity=2, roll_backs=1, rebuilds=1, fail_overs=1),
    Scenario((0, 1, 2, 0), total=2, roll_backs=1, fail_overs=1),
    Scenario(THREE, roll_backs=1, rebuilds=1, fail_overs=1, split_brain=True),
    Scenario(RETRY, ambiguous_inserts=1, rebuilds=1, fail_overs=1, split_brain=True),
    Scenario(RETRY, rebuilds=1, corruptions=1, fail_overs=1, split_brain=True),
    Scenario(THREE, roll_backs=1, rebuilds=2, flushes=1, duplicated_loads=1),
    Scenario(THREE, roll_backs=1, rebuilds=1, flushes=1, duplicated_loads=1, fail_overs=1),
    Scenario(TWO, ambiguous_inserts=1, roll_backs=1, rebuilds=2, flushes=1, duplicated_loads=1, fail_overs=1),
    Scenario(THREE, rebuilds=1, corruptions=2, fail_overs=1),
    Scenario(THREE, ambiguous_inserts=1, roll_backs=1, rebuilds=1, corruptions=2),
    Scenario(THREE, rebuilds=2, top_ups=1, fail_overs=1),
)
