"""What can happen to a process at a point, and to Redis meanwhile."""

import os
from collections.abc import Callable
from enum import Enum
from typing import Any, NoReturn

from seckill.adapters.mysql import Database, DatabaseError, Deadlock, LockTimeout, Unreachable
from seckill.adapters.redis import RedisError, RedisOutcomeUnknown
from seckill.adapters.sns import NoticeError
from seckill.adapters.sqs import QueueError
from tests.faults.recording import Call, Point, Watcher

# Exit statuses of a process: it was meant to die; it came to another call than the recorded one.
DIED, DEVIATED = 17, 18


class Fault(Enum):
    """What happens to the process. The call of the point is done, or is not, as the words say."""

    DIES = "dies when the call is done, before it knows"
    REFUSED = "is refused, nothing is done"
    DEADLOCK = "is refused, its whole transaction is undone"
    LOST_BEFORE = "loses the connection, nothing is done"
    LOST_AFTER = "loses the connection, the call is done"
    GONE_BEFORE = "loses the store for the rest of its life, nothing is done"
    GONE_AFTER = "loses the store for the rest of its life, the call is done"
    PAUSES = "stops when the call is done, and goes on after everybody else has finished"
    PAUSES_CUT = "stops when the call is done, the database ends its session, and it goes on after everybody else"

    def fits(self, point: Point) -> bool:
        """Whether it can happen there."""
        match self:
            case Fault.DEADLOCK:
                return point.locking
            case Fault.PAUSES_CUT:
                return point.holding
        return True

    @property
    def pauses(self) -> bool:
        return self in (Fault.PAUSES, Fault.PAUSES_CUT)

    @property
    def lasts(self) -> bool:
        """Whether the process never reaches that store again."""
        return self in (Fault.GONE_BEFORE, Fault.GONE_AFTER)

    @property
    def errs_after(self) -> bool:
        """Whether an error hides that the call is done."""
        return self in (Fault.LOST_AFTER, Fault.GONE_AFTER)


# The four columns: in CI one of each column meets each point.
COLUMNS = {
    "dies": (Fault.DIES,),
    "error-before": (Fault.REFUSED, Fault.DEADLOCK, Fault.LOST_BEFORE, Fault.GONE_BEFORE),
    "error-after": (Fault.LOST_AFTER, Fault.GONE_AFTER),
    "pauses": (Fault.PAUSES, Fault.PAUSES_CUT),
}


class Trouble(Enum):
    """What becomes of Redis at that moment."""

    KEEPS = "keeps its data"
    LOSES = "loses its last writes"
    FLUSHED = "is flushed"


def strike(fault: Fault, at: Point, reached: Callable[[int | None], None]) -> Watcher:
    """A watcher that lets `fault` happen at the point. `reached` is called there, with the number of the database
    session that holds locks if there is one; it returns when the process may go on.
    """
    sessions: list[int] = []

    def watcher(call: Call) -> Any:
        _remember_session(sessions, call)
        if call.point.position > at.position and fault.lasts and call.point.adapter == at.adapter:
            fail(fault, call)
        if call.point.position != at.position:
            return call.do()
        if call.point != at:
            os._exit(DEVIATED)
        done = _outcome(call) if fault is Fault.DIES or fault.errs_after or fault.pauses else None
        _remember_session(sessions, call)
        reached(sessions[-1] if at.holding else None)
        if done is None or fault.errs_after:
            fail(fault, call)
        if fault is Fault.DIES:
            os._exit(DIED)
        return done()

    return watcher


def _outcome(call: Call) -> Callable[[], Any]:
    """Do the call now; its answer or its error when asked for."""
    try:
        answer = call.do()
    except Exception as error:  # noqa: BLE001  a refusal is an outcome, and kept for later
        failure = error

        def fail() -> NoReturn:
            raise failure

        return fail
    return lambda: answer


def _remember_session(sessions: list[int], call: Call) -> None:
    connection = getattr(call.adapter, "_connection", None)
    if call.point.adapter == "mysql" and call.point.holding and connection is not None:
        sessions.append(connection.thread_id())


def fail(fault: Fault, call: Call) -> NoReturn:
    """The adapter's own error; a lost connection is really dropped, so the database undoes what was not committed."""
    refused = fault in (Fault.REFUSED, Fault.DEADLOCK)
    match call.point.adapter:
        case "mysql" if refused:
            raise _refusal(fault, call)
        case "mysql":
            call.adapter.close()
            raise Unreachable(2013, "Lost connection to MySQL server during query")
        case "redis" if refused:
            raise RedisError(f"{call.point.name}: BUSY Redis is busy running a script")
        case "redis":
            call.adapter.close()
            raise RedisOutcomeUnknown(f"{call.point.name}: ConnectionError: Connection closed by server.")
        case "sqs":
            raise QueueError(f"{call.point.name}: EndpointConnectionError")
    raise NoticeError(f"{call.point.name}: EndpointConnectionError")


def _refusal(fault: Fault, call: Call) -> DatabaseError:
    database: Database = call.adapter
    if fault is Fault.DEADLOCK:
        if database._in_transaction and database._connection is not None:
            database._connection.rollback()  # as the server does by itself
        return Deadlock(1213, "Deadlock found when trying to get lock; try restarting transaction")
    if call.point.locking:
        return LockTimeout(1205, "Lock wait timeout exceeded; try restarting transaction")
    if call.point.name == "commit":
        return DatabaseError(1180, "Got error during COMMIT")
    return DatabaseError(1317, "Query execution was interrupted")
