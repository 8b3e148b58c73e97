"""Every answer within three seconds, whatever Redis, MySQL and SQS do: silent, frozen, slow, full, gone."""

import contextlib
import os
import re
import socket
import time
from collections.abc import Callable
from typing import Any

import boto3
import pytest

from functions.land_order import handler as land_order
from local.servers import DatabaseServer, RedisServer, Servers
from seckill.adapters.sqs import QueueError, Queues
from seckill.domain.deadline import Deadline
from seckill.protocol.reserve import Reserve
from tests.books import assert_books_balance, read_books
from tests.containers import context, new_containers
from tests.http_events import HttpAnswer, call, get_latest, get_reservation, get_sale, post
from tests.ledger import Ledger
from tests.messages import failed_ids, landing_body, landing_event
from tests.proxy import Proxy, full_port, refused_port, silent_port, through
from tests.redis_copy import RedisCopy
from tests.sales import Sales, fresh_sku_id
from tests.stores import open_database, open_redis, reserved

# The contract's limit for every HTTP answer.
ANSWERED_WITHIN_SECONDS = 3.0


def timed(request: dict[str, Any]) -> tuple[HttpAnswer, float]:
    """The function's answer, which must not take longer than the contract allows, and its seconds."""
    started = time.monotonic()
    answer = call(request)
    seconds = time.monotonic() - started
    assert seconds < ANSWERED_WITHIN_SECONDS, f"{answer.status} after {seconds:.2f} s"
    return answer, seconds


Port = Callable[[], contextlib.AbstractContextManager[int]]
HANGING_PORTS = [pytest.param(silent_port, id="accepts and is silent"), pytest.param(full_port, id="does not accept")]


@pytest.mark.parametrize("port", HANGING_PORTS)
@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_a_redis_that_does_not_answer_a_new_connection_is_a_503_in_time(
    port: Port, scheme: str, function_environment: pytest.MonkeyPatch
) -> None:
    with port() as hangs:
        function_environment.setenv("REDIS_URL", f"{scheme}://127.0.0.1:{hangs}/0")
        assert timed(post(fresh_sku_id()))[0].status == 503


@pytest.mark.parametrize("port", HANGING_PORTS)
def test_a_mysql_that_does_not_answer_a_new_connection_is_a_503_in_time_and_the_unit_waits_under_its_key(
    port: Port, servers: Servers, sales: Sales, reserve: Reserve, function_environment: pytest.MonkeyPatch
) -> None:
    sku_id = sales.open(total=2)
    with port() as hangs:
        function_environment.setenv("DATABASE_URL", through(servers.database_url, hangs))
        answer, _ = timed(post(sku_id))
    assert (answer.status, answer.code) == (503, "OUTCOME_UNKNOWN")
    assert reserved(reserve(sku_id, "alice")).key == answer.body["preDeductKey"]


def test_stores_that_fall_silent_on_a_warm_connection_are_a_503_in_time(
    database_proxy: Proxy,
    redis_proxy: Proxy,
    sales: Sales,
    reserve: Reserve,
    function_environment: pytest.MonkeyPatch,
) -> None:
    sku_id = sales.open(total=4)
    function_environment.setenv("DATABASE_URL", database_proxy.url)
    function_environment.setenv("REDIS_URL", redis_proxy.url)
    assert timed(post(sku_id, "somebody"))[0].status == 202

    database_proxy.silent = True
    by_mysql, _ = timed(post(sku_id, "alice"))
    assert (by_mysql.status, by_mysql.code) == (503, "OUTCOME_UNKNOWN")
    assert timed(get_latest(sku_id, "alice"))[0].status == 503
    assert timed(get_reservation(by_mysql.body["preDeductKey"], "alice"))[0].status == 503

    redis_proxy.silent = True
    by_redis, _ = timed(post(sku_id, "bob"))
    assert (by_redis.status, by_redis.code) == (503, "OUTCOME_UNKNOWN")
    assert timed(get_sale(sku_id))[0].status == 503

    for user, answer in (("alice", by_mysql), ("bob", by_redis)):
        assert reserved(reserve(sku_id, user)).key == answer.body["preDeductKey"]


