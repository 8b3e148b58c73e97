"""When the faults happen: what the accounts say decides, not a stopwatch.

The same rules for both designs:

    C   the row is held once Redis stock is 0, every unit's message was sent and the queue is empty (whatever could land
        has landed), for HOLD_SECONDS; the messages meant for it are delivered as soon as it is held
    B   a late message is delivered LATE_SECONDS after it was sent, and not before Redis stock is 0

A sale that does not sell out would wait for ever, so each rule also has a latest moment.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self

from drill.accounts import Sampler
from drill.error import DrillError
from drill.faults.plan import Fault, FaultPlan, Hit
from drill.faults.queue_proxy import HeldMessage, QueueProxy

# Four attempts of the incident's consumer, each a lock wait of 1 s that MySQL may stretch to 2 s, and its pauses.
# Shorter than the five receives, 5 s apart, that this product's landing queue grants before its dead-letter queue.
HOLD_SECONDS = 9.0
# Older than what the incident's consumer takes without a look at live stock (drill/incident/consumer.py).
LATE_SECONDS = 12.0
LATEST_HOLD_AFTER_OPENING_SECONDS = 8.0
LATEST_DELIVERY_SECONDS = 20.0
LOOK_EVERY_SECONDS = 0.05
# Everything above with room, after the storm's end.
FINISH_SECONDS = 60.0


@dataclass(frozen=True)
class Moment:
    """Something the director did: monotonic seconds, the fault's letter, what, and to which reservation if to one."""

    at: float
    fault: str
    what: str
    key: str | None = None


class Director:
    """A thread. `open()` when the sale opens, `finish()` when the storm is over: then every fault has happened."""

    def __init__(
        self,
        plan: FaultPlan,
        proxy: QueueProxy,
        sampler: Sampler,
        hold_row: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self._plan = plan
        self._proxy = proxy
        self._sampler = sampler
        self._hold_row = hold_row
        self._opened_at = 0.0
        self._storm_over = threading.Event()
        self._stopping = threading.Event()
        self._held_until: float | None = None
        self._hold_is_over = plan.count(Hit.HELD_ROW) == 0
        self._row = contextlib.ExitStack()
        self._thread = threading.Thread(target=self._run, name="fault director", daemon=True)
        self.moments: list[Moment] = []
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def open(self, opened_at: float) -> None:
        self._opened_at = opened_at
        self._thread.start()

    def finish(self) -> None:
        """Wait until every fault has happened. Raises DrillError when one could not be injected."""
        self._storm_over.set()
        self._thread.join(timeout=FINISH_SECONDS)
        if self._thread.is_alive():
            raise DrillError(f"the faults had not all happened {FINISH_SECONDS:.0f} s after the storm")
        if self._failure is not None:
            raise DrillError(f"a fault could not be injected: {self._failure}") from self._failure

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=HOLD_SECONDS)

    def _run(self) -> None:
        try:
            with self._row:
                while not self._is_done():  # ends at the latest when __exit__ stops it
                    self._hold_or_release()
                    for message in self._proxy.held:
                        if self._is_due(message):
                            self._proxy.deliver(message)
                            self._note(message.hit.fault, "held message delivered", message.key)
                    if self._stopping.wait(LOOK_EVERY_SECONDS):
                        return
        except BaseException as error:  # noqa: BLE001  handed to the main thread by finish()
            self._failure = error

    def _is_done(self) -> bool:
        return self._storm_over.is_set() and self._hold_is_over and not self._proxy.held

    def _hold_or_release(self) -> None:
        now = time.monotonic()
        if self._hold_is_over:
            return
        if self._held_until is None:
            if self._is_time_to_hold(now):
                self._row.enter_context(self._hold_row())
                self._held_until = time.monotonic() + HOLD_SECONDS
                self._note(Hit.HELD_ROW.fault, "hot row held")
        elif now >= self._held_until:
            self._row.close()
            self._hold_is_over = True
            self._note(Hit.HELD_ROW.fault, "hot row released")

    def _is_time_to_hold(self, now: float) -> bool:
        if now >= self._opened_at + LATEST_HOLD_AFTER_OPENING_SECONDS:
            return True
        accounts = self._sampler.latest
        sent_at = self._proxy.all_sent_at
        return sent_at is not None and accounts.at > sent_at and accounts.redis_stock == 0 and accounts.queue_depth == 0

    def _is_due(self, message: HeldMessage) -> bool:
        age = time.monotonic() - message.sent_at
        if message.hit is Hit.HELD_ROW:
            return self._held_until is not None
        return age >= LATEST_DELIVERY_SECONDS or (age >= LATE_SECONDS and self._sampler.latest.redis_stock == 0)

    def _note(self, fault: Fault, what: str, key: str | None = None) -> None:
        self.moments.append(Moment(time.monotonic(), fault.value, what, key))
