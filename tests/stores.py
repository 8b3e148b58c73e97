"""The stores as a test meets them: connections with time to spend, and ways to break them."""

from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis, Won
from seckill.domain.answer import Answer, Reserved
from seckill.domain.deadline import Deadline
from seckill.domain.reservation import Deduction
from tests.books import connect

# A sale of three units as the load wants it.
SALE_FIELDS = {"state": "open", "stock": "3", "quantity": "1", "opens_at": "", "closes_at": ""}


def patience() -> Deadline:
    """Time enough for all that a test does by itself."""
    return Deadline(seconds=60, longest_wait=5)


def open_database(url: str) -> Database:
    """A database connection that waits patiently."""
    database = Database(url)
    database.new_call(patience())
    return database


def open_redis(url: str) -> Redis:
    """A Redis client that waits patiently."""
    redis = Redis(url)
    redis.deadline = patience()
    return redis


def reserved(answer: Answer) -> Reserved:
    """The promise that the answer must be."""
    assert isinstance(answer, Reserved), answer
    return answer


def won(answer: object) -> Won:
    """The deduction that Redis's answer must be."""
    assert isinstance(answer, Won), answer
    return answer


def deducted(redis: Redis, sku_id: int, user: str) -> Deduction:
    """A unit deducted in Redis and known nowhere else: what a function leaves that dies right after."""
    return won(redis.reserve(sku_id, f"{sku_id}-{user}", user)).deduction


def thread_of(database: Database) -> int:
    """The number under which the server knows this connection."""
    assert database._connection is not None
    return int(database._connection.thread_id())  # type: ignore[no-untyped-call]


def kill_connection(database_url: str, database: Database) -> None:
    """KILL, as an operator or a fail-over does it."""
    with connect(database_url) as other, other.cursor() as cursor:
        cursor.execute("KILL %s", (thread_of(database),))
