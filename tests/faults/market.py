"""Servers of the faults' own, and the processes that work on them: made once, shared by thousands of runs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote, urlsplit

import boto3
import pymysql
import redis as redis_library
from pymysql.constants import CLIENT
from pymysql.cursors import DictCursor

from local.servers import RedisServer, Servers
from local.servers.database import create_database
from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis
from seckill.adapters.sns import NoticeTopic
from seckill.adapters.sqs import DeadLetters, Queues
from seckill.adapters.sqs import _Client as SqsClient
from seckill.domain.deadline import Deadline
from seckill.protocol.migrate import migrate
from seckill.protocol.reconcile import Reconcile
from seckill.protocol.reserve import Reserve

STALE_SECONDS = 120
LANDING_ATTEMPTS = 3
DATABASE = "seckill_faults"
# Orders of the keys in this table are refused: reservations that cannot be landed, however often it is tried.
REFUSED_ORDERS = (
    "CREATE TABLE IF NOT EXISTS refused_orders (pre_deduct_key VARBINARY(36) PRIMARY KEY)",
    "DROP TRIGGER IF EXISTS refuse_orders",
    "CREATE TRIGGER refuse_orders BEFORE INSERT ON seckill_order FOR EACH ROW"
    " IF EXISTS (SELECT 1 FROM refused_orders r WHERE r.pre_deduct_key = NEW.pre_deduct_key)"
    " THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused by the test'; END IF",
)


@dataclass(frozen=True)
class Process:
    """What a container keeps, of all functions in one. Connections are made on first use."""

    database: Database
    redis: Redis
    queues: Queues
    letters: DeadLetters
    reserve: Reserve
    reconcile: Reconcile

    def new_call(self) -> None:
        """Begin a call of a function; reserve and reconcile begin their own."""
        self.redis.deadline = deadline = Deadline(seconds=30, longest_wait=5)
        self.database.new_call(deadline)


@dataclass(frozen=True)
class Market:
    """Where fault runs happen, one after the other. `image` is never used here: each child forked from this process
    has a copy of it, ready and without connections. `front` and `sweepers` are the processes that work on;
    `new_process` makes more of those.
    """

    servers: Servers
    queue_urls: Mapping[str, str]
    sqs: Any
    database: "pymysql.Connection[DictCursor]"
    redis: "redis_library.Redis"
    image: Process
    front: Process
    sweepers: tuple[Process, Process]
    new_process: Callable[[], Process]


@contextmanager
def open_market(servers: Servers) -> Iterator[Market]:
    """A database beside the tests' own, a Redis that may be flushed, queues and a topic; runs leave nothing in them."""
    parts = urlsplit(servers.database_url)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    create_database(str(parts.hostname), parts.port or 3306, user, password, DATABASE)
    with RedisServer(servers.directory / "redis-of-faults") as redis:
        url = parts._replace(path=f"/{DATABASE}").geturl()
        own = replace(servers, redis=redis, redis_url=redis.url, database_url=url)
        database = plain_connection(url)
        _migrate(url, database)
        sqs, urls, topic_arn = _queues_and_topic()
        image = _Maker(own, urls, topic_arn).process()
        new_process = _Maker(own, urls, topic_arn).process
        yield Market(
            own, urls, sqs, database, redis_library.Redis.from_url(redis.url),
            image, new_process(), (new_process(), new_process()), new_process,
        )  # fmt: skip
        database.close()


class _Maker:
    """Makes processes that share AWS clients: building those takes longer than a whole run."""

    def __init__(self, servers: Servers, queue_urls: Mapping[str, str], topic_arn: str) -> None:
        self._servers = servers
        self._urls = queue_urls
        self._sqs = SqsClient()
        self._sqs.warm()
        self._topic = NoticeTopic(topic_arn)
        self._topic._client = boto3.client("sns")

    def process(self) -> Process:
        database, redis = Database(self._servers.database_url), Redis(self._servers.redis_url)
        letters = DeadLetters(self._urls["landing"], self._urls["dead_letters"])
        letters._client = self._sqs
        reconcile = Reconcile(database, redis, letters, self._topic, not_counted, STALE_SECONDS, LANDING_ATTEMPTS)
        queues = Queues(self._urls["landing"], self._urls["reconcile"])
        queues._client = self._sqs
        reserve = Reserve(redis, database, queues, not_counted)
        return Process(database, redis, queues, letters, reserve, reconcile)


def not_counted(metric: str) -> None:
    """Metrics are of no interest here."""


def plain_connection(database_url: str) -> "pymysql.Connection[DictCursor]":
    """One that stays, to look and meddle behind the product's back."""
    parts = urlsplit(database_url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=parts.path.strip("/"),
        autocommit=True,
        cursorclass=DictCursor,
        client_flag=CLIENT.MULTI_STATEMENTS,
        ssl_disabled=True,
    )


def _migrate(url: str, raw: "pymysql.Connection[DictCursor]") -> None:
    database = Database(url)
    database.new_call(Deadline(seconds=60, longest_wait=60))
    migrate(database)
    database.close()
    for statement in REFUSED_ORDERS:
        raw.cursor().execute(statement)


def _queues_and_topic() -> tuple[Any, dict[str, str], str]:
    sqs, sns = boto3.client("sqs"), boto3.client("sns")
    names = ("landing", "dead_letters", "reconcile", "notices")
    urls = {name: sqs.create_queue(QueueName=f"faults-{name}")["QueueUrl"] for name in names}
    answer = sqs.get_queue_attributes(QueueUrl=urls["notices"], AttributeNames=["QueueArn"])
    topic_arn = str(sns.create_topic(Name="faults-notices")["TopicArn"])
    sns.subscribe(
        TopicArn=topic_arn,
        Protocol="sqs",
        Endpoint=answer["Attributes"]["QueueArn"],
        Attributes={"RawMessageDelivery": "true"},
    )
    return sqs, urls, topic_arn
