"""Real servers once per test process, a sale of its own for each test, and the books checked after each."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

from local.servers import Servers, running_servers
from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis
from seckill.adapters.sqs import Queues
from seckill.domain.deadline import Deadline
from seckill.protocol.migrate import migrate
from seckill.protocol.reserve import Reserve
from tests.books import assert_books_balance
from tests.containers import new_containers
from tests.ledger import Ledger
from tests.redis_copy import RedisCopy
from tests.sales import Sales

# Fixed for every test: nothing may reach a real account.
FAKE_AWS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_REGION": "eu-west-1",
}


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """A Redis, a MySQL-family server with the schema, and moto; the tests' own or the user's (SECKILL_TEST_*)."""
    with running_servers() as running:
        os.environ.update(FAKE_AWS, AWS_ENDPOINT_URL=running.aws_endpoint_url)
        database = Database(running.database_url)
        database.new_call(Deadline(seconds=30, longest_wait=30))
        migrate(database)
        database.close()
        yield running


@pytest.fixture
def database(servers: Servers) -> Iterator[Database]:
    """A connection with a minute to spend."""
    connection = Database(servers.database_url)
    connection.new_call(Deadline(seconds=60, longest_wait=5))
    yield connection
    connection.close()


@pytest.fixture
def redis(servers: Servers) -> Redis:
    """A client with a minute to spend."""
    client = Redis(servers.redis_url)
    client.deadline = Deadline(seconds=60, longest_wait=5)
    return client


@pytest.fixture(scope="session")
def queue_urls(servers: Servers) -> dict[str, str]:
    """A landing queue, its dead-letter queue and a reconcile queue in moto."""
    sqs = boto3.client("sqs", endpoint_url=servers.aws_endpoint_url, region_name="eu-west-1")
    names = {"landing": "test-landing", "dead_letters": "test-landing-dlq", "reconcile": "test-reconcile"}
    return {purpose: sqs.create_queue(QueueName=name)["QueueUrl"] for purpose, name in names.items()}


@pytest.fixture
def queues(queue_urls: dict[str, str]) -> Queues:
    """Senders to those queues."""
    return Queues(queue_urls["landing"], queue_urls["reconcile"])


@pytest.fixture
def counts() -> list[str]:
    """The metrics counted during the test."""
    return []


@pytest.fixture
def reserve(redis: Redis, database: Database, queues: Queues, counts: list[str]) -> Reserve:
    """One container's reserve."""
    return Reserve(redis, database, queues, counts.append)


@pytest.fixture
def sales(servers: Servers, redis: Redis, database: Database) -> Iterator[Sales]:
    """Opens sales of SKUs no other test uses; afterwards I0, I1 and I2 must hold for each of them."""
    opened = Sales(database, redis)
    yield opened
    for sku_id in opened.sku_ids:
        assert_books_balance(servers.database_url, sku_id)


@pytest.fixture
def sqs(servers: Servers) -> Any:
    """A client of the test's own for the queues in moto."""
    return boto3.client("sqs", endpoint_url=servers.aws_endpoint_url, region_name="eu-west-1")


@pytest.fixture
def copy_of(servers: Servers) -> Callable[[int], RedisCopy]:
    """The Redis copy of a sale, to look at and to damage."""
    return lambda sku_id: RedisCopy(servers.redis_url, sku_id)


@pytest.fixture
def ledger_of(servers: Servers) -> Callable[[int], Ledger]:
    """The tables of a sale, to look at and to change."""
    return lambda sku_id: Ledger(servers.database_url, sku_id)


@pytest.fixture
def function_environment(
    servers: Servers, queue_urls: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.MonkeyPatch]:
    """The functions' environment, and cold containers before and after; what the test sets on top is undone."""
    monkeypatch.setenv("DATABASE_URL", servers.database_url)
    monkeypatch.setenv("REDIS_URL", servers.redis_url)
    monkeypatch.setenv("LANDING_QUEUE_URL", queue_urls["landing"])
    monkeypatch.setenv("LANDING_DLQ_URL", queue_urls["dead_letters"])
    monkeypatch.setenv("RECONCILE_QUEUE_URL", queue_urls["reconcile"])
    new_containers()
    yield monkeypatch
    new_containers()
