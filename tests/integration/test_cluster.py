"""A Redis Cluster of one node: every script within one slot, no retry of the client's own, every wait bounded."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from local.servers import RedisServer, Servers
from seckill.adapters.mysql import Database
from seckill.adapters.redis import (
    STAGE_FIELDS,
    HoldLost,
    NothingDeducted,
    Redis,
    RedisError,
    RedisOutcomeUnknown,
    Replay,
)
from seckill.adapters.sqs import Queues
from seckill.domain.answer import Refusal, Refused, Reserved
from seckill.domain.deadline import Deadline
from seckill.domain.reservation import Hold
from seckill.protocol.abandon import Abandoned, abandon
from seckill.protocol.land import Landing, land
from seckill.protocol.rebuild import Rebuilt, rebuild
from seckill.protocol.reserve import CALL_SECONDS, Reserve
from tests.books import assert_books_balance
from tests.proxy import Proxy, full_port, refused_port, silent_port
from tests.redis_copy import RedisCopy, plain_client
from tests.sales import Sales, fresh_sku_id
from tests.stores import SALE_FIELDS, open_redis, patience, reserved, won

RUN_SCRIPT = rb"EVALSHA|EVAL\r\n"
# What a busy machine may add to a deadline.
SCHEDULING_SECONDS = 0.5


@dataclass(frozen=True)
class Node:
    """The cluster's one node. It gives the proxy's address as its own, so all that its clients send passes there."""

    server: RedisServer
    proxy: Proxy
    url: str

    def client(self) -> Redis:
        """A client with a minute to spend."""
        return open_redis(self.url)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    if os.environ.get("SECKILL_TEST_REDIS_URL"):
        pytest.skip("SECKILL_TEST_REDIS_URL names a server that this test may not kill or flush")
    with Proxy("redis://127.0.0.1:1/0") as proxy:
        announced = (f"cluster-announce-port {proxy.port}", "cluster-announce-ip 127.0.0.1")
        with RedisServer(tmp_path_factory.mktemp("cluster"), cluster=True, options=announced) as server:
            proxy.upstream = ("127.0.0.1", server.port)
            yield Node(server, proxy, f"{proxy.url}?cluster=true")


@pytest.fixture
def cluster(node: Node) -> Iterator[Redis]:
    """A client of the cluster."""
    client = node.client()
    yield client
    client.close()


@pytest.fixture
def cluster_sales(servers: Servers, cluster: Redis, database: Database) -> Iterator[Sales]:
    """Sales whose copies are in the cluster; the books must balance afterwards."""
    sales = Sales(database, cluster)
    yield sales
    for sku_id in sales.sku_ids:
        assert_books_balance(servers.database_url, sku_id)


@pytest.fixture
def cluster_reserve(cluster: Redis, database: Database, queues: Queues) -> Reserve:
    return Reserve(cluster, database, queues, lambda name: None)


def seconds_of(call: Callable[[], object]) -> float:
    """How long a call took that must fail for Redis's sake."""
    started = time.monotonic()
    with pytest.raises(RedisError):
        call()
    return time.monotonic() - started


def test_a_sale_lives_its_life_in_a_cluster(
    node: Node, cluster: Redis, cluster_sales: Sales, cluster_reserve: Reserve, database: Database
) -> None:
    sku_id = cluster_sales.open(total=4)
    copy = RedisCopy(node.url, sku_id)
    alice = reserved(cluster_reserve(sku_id, "alice"))
    assert cluster_reserve(sku_id, "alice") == Reserved(alice.key, alice.status, 1, new=False)
    bought = won(cluster.reserve(sku_id, f"{sku_id}-bob", "bob"))
    assert abandon(database, cluster, bought.deduction) is Abandoned.TOMBSTONE
    assert (copy.stock, list(copy.buyers())) == (3, ["alice"])
    assert land(database, cluster, [alice.key], lambda name: None) == {alice.key: Landing.LANDED}
    assert copy.holds() == {}
    assert cluster.reserve(sku_id, "key", "alice") == HoldLost(alice.key, 1)
    assert rebuild(database, cluster, sku_id, automatic=False) is Rebuilt.LOADED
    assert (copy.epoch, copy.stock, copy.buyers()) == (2, 3, {"alice": alice.key})
    cluster.remove(sku_id)
    assert cluster.reserve(sku_id, "key", "alice") is NothingDeducted.MISSING
    assert cluster_reserve(sku_id, "alice") == Refused(Refusal.NO_SUCH_SALE)


def test_every_script_and_command_keeps_to_one_slot(node: Node, cluster: Redis) -> None:
    for sku_id in (fresh_sku_id() for _ in range(5)):  # in five slots, most likely
        holds = [
            Hold(f"old-{number}", f"user {number}", 1, 1, number + 1, 1_700_000_000_000) for number in range(2_500)
        ]
        assert len(holds) > 2 * STAGE_FIELDS
        assert cluster.load(sku_id, SALE_FIELDS, 2, holds, {hold.user: hold.key for hold in holds})
        bought = won(cluster.reserve(sku_id, "key-1", "alice"))
        assert cluster.reserve(sku_id, "key-2", "alice") == Replay(bought.deduction)
        snapshot = cluster.snapshot(sku_id)
        assert snapshot is not None
        assert len(snapshot.holds or ()) == len(holds) + 1
        assert cluster.settle(sku_id, [hold.key for hold in holds[:100]]) == 100
        assert cluster.release(sku_id, "key-1", "alice")
        assert cluster.epoch(sku_id) == 2
        view = cluster.view(sku_id)
        assert view is not None
        assert (view.stock, view.ticket) == (3, 1)
        cluster.rewrite_catalogue([sku_id])
        cluster.add_to_catalogue([1])
        assert [cluster.not_on_offer(number) for number in (sku_id, 1, 2)] == [False, False, True]
        cluster.remove(sku_id)
        assert cluster.not_on_offer(sku_id)
    plain = plain_client(node.url)
    assert [key for key in plain.scan_iter() if ":stage:" in key] == []


