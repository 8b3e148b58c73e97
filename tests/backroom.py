"""Behind the shop: the reconciler, the audit, the repairs, and what crashes, clocks and operators do to the books."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import redis

from functions.reconcile import handler as reconcile_function
from functions.sale_admin.handler import lambda_handler as sale_admin
from local.lambda_context import LambdaContext
from local.servers import Servers
from seckill.adapters.sns import NoticeTopic
from seckill.adapters.sqs import DeadLetters, Queues
from seckill.domain.answer import Answer
from seckill.domain.deadline import Deadline
from seckill.protocol.audit import Audit, audit_sale
from seckill.protocol.land import Landing, land
from seckill.protocol.old_holds import OldHolds, sweep_old_holds
from seckill.protocol.reconcile import Pass, Reconcile
from seckill.protocol.reserve import Reserve
from seckill.protocol.stale_rows import StaleRows, sweep_stale_rows
from tests.aging import age
from tests.books import connect
from tests.containers import new_containers
from tests.ledger import Ledger
from tests.redis_copy import RedisCopy
from tests.sales import Sales
from tests.stores import open_database, open_redis, patience, reserved

STALE_SECONDS = 120
ATTEMPTS = 3
TABLES = ("sale", "stock", "pre_deduct", "order", "notice", "top_up")


class Unsent(Queues):
    """Sends nothing: these tests deliver by hand, and moto would be the slowest part of each reservation."""

    def __init__(self) -> None:
        super().__init__("", "")
        self.rebuilds_asked: list[tuple[int, int | None]] = []

    def send_landing(self, key: str, sku_id: int, correlation_id: str) -> None:
        """The ledger row is the promise."""

    def ask_for_rebuild(self, sku_id: int, epoch: int | None) -> None:
        """Remember it."""
        self.rebuilds_asked.append((sku_id, epoch))


@dataclass
class Backroom:
    """Connections and queues of one test, its sales, and what an operator, a crash and a clock do to them."""

    servers: Servers  # with the backroom's own database
    sqs: Any
    landing_url: str
    dead_letters_url: str
    counts: list[str] = field(default_factory=list)
    deliberately_broken: set[int] = field(default_factory=set)  # sales whose books are not checked afterwards

    def __post_init__(self) -> None:
        self.database = open_database(self.servers.database_url)
        self.redis = open_redis(self.servers.redis_url)
        self.queues = Unsent()
        self.sales = Sales(self.database, self.redis)
        self.letters = DeadLetters(self.landing_url, self.dead_letters_url)
        self.ask = Reserve(
            open_redis(self.servers.redis_url), open_database(self.servers.database_url), self.queues, lambda _: None
        )
        self._reconcilers: dict[tuple[int, int], Reconcile] = {}

    def new_call(self) -> None:
        """A minute more, for a test that takes long."""
        self.redis.deadline = deadline = patience()
        self.database.new_call(deadline)

    # -- sales and shoppers -----------------------------------------------------------------------------------------

    def promise(self, sku_id: int, *users: str) -> list[str]:
        """Reservations of these users; their keys."""
        return [reserved(self.ask(sku_id, user)).key for user in users]

    def answer(self, sku_id: int, user: str) -> Answer:
        """What the shopper is told."""
        return self.ask(sku_id, user)

    def land(self, *keys: str) -> dict[str, Landing]:
        """As land_order does it."""
        return land(self.database, self.redis, keys, lambda _: None)

    def promise_many(self, sku_id: int, number: int) -> None:
        """Rows at status 1 of that many users, and their holds, without asking one by one."""
        with connect(self.servers.database_url) as connection, connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO seckill_pre_deduct"
                " (pre_deduct_key, sku_id, user_id, quantity, epoch, ticket, status, created_at, updated_at)"
                " VALUES (%s, %s, %s, 1, 1, %s, 1, '2026-01-01', '2026-01-01')",
                [(f"{sku_id}-{n}", sku_id, f"user {n}", n) for n in range(1, number + 1)],
            )
        copy = self.copy(sku_id)
        held = {
            f"{sku_id}-{n}": f'{{"user":"user {n}","quantity":1,"epoch":1,"ticket":{n},"ms":0}}'
            for n in range(1, number + 1)
        }
        copy.client.hset(copy.held_key, mapping=held)
        copy.client.hset(copy.buyers_key, mapping={f"u:user {n}": f"{sku_id}-{n}" for n in range(1, number + 1)})
        copy.set(stock=copy.stock - number, ticket=number)

    # -- the reconciler ---------------------------------------------------------------------------------------------

    def reconcile(
        self, attempts: int = ATTEMPTS, topic: NoticeTopic | None = None, stale_seconds: int = STALE_SECONDS
    ) -> Pass:
        """One pass by the test's own container, which keeps its connections."""
        wanted = (attempts, stale_seconds)
        if topic or wanted not in self._reconcilers:
            self._reconcilers[wanted] = Reconcile(
                self.database, self.redis, self.letters, topic, self.counts.append, stale_seconds, attempts
            )
        return self._reconcilers[wanted](patience())

    def sweep_rows(self, attempts: int = ATTEMPTS, deadline: Deadline | None = None) -> StaleRows:
        """The stale rows alone."""
        return sweep_stale_rows(
            self.database, self.redis, deadline or patience(), self.counts.append,
            stale_seconds=STALE_SECONDS, landing_attempts=attempts,
        )  # fmt: skip

    def sweep_holds(self, sku_id: int) -> OldHolds:
        """The old holds of one sale alone."""
        return sweep_old_holds(self.database, self.redis, sku_id, patience(), self.counts.append, STALE_SECONDS)

    def audit(self, sku_id: int) -> Audit:
        """The audit of one sale."""
        audit = audit_sale(self.database, self.redis, sku_id, STALE_SECONDS)
        assert audit is not None
        return audit

    # -- behind their back ------------------------------------------------------------------------------------------

    def age(self, sku_id: int, minutes: int = 10) -> None:
        """All rows and holds of the sale become that much older."""
        age(self.servers, sku_id, minutes)

    def ledger(self, sku_id: int) -> Ledger:
        """The tables."""
        return Ledger(self.servers.database_url, sku_id)

    def copy(self, sku_id: int) -> RedisCopy:
        """The copy in Redis."""
        return RedisCopy(self.servers.redis_url, sku_id)

    def flush(self, sku_id: int) -> None:
        """Redis has lost the sale."""
        copy = self.copy(sku_id)
        copy.client.delete(copy.sale_key, copy.held_key, copy.buyers_key)

    def notices(self, sku_id: int) -> list[str]:
        """Keys of the sale's notices, one for each notice."""
        found = self.ledger(sku_id).select("SELECT pre_deduct_key FROM seckill_notice WHERE sku_id = %(sku)s")
        return [key.decode() for (key,) in found]

    def retries(self, key: str) -> int:
        """How often the row alone has failed."""
        ((count,),) = self.ledger(0).select(
            "SELECT retry_count FROM seckill_pre_deduct WHERE pre_deduct_key = %(key)s", key=key
        )
        return int(count)

    def put_letter(self, body: str) -> None:
        """A message that failed too often."""
        self.sqs.send_message(QueueUrl=self.dead_letters_url, MessageBody=body)

    def visible_letters(self) -> list[str]:
        """Bodies of the dead letters that anybody could receive now, sorted; they stay visible."""
        bodies = []
        seen: list[Any] = []
        for _ in range(100):  # far more than any of these tests has
            received = self.sqs.receive_message(QueueUrl=self.dead_letters_url, MaxNumberOfMessages=10)
            if not received.get("Messages"):
                break
            seen += received["Messages"]
        for message in seen:
            bodies.append(message["Body"])
            self.sqs.change_message_visibility(
                QueueUrl=self.dead_letters_url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
            )
        return sorted(bodies)

    def close(self) -> None:
        """Nothing is left for the next test."""
        self.database.close()
        with contextlib.suppress(redis.ConnectionError):  # a test may have killed it
            for sku_id in self.sales.sku_ids:
                self.flush(sku_id)
        with connect(self.servers.database_url) as connection, connection.cursor() as cursor:
            for table in TABLES:
                cursor.execute(f"DELETE FROM seckill_{table}")


class Functions:
    """The two functions that look after the books, as Lambda would call them; each keeps its container."""

    @staticmethod
    def context() -> LambdaContext:
        """A minute, as deployed."""
        return LambdaContext.starting_now("test", "eu-west-1", timeout_seconds=60)

    def admin(self, action: str, **arguments: Any) -> dict[str, Any]:
        """sale_admin's answer."""
        return sale_admin({"action": action, **arguments}, self.context())

    def refusal(self, action: str, **arguments: Any) -> str:
        """The code with which sale_admin refuses."""
        answer = self.admin(action, **arguments)
        assert list(answer) == ["ok", "error", "detail"], answer
        assert answer["ok"] is False
        return str(answer["error"])

    def reconcile(self, event: dict[str, Any]) -> dict[str, Any]:
        """reconcile's answer."""
        return reconcile_function.lambda_handler(event, self.context())

    def new_containers(self) -> None:
        """The next event finds cold containers."""
        new_containers()
        reconcile_function.reconcile.cache_clear()


def of_sku(events: Sequence[Any], sku_id: int) -> list[str]:
    """What was done to a sale's reservations."""
    return [event.what for event in events if event.sku_id == sku_id]
