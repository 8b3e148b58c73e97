"""reconcile: one pass over everything that may have been left open, safe to run twice at once (docs/protocol.md 6)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from secrets import randbelow

from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis
from seckill.adapters.sns import NoticeTopic
from seckill.adapters.sqs import DeadLetters, Depth
from seckill.domain.deadline import Deadline
from seckill.domain.event import Event
from seckill.protocol.audit import Audit, audit_sale, books_are_broken
from seckill.protocol.change_sale import close_sale
from seckill.protocol.dead_letters import Rescue, rescue_dead_letters
from seckill.protocol.notices import publish_notices
from seckill.protocol.old_holds import OldHolds, sweep_old_holds
from seckill.protocol.rebuild import Rebuilt, rebuild
from seckill.protocol.stale_rows import StaleRows, sweep_stale_rows

# A sale closes by itself this long after its closing time: late requests have been answered by then.
CLOSE_AFTER_MS = 5 * 60 * 1000
# No sale's turn is begun with less time left: it reads some pages and may rebuild.
SALE_SECONDS = 5.0
BOOKS_ARE_OFF = "its books are off, a person mends the rows"


@dataclass
class Pass:
    """What one pass did. `failed` names what could not be done this time, and why."""

    stale: StaleRows = field(default_factory=StaleRows)
    holds: list[OldHolds] = field(default_factory=list)
    rescue: Rescue = field(default_factory=Rescue)
    rebuilt: list[int] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    audits: list[Audit] = field(default_factory=list)
    landing_depth: Depth | None = None
    dead_letter_depth: Depth | None = None

    @property
    def events(self) -> list[Event]:
        """What was done to single reservations, in order."""
        return [*self.stale.events, *self.rescue.events, *(event for holds in self.holds for event in holds.events)]

    failed: list[str] = field(default_factory=list)


class Reconcile:
    """Runs passes; a part that fails is reported in the pass and never stops the others."""

    def __init__(
        self,
        database: Database,
        redis: Redis,
        letters: DeadLetters,
        topic: NoticeTopic | None,
        count: Callable[[str], None],
        stale_seconds: int,
        landing_attempts: int,
    ) -> None:
        self._database = database
        self._redis = redis
        self._letters = letters
        self._topic = topic
        self._count = count
        self._stale_seconds = stale_seconds
        self._landing_attempts = landing_attempts

    def __call__(self, deadline: Deadline) -> Pass:
        """All parts, once, within the deadline."""
        self._begin(deadline)
        done = Pass()
        with self._part(done, "catalogue"):
            self._redis.rewrite_catalogue(row["sku_id"] for row in self._database.rows("sale.on_offer"))
        with self._part(done, "stale rows"):
            sweep_stale_rows(
                self._database, self._redis, deadline, self._count,
                stale_seconds=self._stale_seconds, landing_attempts=self._landing_attempts, done=done.stale,
            )  # fmt: skip
        with self._part(done, "dead letters"):
            rescue_dead_letters(self._database, self._redis, self._letters, deadline, self._count, done.rescue)
        with self._part(done, "closing"):
            self._close_overdue(done)
        for sku_id in self._sales(done, deadline):
            with self._part(done, f"SKU {sku_id}"):
                self._one_sale(done, sku_id, deadline)
        done.audits.sort(key=lambda audit: audit.sku_id)
        done.rebuilt.sort()
        self._look_at_queues(done)
        with self._part(done, "notices"):
            if self._topic:
                publish_notices(self._database, self._topic, deadline)
        if not done.failed:
            self._count("ReconcilePass")
        return done

    def audit(self, deadline: Deadline, sku_id: int | None = None) -> Pass:
        """The audit alone, of one sale or of all on offer."""
        self._begin(deadline)
        done = Pass()
        for audited in [sku_id] if sku_id is not None else self._sales(done, deadline):
            with self._part(done, f"SKU {audited}"):
                self._audited(done, audited)
        done.audits.sort(key=lambda audit: audit.sku_id)
        self._look_at_queues(done)
        return done

    def rebuild(self, deadline: Deadline, sku_id: int, observed: int | None) -> Rebuilt:
        """A rebuild that a request asked for. Raises the stores' errors: the request is kept."""
        self._begin(deadline)
        audit = audit_sale(self._database, self._redis, sku_id, self._stale_seconds)
        if audit is None:
            return Rebuilt.NO_SUCH_SALE
        return self._rebuilt(audit, observed)

    def _begin(self, deadline: Deadline) -> None:
        self._redis.deadline = deadline
        self._database.new_call(deadline)

    @contextmanager
    def _part(self, done: Pass, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  one sale's nonsense must not stop the others, pass after pass
            done.failed.append(f"{name}: {type(error).__name__}: {error}")

    def _sales(self, done: Pass, deadline: Deadline) -> Iterator[int]:
        """All on offer, from a random one on: when time is short, other sales are reached in each pass."""
        skus: list[int] = []
        with self._part(done, "sales"):
            skus = [row["sku_id"] for row in self._database.rows("sale.on_offer")]
        first = randbelow(len(skus)) if skus else 0
        for sku_id in skus[first:] + skus[:first]:
            if deadline.left() < SALE_SECONDS:
                done.failed.append(f"SKU {sku_id} and later: too little time left")
                return
            yield sku_id

    def _look_at_queues(self, done: Pass) -> None:
        with self._part(done, "queues"):
            done.landing_depth = self._letters.landing_depth()
            done.dead_letter_depth = self._letters.depth()

    def _close_overdue(self, done: Pass) -> None:
        for row in self._database.rows("reconcile.overdue", CLOSE_AFTER_MS):
            with self._part(done, f"closing of SKU {row['sku_id']}"):
                self._close(done, row["sku_id"])

    def _close(self, done: Pass, sku_id: int) -> None:
        """Closing is a rebuild, whose new cap would hide books that are off."""
        if books_are_broken(self._database, sku_id):
            done.failed.append(f"SKU {sku_id} was not closed: {BOOKS_ARE_OFF}")
            return
        close_sale(self._database, self._redis, sku_id)
        done.closed.append(sku_id)

    def _one_sale(self, done: Pass, sku_id: int, deadline: Deadline) -> None:
        """Holds first, so that the audit judges what is left; a copy that is behind or has drifted is rebuilt."""
        holds = OldHolds()
        with self._part(done, f"holds of SKU {sku_id}"):  # without Redis, the hard equations are audited all the same
            done.holds.append(holds)
            sweep_old_holds(self._database, self._redis, sku_id, deadline, self._count, self._stale_seconds, holds)
        audit = self._audited(done, sku_id)
        if audit is None:
            return
        copy_epoch = audit.redis.sale.epoch if audit.redis else None
        behind = copy_epoch != audit.books.epoch
        if behind or holds.rebuild_needed or audit.drift_confirmed:
            outcome = self._rebuilt(audit, None if behind else copy_epoch)
            if outcome is Rebuilt.LOADED:
                done.rebuilt.append(sku_id)
            elif outcome is Rebuilt.PROMISED_TOO_MUCH or (outcome is Rebuilt.NOT_LOADED and self._is_last(audit)):
                why = BOOKS_ARE_OFF if audit.hard_broken else outcome.value
                done.failed.append(f"SKU {sku_id} was not rebuilt: {why}")

    def _audited(self, done: Pass, sku_id: int) -> Audit | None:
        audit = audit_sale(self._database, self._redis, sku_id, self._stale_seconds)
        if audit is not None:
            done.audits.append(audit)
            if audit.hard_broken:
                self._count("InvariantBroken")
        return audit

    def _is_last(self, audit: Audit) -> bool:
        """Whether nobody else has rebuilt the sale since its audit: whoever did it last tells how that ended.

        A copy of a later epoch than MySQL's makes this pass leap like two: then the next one tells.
        """
        sale = self._database.row("rebuild.sale", audit.sku_id)
        return sale is not None and sale["epoch"] <= audit.books.epoch + 1

    def _rebuilt(self, audit: Audit, observed: int | None) -> Rebuilt:
        """A sale whose hard equations are off is never rebuilt automatically: a person mends the rows."""
        if audit.hard_broken:
            return Rebuilt.PROMISED_TOO_MUCH
        outcome = rebuild(self._database, self._redis, audit.sku_id, observed=observed)
        if outcome is Rebuilt.LOADED:
            self._count("Rebuild")
        if outcome is Rebuilt.PROMISED_TOO_MUCH:
            self._count("InvariantBroken")
        return outcome
