"""reserve: from the deduction in Redis to the row in the ledger, which is the promise (docs/protocol.md 4).

Numbers in the comments are docs/protocol.md's.
"""

import contextlib
from collections.abc import Callable
from dataclasses import asdict

import uuid6

from seckill.adapters.mysql import Database, DatabaseError, Deadlock, LockTimeout, Unreachable
from seckill.adapters.redis import (
    HoldLost,
    NothingDeducted,
    NotOpen,
    Redis,
    RedisError,
    RedisOutcomeUnknown,
    Replay,
    Won,
)
from seckill.adapters.sqs import QueueError, Queues
from seckill.domain.answer import Answer, Refusal, Refused, Reserved
from seckill.domain.deadline import Deadline
from seckill.domain.reservation import Deduction, Reservation, Status
from seckill.protocol.abandon import Abandoned, abandon, release_quietly
from seckill.protocol.ledger import read_by_key, text

CALL_SECONDS = 2.5
# Less than this is not enough for a transaction of five statements: the sweeper does it.
ABANDON_SECONDS = 0.8
# A container whose abandons keep failing has a sick database: stop spending its users' time on them.
FAILED_ABANDONS = 3
# A rolled-back key is released, and the user tried once more with a new one.
ATTEMPTS = 2
# One insert, and one more after a deadlock, a lock wait or a lost connection.
INSERTS = 2