def test_scripts_that_a_cluster_has_forgotten_are_sent_again(node: Node, cluster: Redis) -> None:
    sku_id = fresh_sku_id()
    plain = plain_client(node.url)
    for step in (
        lambda: cluster.load(sku_id, SALE_FIELDS, 1, [], {}),
        lambda: cluster.reserve(sku_id, "key-1", "alice"),
        lambda: cluster.snapshot(sku_id),
        lambda: cluster.release(sku_id, "key-1", "alice"),
        lambda: cluster.rewrite_catalogue([1]),
    ):
        plain.script_flush()
        step()
    assert RedisCopy(node.url, sku_id).stock == 3


def test_a_script_whose_reply_was_lost_is_not_sent_again_by_the_cluster_client(node: Node, cluster: Redis) -> None:
    sku_id = fresh_sku_id()
    assert cluster.load(sku_id, SALE_FIELDS, 1, [], {})
    cluster.reserve(sku_id, "key-0", "somebody")
    sent = node.proxy.requests_with(RUN_SCRIPT)
    node.proxy.lose_reply_to(RUN_SCRIPT)
    with pytest.raises(RedisOutcomeUnknown):
        cluster.reserve(sku_id, "key-1", "alice")
    assert node.proxy.requests_with(RUN_SCRIPT) == sent + 1
    assert RedisCopy(node.url, sku_id).stock == 1
    replay = cluster.reserve(sku_id, "key-2", "alice")
    assert isinstance(replay, Replay)
    assert (replay.deduction.key, replay.deduction.ticket) == ("key-1", 2)
    assert RedisCopy(node.url, sku_id).stock == 1


def test_a_reply_lost_together_with_the_cluster_is_an_unknown_outcome(node: Node, cluster: Redis) -> None:
    sku_id = fresh_sku_id()
    assert cluster.load(sku_id, SALE_FIELDS, 1, [], {})
    cluster.reserve(sku_id, "key-0", "somebody")

    def die() -> None:  # the client looks at the topology next, and nobody is there
        node.proxy.upstream = ("127.0.0.1", refused_port())

    node.proxy.lose_reply_to(rb"key-1", first=die)
    try:
        with pytest.raises(RedisOutcomeUnknown):
            cluster.reserve(sku_id, "key-1", "alice")
    finally:
        node.proxy.upstream = ("127.0.0.1", node.server.port)
    assert RedisCopy(node.url, sku_id).stock == 1
    assert isinstance(cluster.reserve(sku_id, "key-2", "alice"), Replay)


@pytest.mark.parametrize(("scheme", "port"), [("redis", silent_port), ("redis", full_port), ("rediss", silent_port)])
def test_a_cluster_that_does_not_answer_a_new_client_is_given_up_in_time(
    scheme: str, port: Callable[[], contextlib.AbstractContextManager[int]]
) -> None:
    with port() as hangs:
        redis = Redis(f"{scheme}://127.0.0.1:{hangs}/0?cluster=true")
        redis.deadline = Deadline(CALL_SECONDS)
        assert seconds_of(lambda: redis.reserve(1, "key", "alice")) < CALL_SECONDS + SCHEDULING_SECONDS


def test_a_cluster_that_falls_silent_is_given_up_in_time_and_found_again(node: Node, cluster: Redis) -> None:
    sku_id = fresh_sku_id()
    assert cluster.load(sku_id, SALE_FIELDS, 1, [], {})
    cluster.reserve(sku_id, "key-0", "somebody")  # from here on the server knows the script
    cluster.deadline = Deadline(CALL_SECONDS)
    node.proxy.silent = True
    try:
        assert seconds_of(lambda: cluster.reserve(sku_id, "key-1", "alice")) < CALL_SECONDS + SCHEDULING_SECONDS
    finally:
        node.proxy.silent = False
    cluster.deadline = patience()
    replay = cluster.reserve(sku_id, "key-2", "alice")
    assert isinstance(replay, Replay)
    assert replay.deduction.key == "key-1"
    assert RedisCopy(node.url, sku_id).stock == 1


def test_a_dead_cluster_is_a_503_and_is_found_again_when_it_is_back(
    node: Node, cluster: Redis, cluster_sales: Sales, database: Database, queues: Queues
) -> None:
    sku_id = cluster_sales.open(total=2)
    cluster_reserve = Reserve(cluster, database, queues, lambda name: None)
    alice = reserved(cluster_reserve(sku_id, "alice"))
    node.server.kill()
    try:
        for redis in (cluster, node.client()):  # one that knows the cluster and one that is new to it
            reserve = Reserve(redis, database, queues, lambda name: None)
            answer = reserve(sku_id, "bob")
            assert isinstance(answer, Refused)
            assert answer.refusal in (Refusal.UNAVAILABLE, Refusal.OUTCOME_UNKNOWN)
    finally:
        node.server.restart()
    cluster.deadline = patience()
    assert rebuild(database, cluster, sku_id) is Rebuilt.LOADED  # it has forgotten everything
    assert reserved(cluster_reserve(sku_id, "alice")).key == alice.key
