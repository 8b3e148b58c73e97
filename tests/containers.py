"""Containers in this process: each with connections of its own, as on Lambda."""

from collections.abc import Callable
from typing import TypeVar

from functions.land_order import handler as land_order
from functions.reserve import handler as reserve
from functions.sale_admin import handler as sale_admin
from local.lambda_context import LambdaContext
from local.servers import Servers
from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis
from seckill.adapters.sqs import Queues
from seckill.domain.answer import Answer, Refusal, Refused
from seckill.domain.deadline import Deadline
from seckill.protocol.reserve import Reserve

T = TypeVar("T")

# Asking again is the way to learn (503); a machine that answers so this often has another problem.
MOST_TRIES = 8
ASK_AGAIN = (Refusal.UNAVAILABLE, Refusal.OUTCOME_UNKNOWN)


def new_containers() -> None:
    """Every function's next event finds a cold container, which reads the environment anew."""
    for cached in (reserve.container, land_order.stores, sale_admin.stores):
        cached.cache_clear()


def context() -> LambdaContext:
    """What a handler is told about its invocation."""
    return LambdaContext.starting_now("test", "eu-west-1", timeout_seconds=10)


def reserve_container(
    servers: Servers, queue_urls: dict[str, str], count: Callable[[str], None] = lambda name: None
) -> Reserve:
    """reserve with a Redis, a database and a queue client of its own, the latter built."""
    queues = Queues(queue_urls["landing"], queue_urls["reconcile"])
    queues.warm()
    return Reserve(Redis(servers.redis_url), Database(servers.database_url), queues, count)


def land_container(servers: Servers) -> tuple[Database, Redis]:
    """land's connections, with the time it has as a function."""
    deadline = Deadline(seconds=60, longest_wait=2)
    database, redis = Database(servers.database_url), Redis(servers.redis_url)
    redis.deadline = deadline
    database.new_call(deadline)
    return database, redis


def until_known(reserve: Reserve, sku_id: int, user: str) -> Answer:
    """Ask again while the answer is 503, as a shopper does."""
    for _ in range(MOST_TRIES):
        answer = reserve(sku_id, user)
        if not (isinstance(answer, Refused) and answer.refusal in ASK_AGAIN):
            return answer
    raise AssertionError(f"{user} got {answer} {MOST_TRIES} times")