class Reserve:
    """Makes one reservation a call. `count` is told the names of metrics; a store's failure becomes an answer."""

    def __init__(self, redis: Redis, database: Database, queues: Queues, count: Callable[[str], None]) -> None:
        self._redis = redis
        self._database = database
        self._queues = queues
        self._count = count
        self._failed_abandons = 0
        self._correlation_id = ""

    def __call__(self, sku_id: int, user: str, correlation_id: str = "") -> Answer:
        """Reserve for `user`, answered within CALL_SECONDS plus scheduling; `correlation_id` goes with the message."""
        self._correlation_id = correlation_id
        deadline = Deadline(CALL_SECONDS)
        self._redis.deadline = self._queues.deadline = deadline
        self._database.new_call(deadline)
        answer: Answer | None = None
        for _ in range(ATTEMPTS):
            answer = self._attempt(sku_id, user)
            if answer is not None:
                break
        return answer or Refused(Refusal.UNAVAILABLE)

    def _attempt(self, sku_id: int, user: str) -> Answer | None:
        """One attempt with a key of its own (4.1); None when the user's known key was rolled back and released."""
        key = str(uuid6.uuid7())
        try:
            deducted = self._redis.reserve(sku_id, key, user)
        except RedisOutcomeUnknown:
            return Refused(Refusal.OUTCOME_UNKNOWN, key)  # a retry replays: it can cost nobody a unit
        except RedisError:
            return Refused(Refusal.UNAVAILABLE)
        if isinstance(deducted, NotOpen):
            return Refused(Refusal.NOT_OPEN, opens_at=deducted.opens_at)
        if isinstance(deducted, NothingDeducted):
            return self._nothing_deducted(sku_id, deducted)
        held = deducted.key if isinstance(deducted, HoldLost) else deducted.deduction.key
        try:
            if isinstance(deducted, Won):
                return self._confirm(deducted.deduction)
            return self._replayed(sku_id, user, deducted, held)
        except DatabaseError:
            return Refused(Refusal.OUTCOME_UNKNOWN, held)  # 4.5: touch nothing

    def _nothing_deducted(self, sku_id: int, why: NothingDeducted) -> Refused:
        """4.2: answers without a deduction."""
        if why in (NothingDeducted.SOLD_OUT, NothingDeducted.CLOSED):
            return Refused(Refusal(why.value))
        if why is NothingDeducted.MISSING and self._not_on_offer(sku_id):
            return Refused(Refusal.NO_SUCH_SALE)
        self._ask_for_rebuild(sku_id, None)
        return Refused(Refusal.UNAVAILABLE)

    def _not_on_offer(self, sku_id: int) -> bool:
        try:
            return self._redis.not_on_offer(sku_id)
        except RedisError:
            return False

    def _replayed(self, sku_id: int, user: str, replay: Replay | HoldLost, key: str) -> Answer | None:
        """4.3: a user who holds a key already. Its row first: a fenced insert might wait for its landing."""
        copy_epoch = replay.copy_epoch if isinstance(replay, HoldLost) else replay.deduction.epoch
        row = read_by_key(self._database, key)
        if row and (row.sku_id, row.user) != (sku_id, user):
            self._ask_for_rebuild(sku_id, copy_epoch)
            return Refused(Refusal.UNAVAILABLE)  # Redis is wrong: nobody learns another's key
        if row:
            return self._judged(row)
        if isinstance(replay, HoldLost):
            self._ask_for_rebuild(sku_id, copy_epoch)
            return Refused(Refusal.UNAVAILABLE, key)
        return self._confirm(replay.deduction)

    def _confirm(self, deduction: Deduction) -> Answer | None:
        """4.3 to 4.6: bring a deduction into the ledger, or find out why not. DatabaseError: nothing is known."""
        if self._inserted(deduction):
            self._failed_abandons = 0
            return self._promised(
                Reserved(deduction.key, Status.RESERVED, deduction.quantity, new=True), deduction.sku_id
            )
        row = read_by_key(self._database, deduction.key)
        return self._judged(row) if row else self._by_cause(deduction)

    def _inserted(self, deduction: Deduction) -> bool:
        """4.3: the fenced insert. False says nothing: the row must be read."""
        for _ in range(INSERTS):
            try:
                return self._database.execute("reserve.fenced_insert", **asdict(deduction)) == 1
            except (Deadlock, LockTimeout):
                if not self._database.deadline.left():
                    return False
            except Unreachable:
                if read_by_key(self._database, deduction.key):  # on a new connection
                    return False
            except DatabaseError:
                return False
        return False

    def _judged(self, row: Reservation) -> Answer | None:
        """4.5: what a row under the key says; it is final or a promise."""
        if row.live:
            return self._promised(Reserved(row.key, row.status, row.quantity, new=False), row.sku_id)
        release_quietly(self._redis, row.sku_id, row.key, row.user)
        return None

    def _by_cause(self, deduction: Deduction) -> Answer | None:
        """4.6: no row, and why; found by SELECTs, never from an error's text."""
        cause = self._database.row("reserve.cause", **asdict(deduction))
        if cause is None or cause["epoch"] != deduction.epoch:
            self._ask_for_rebuild(deduction.sku_id, deduction.epoch)
            closed = cause is not None and cause["state"] != "open"
            return Refused(Refusal.CLOSED if closed else Refusal.UNAVAILABLE, deduction.key)
        poisoned = (
            cause["ticket_key"] is not None
            or deduction.quantity != cause["quantity"]
            or not deduction.quantity <= deduction.ticket <= cause["cap"]
            or deduction.ticket % deduction.quantity != 0
        )
        if poisoned:
            self._count("TicketConflict")
        if poisoned or cause["live_key"] is not None:
            self._ask_for_rebuild(deduction.sku_id, deduction.epoch)
        found = None if poisoned else self._abandoned(deduction)
        if isinstance(found, Reservation):
            return self._judged(found)
        if cause["live_key"] is not None:
            live = read_by_key(self._database, text(cause["live_key"]))
            if live and live.live:
                return self._judged(live)
        return Refused(Refusal.UNAVAILABLE if cause["state"] == "open" else Refusal.CLOSED, deduction.key)

    def _abandoned(self, deduction: Deduction) -> Reservation | None:
        """4.7: abandon, unless there is too little time or this container's abandons keep failing."""
        if self._database.deadline.left() < ABANDON_SECONDS or self._failed_abandons >= FAILED_ABANDONS:
            return None
        verdict = abandon(self._database, self._redis, deduction)
        if isinstance(verdict, Reservation):
            return verdict
        if verdict is Abandoned.UNKNOWN:
            self._failed_abandons += 1
        else:
            self._failed_abandons = 0
        if verdict is Abandoned.TOMBSTONE:
            self._count("Abandoned")
        if verdict is Abandoned.POISONED:
            self._count("TicketConflict")
            self._ask_for_rebuild(deduction.sku_id, deduction.epoch)
        return None

    def _promised(self, promise: Reserved, sku_id: int) -> Reserved:
        """4.8: tell land_order. A failed or ambiguous send is a metric, nothing else: the row is the promise."""
        if promise.status is Status.RESERVED:
            try:
                self._queues.send_landing(promise.key, sku_id, self._correlation_id)
            except QueueError:
                self._count("SendFailed")
        return promise

    def _ask_for_rebuild(self, sku_id: int, epoch: int | None) -> None:
        with contextlib.suppress(QueueError):  # the next request or the next beat asks again
            self._queues.ask_for_rebuild(sku_id, epoch)