def test_frozen_servers_are_a_503_in_time_and_go_on_where_they_were(
    own_database: DatabaseServer, own_redis: RedisServer, function_environment: pytest.MonkeyPatch
) -> None:
    redis = open_redis(own_redis.url)
    with contextlib.closing(open_database(own_database.url)) as database:
        sku_id = Sales(database, redis).open(total=4)
    function_environment.setenv("DATABASE_URL", own_database.url)
    function_environment.setenv("REDIS_URL", own_redis.url)
    assert timed(post(sku_id, "somebody"))[0].status == 202
    unknown = {}
    for server, user in ((own_redis, "alice"), (own_database, "bob")):
        server.freeze()
        try:
            answer, _ = timed(post(sku_id, user))
        finally:
            server.thaw()
        assert (answer.status, answer.code) == (503, "OUTCOME_UNKNOWN")
        unknown[user] = answer.body["preDeductKey"]
    for user, key in unknown.items():
        assert timed(post(sku_id, user))[0].body["preDeductKey"] == key
    assert read_books(own_database.url, sku_id).reserved == 3
    assert_books_balance(own_database.url, sku_id)


@pytest.mark.parametrize("port", [*HANGING_PORTS, pytest.param(None, id="refuses")])
def test_a_dead_queue_does_not_keep_a_reservation_from_its_202(
    port: Port | None, sales: Sales, function_environment: pytest.MonkeyPatch, ledger_of: Callable[[int], Ledger]
) -> None:
    sku_id = sales.open(total=2)
    with port() if port else contextlib.nullcontext(refused_port()) as hangs:
        function_environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{hangs}")
        answer, _ = timed(post(sku_id))
    assert answer.status == 202
    assert ledger_of(sku_id).statuses() == {answer.body["preDeductKey"]: 1}


def test_a_message_is_not_begun_when_building_the_client_took_the_time_for_it(
    servers: Servers, queue_urls: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build = boto3.client

    def build_slowly(*arguments: Any, **named: Any) -> Any:
        time.sleep(0.6)  # an import on a cold container; enough to leave less than a send may take
        return build(*arguments, **named)

    with Proxy(servers.aws_endpoint_url) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        monkeypatch.setattr(boto3, "client", build_slowly)
        queues = Queues(queue_urls["landing"], queue_urls["reconcile"])
        queues.deadline = Deadline(1.5)
        with pytest.raises(QueueError, match="too little time"):
            queues.send_landing("key", 1, "")
        assert proxy.connections == 0
        queues.deadline = Deadline(60)
        queues.send_landing("key", 1, "")
        assert proxy.connections == 1


@pytest.mark.parametrize("delay_seconds", [0.15, 0.5, 0.8])
def test_stores_that_are_all_slow_at_once_are_an_answer_in_time_and_one_unit(
    delay_seconds: float,
    database_proxy: Proxy,
    redis_proxy: Proxy,
    sales: Sales,
    reserve: Reserve,
    function_environment: pytest.MonkeyPatch,
    copy_of: Callable[[int], RedisCopy],
) -> None:
    sku_id = sales.open(total=2)
    function_environment.setenv("DATABASE_URL", database_proxy.url)
    function_environment.setenv("REDIS_URL", redis_proxy.url)
    database_proxy.reply_delay_seconds = redis_proxy.reply_delay_seconds = delay_seconds
    with silent_port() as queue:
        function_environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{queue}")
        answer, _ = timed(post(sku_id))
    if delay_seconds < 0.2:
        assert answer.status == 202
    else:
        assert answer.status in (202, 503)
    assert reserved(reserve(sku_id, "alice")).key == answer.body["preDeductKey"]
    assert copy_of(sku_id).stock == 1


@pytest.mark.parametrize("store", ["REDIS_URL", "DATABASE_URL"])
def test_a_name_with_many_dead_addresses_is_a_503_in_time(
    store: str, sales: Sales, function_environment: pytest.MonkeyPatch
) -> None:
    sku_id = sales.open(total=2)
    resolved = socket.getaddrinfo
    with contextlib.ExitStack() as ports:
        dead = [ports.enter_context(full_port()) for _ in range(4)]

        def resolve(host: Any, *arguments: Any, **named: Any) -> Any:
            if host != "stores.example":
                return resolved(host, *arguments, **named)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in dead]

        function_environment.setattr(socket, "getaddrinfo", resolve)
        url = os.environ[store]
        function_environment.setenv(store, re.sub(r"127\.0\.0\.1|localhost", "stores.example", url))
        if "stores.example" not in os.environ[store]:
            pytest.skip(f"{store} of the user's own is no address of this machine")
        assert timed(post(sku_id))[0].status == 503


def test_a_landing_batch_fails_item_by_item_when_mysql_does_not_answer(
    servers: Servers, function_environment: pytest.MonkeyPatch
) -> None:
    with silent_port() as hangs:
        function_environment.setenv("DATABASE_URL", through(servers.database_url, hangs))
        new_containers()
        started = time.monotonic()
        answer = land_order.lambda_handler(landing_event([landing_body("key-1"), landing_body("key-2")]), context())
    assert failed_ids(answer) == ["m0", "m1"]
    assert time.monotonic() - started < 10, "the platform would have cut it off"
