"""The accounts - Redis, database, queue - read from outside, again and again, for the plots and the director."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import boto3
import pymysql
import redis
from botocore.config import Config

from drill.database import connect
from drill.designs import Design
from local.environment import REGION

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

SAMPLE_EVERY_SECONDS = 0.3
READ_TIMEOUT_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class Accounts:
    """One reading. `at` is monotonic seconds when it began; `held` and the ledger's three are None in a design that has
    neither.

    `queue_depth` counts messages waiting, delayed and under way: 0 means that nothing more will come by itself.
    """

    at: float
    redis_stock: int
    orders: int
    database_stock: int
    queue_depth: int
    dead_letters: int
    reserved: int | None
    landed: int | None
    rolled_back: int | None
    held: int | None

    @property
    def unfinished(self) -> int:
        """What a reconciler has yet to finish; nothing where there is none, and dead letters stay dead."""
        if self.held is None or self.reserved is None:
            return 0
        return self.held + self.reserved + self.dead_letters


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where the accounts of a run are."""

    database_url: str
    redis_url: str
    aws_endpoint_url: str
    landing_queue_url: str
    dead_letter_queue_url: str
    sku_id: int


def connect_redis(url: str) -> Any:
    """A client of the drill's own. `?cluster=true` asks for a cluster client."""
    plain, _, query = url.partition("?")
    if "cluster=true" in query:
        return redis.RedisCluster.from_url(plain, socket_timeout=READ_TIMEOUT_SECONDS)
    return redis.Redis.from_url(plain, socket_timeout=READ_TIMEOUT_SECONDS)


class AccountReader:
    """Reads all accounts of one design; close it afterwards. One thread at a time."""

    def __init__(self, design: Design, places: Places) -> None:
        self._design = design
        self._places = places
        self._redis = connect_redis(places.redis_url)
        self._sqs = queue_client(places.aws_endpoint_url)
        self._database = connect(places.database_url)

    def close(self) -> None:
        self._redis.close()
        with contextlib.suppress(pymysql.MySQLError):
            self._database.close()

    def read(self) -> Accounts:
        at = time.monotonic()
        orders, database_stock, by_status = self._read_database()
        ledger = self._design.has_ledger
        return Accounts(
            at=at,
            redis_stock=self._read_redis_stock(),
            orders=orders,
            database_stock=database_stock,
            queue_depth=self._depth(self._places.landing_queue_url),
            dead_letters=self._depth(self._places.dead_letter_queue_url),
            reserved=by_status.get(1, 0) if ledger else None,
            landed=by_status.get(2, 0) if ledger else None,
            rolled_back=by_status.get(3, 0) if ledger else None,
            held=self._read_held(),
        )

    def _read_redis_stock(self) -> int:
        design = self._design
        if design.redis_stock_field is None:
            stock = self._redis.get(design.redis_stock_key)
        else:
            stock = self._redis.hget(design.redis_stock_key, design.redis_stock_field)
        return int(stock or 0)

    def _read_held(self) -> int | None:
        key = self._design.redis_held_key
        return None if key is None else max(0, int(self._redis.hlen(key)) - 1)  # without the sentinel

    def _read_database(self) -> tuple[int, int, dict[int, int]]:
        sku_id = (self._places.sku_id,)
        with self._database.cursor() as cursor:
            cursor.execute(f"SELECT COUNT(*) FROM {self._design.order_table} WHERE sku_id = %s", sku_id)  # noqa: S608
            orders = _only_number(cursor)
            cursor.execute(f"SELECT remaining FROM {self._design.stock_table} WHERE sku_id = %s", sku_id)  # noqa: S608
            stock = _only_number(cursor)
            by_status: dict[int, int] = {}
            if self._design.has_ledger:
                cursor.execute(
                    "SELECT status, COUNT(*) FROM seckill_pre_deduct WHERE sku_id = %s GROUP BY status", sku_id
                )
                by_status = {int(status): int(rows) for status, rows in cursor.fetchall()}
        return orders, stock, by_status

    def _depth(self, queue_url: str) -> int:
        answer = self._sqs.get_queue_attributes(
            QueueUrl=queue_url,
            AttributeNames=[
                "ApproximateNumberOfMessages",
                "ApproximateNumberOfMessagesNotVisible",
                "ApproximateNumberOfMessagesDelayed",
            ],
        )
        return sum(int(number) for number in answer["Attributes"].values())


def _only_number(cursor: pymysql.cursors.Cursor) -> int:
    row = cursor.fetchone()
    return int(row[0]) if row else 0


def queue_client(endpoint_url: str) -> SQSClient:
    """A client that goes by `endpoint_url`; the local queue server takes any credentials."""
    return boto3.client(
        "sqs",
        endpoint_url=endpoint_url,
        region_name=REGION,
        aws_access_key_id="drill",
        aws_secret_access_key="drill",  # noqa: S106  moto wants one and checks none
        config=Config(connect_timeout=5, read_timeout=READ_TIMEOUT_SECONDS, retries={"total_max_attempts": 2}),
    )


class Sampler:
    """A thread that keeps reading the accounts: `with Sampler(reader) as sampler:`, then `latest` and `samples`."""

    def __init__(self, reader: AccountReader) -> None:
        self._reader = reader
        self._stopping = threading.Event()
        self._new_sample = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="account sampler", daemon=True)
        self.samples: list[Accounts] = []

    def __enter__(self) -> Self:
        self.samples.append(self._reader.read())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(timeout=2 * READ_TIMEOUT_SECONDS)
        self._reader.close()

    @property
    def latest(self) -> Accounts:
        return self.samples[-1]

    def wait_for(self, moment: float, deadline: float) -> Accounts | None:
        """A reading begun after `moment`; None if none came before `deadline` (both monotonic)."""
        with self._new_sample:
            while self.latest.at <= moment:
                if not self._new_sample.wait(timeout=max(0.0, deadline - time.monotonic())):
                    return None
            return self.latest

    def _run(self) -> None:
        while not self._stopping.wait(SAMPLE_EVERY_SECONDS):
            # A reading that fails (a server under pressure) leaves a hole in the plot; check.py has the verdict.
            with contextlib.suppress(Exception):
                sample = self._reader.read()
                with self._new_sample:
                    self.samples.append(sample)
                    self._new_sample.notify_all()
