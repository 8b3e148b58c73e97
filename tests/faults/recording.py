"""Fault points are recorded, never listed: every call that a clean run makes to a store is one.

Each adapter has one method through which its calls leave the process. A forked child puts a watcher in front of all
of them; it ends with the child, so nothing is ever taken off again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis
from seckill.adapters.sns import NoticeTopic
from seckill.adapters.sqs import _Client as SqsClient


@dataclass(frozen=True)
class Point:
    """One call of a run."""

    position: int  # 1 is the run's first call
    adapter: str  # mysql, redis, sqs, sns
    name: str  # of the statement, script, command or operation
    locking: bool  # a statement that waits for locks, and takes them
    holding: bool  # a transaction with locks is open when the call is done

    def __str__(self) -> str:
        return f"{self.position} {self.adapter} {self.name}"


@dataclass(frozen=True)
class Call:
    """A call that is about to leave the process; `do` lets it."""

    point: Point
    adapter: Any
    do: Callable[[], Any]


Watcher = Callable[[Call], Any]


def watch(watcher: Watcher) -> None:
    """Give every call of this process to `watcher` from now on; what it returns or raises is the call's outcome."""
    run = _Run(watcher)
    run.stand_before(Database, "_send", "mysql", lambda name, *_: name, lambda name, text, *_: _takes_locks(text))
    run.stand_before(Redis, "_asked", "redis", lambda what, *_: what)
    run.stand_before(SqsClient, "call", "sqs", lambda operation: operation)
    run.stand_before(NoticeTopic, "publish", "sns", lambda *_: "publish")


class _Run:
    """Counts the calls of this process, and knows whether a transaction holds locks."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._position = 0
        self._holding = False

    def stand_before(
        self,
        adapter: type[Any],
        method: str,
        kind: str,
        name_of: Callable[..., str],
        locks: Callable[..., bool] = lambda *_: False,
    ) -> None:
        leave = getattr(adapter, method)

        def watched(this: Any, *arguments: Any, **named: Any) -> Any:
            point = self._next(kind, name_of(*arguments), locks(*arguments), getattr(this, "_in_transaction", False))
            return self._watcher(Call(point, this, lambda: leave(this, *arguments, **named)))

        setattr(adapter, method, watched)

    def _next(self, kind: str, name: str, locking: bool, in_transaction: bool) -> Point:
        self._position += 1
        if name in ("commit", "rollback"):
            self._holding = False
        elif locking and in_transaction:
            self._holding = True
        return Point(self._position, kind, name, locking, self._holding)


def _takes_locks(text: str) -> bool:
    first = text.split(maxsplit=1)[0]
    return first in ("INSERT", "UPDATE", "DELETE") or "FOR UPDATE" in text or "SHARE MODE" in text
