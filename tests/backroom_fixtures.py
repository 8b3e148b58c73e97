"""A database of the reconciler tests' own, so that a pass sees the sales of one test and of no other.

Test modules name this file in `pytest_plugins`.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import unquote, urlsplit

import boto3
import pytest

from local.servers import Servers
from local.servers.database import create_database
from seckill.protocol.migrate import migrate
from tests.backroom import Backroom, Functions
from tests.books import assert_books_balance, connect
from tests.stores import open_database


@pytest.fixture(scope="session")
def backroom_url(servers: Servers) -> Iterator[str]:
    """A second database beside the tests' common one, with the schema."""
    parts = urlsplit(servers.database_url)
    user, password = (unquote(part or "") for part in (parts.username, parts.password))
    name = f"seckill_backroom_{os.getpid()}"
    create_database(parts.hostname or "127.0.0.1", parts.port or 3306, user, password, name)
    url = parts._replace(path=f"/{name}").geturl()
    database = open_database(url)
    migrate(database)
    database.close()
    yield url
    with connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {name}")


@pytest.fixture
def new_backroom(
    servers: Servers, backroom_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Backroom]]:
    """Makes a backroom on the Redis of this URL; afterwards I0, I1 and I2 must hold for each of its sales."""
    # A pass rewrites the catalogue from its own database: other processes on the same Redis would miss their sales.
    monkeypatch.setattr("seckill.adapters.redis.CATALOGUE", f"seckill:catalogue:{os.getpid()}")
    sqs = boto3.client("sqs", endpoint_url=servers.aws_endpoint_url, region_name="eu-west-1")
    # As deployed: what was received stays invisible for ten minutes.
    landing_url, dead_letters_url = (
        sqs.create_queue(QueueName=f"backroom-{name}", Attributes={"VisibilityTimeout": "600"})["QueueUrl"]
        for name in ("landing", "dead-letters")
    )
    made: list[Backroom] = []

    def make(redis_url: str) -> Backroom:
        own = replace(servers, database_url=backroom_url, redis_url=redis_url)
        made.append(Backroom(own, sqs, landing_url, dead_letters_url))
        return made[-1]

    yield make
    for url in (landing_url, dead_letters_url):
        sqs.delete_queue(QueueUrl=url)
    for backroom in made:
        try:
            for sku_id in set(backroom.sales.sku_ids) - backroom.deliberately_broken:
                assert_books_balance(backroom_url, sku_id)
        finally:
            backroom.close()


@pytest.fixture
def backroom(servers: Servers, new_backroom: Callable[[str], Backroom]) -> Backroom:
    """On the tests' common Redis."""
    return new_backroom(servers.redis_url)


@pytest.fixture
def functions(
    backroom: Backroom, function_environment: pytest.MonkeyPatch, queue_urls: dict[str, str]
) -> Iterator[Functions]:
    """The functions in cold containers, on the backroom's stores and queues."""
    function_environment.setenv("DATABASE_URL", backroom.servers.database_url)
    function_environment.setenv("LANDING_QUEUE_URL", backroom.landing_url)
    function_environment.setenv("LANDING_DLQ_URL", backroom.dead_letters_url)
    functions = Functions()
    functions.new_containers()
    yield functions
    functions.new_containers()
