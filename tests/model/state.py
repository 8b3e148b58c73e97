"""What the model remembers: one sale, a few users, and everything that is between two steps.

A state is a tree of tuples, so it can be compared, hashed and printed. Keys and users are small numbers: key `k` is the
pre_deduct_key that reserve call `k` made, `None` stands for "none". The words are those of docs/protocol.md, section 2.
"""

from typing import Literal, NamedTuple, TypeVar

T = TypeVar("T")
Key = int
User = int

RESERVED, LANDED, ROLLED_BACK = 1, 2, 3


class Copy(NamedTuple):
    """The sale in one Redis server (docs/protocol.md, section 3)."""

    epoch: int  # 0: the copy is missing
    stock: int
    ticket: int
    held: frozenset[Key]
    buyers: tuple[Key | None, ...]  # by user
    sound: bool  # known to the model only: nothing was lost or damaged since the last load


class Row(NamedTuple):
    """A row of the ledger."""

    status: int
    epoch: int
    ticket: int


class Database(NamedTuple):
    """MySQL: sale and stock, the ledger by key, the keys that have an order, the keys that have a notice."""

    total: int
    remaining: int
    epoch: int
    cap: int
    ledger: tuple[Row | None, ...]
    orders: frozenset[Key]
    notices: frozenset[Key]


class Won(NamedTuple):
    """What the reserve script gave to a key."""

    epoch: int
    ticket: int


# Where a reserve call or a rebuild stands. One that died stays where it is for ever.
At = Literal[
    "start",
    "insert",
    "fence passed",  # only when the insert takes no shared lock
    "abandon",
    "answer",
    "read early",  # only when a rebuild reads before its COMMIT
    "locked",  # only when a rebuild computes the cap by two SELECTs
    "bumped",
    "remaining read",  # only when a rebuild reads what it loads without a read view
    "load",
    "end",
]


class Call(NamedTuple):
    """One invocation of reserve: the key it works on and the epoch it will write with it."""

    at: At
    key: Key | None
    epoch: int


class Content(NamedTuple):
    """What a rebuild read from MySQL and will load."""

    stock: int
    held: frozenset[Key]
    buyers: tuple[Key | None, ...]


class Rebuild(NamedTuple):
    """One rebuild: its new epoch, what it read, how often it has loaded."""

    at: At
    epoch: int
    content: Content | None
    loads: int


class Late(NamedTuple):
    """A statement whose outcome its sender does not know: it runs later, or never."""

    what: str  # "insert" or "incr"
    key: Key
    epoch: int


class Left(NamedTuple):
    """How many more of each fault may happen."""

    ambiguous_inserts: int
    roll_backs: int
    fail_overs: int
    flushes: int
    corruptions: int
    top_ups: int


class State(NamedTuple):
    """Everything. `broken` names promises that a step broke without leaving another trace; it stays empty."""

    copies: tuple[Copy, ...]  # the Redis servers that answer: two of them during a split brain, the old primary first
    replica: Copy | None  # a replica that receives no writes any more and may become the primary
    database: Database
    won: tuple[Won | None, ...]  # by key
    calls: tuple[Call, ...]
    late: frozenset[Late]
    rebuilds: tuple[Rebuild, ...]
    answered: frozenset[Key]  # keys for which a user was told "reserved"
    left: Left
    broken: frozenset[str]

    def with_copy(self, server: int, copy: Copy) -> "State":
        return self._replace(copies=changed(self.copies, server, copy))

    def with_call(self, number: int, call: Call) -> "State":
        return self._replace(calls=changed(self.calls, number, call))

    def with_rebuild(self, number: int, one: Rebuild) -> "State":
        return self._replace(rebuilds=changed(self.rebuilds, number, one))

    def won_by(self, key: Key) -> Won:
        """What a key that has won was given."""
        won = self.won[key]
        assert won is not None
        return won

    def at(self, server: int) -> str:
        """Names a server in a trace, when there are two."""
        return "" if len(self.copies) == 1 else (" at the old primary", " at the new primary")[server]


def changed(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    """The same items but for one."""
    return (*items[:index], item, *items[index + 1 :])
