"""A real server with the deployed user's access string: the code does all it does, and nobody else does anything."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis as client_library

from infra.redis import ACCESS
from local.servers import RedisServer, temporary_directory
from seckill.adapters.redis import NothingDeducted, Redis, Won
from seckill.domain.deadline import Deadline
from seckill.domain.reservation import Hold

USER, PASSWORD = "seckill-test-app", "only-here"
SKU = 1001
SALE = {"state": "open", "stock": "2", "quantity": "1", "opens_at": "", "closes_at": ""}


@pytest.fixture(scope="module", params=[False, True], ids=["one node", "cluster"])
def address(request: pytest.FixtureRequest) -> Iterator[tuple[int, bool]]:
    # ElastiCache's access string is Redis's own ACL syntax; IAM's password is replaced by a fixed one.
    line = f"user {USER} >{PASSWORD} {ACCESS}"
    with temporary_directory() as folder, RedisServer(Path(folder), cluster=request.param, options=[line]) as server:
        yield server.port, request.param


@pytest.fixture
def redis(address: tuple[int, bool]) -> Redis:
    port, cluster = address
    copy = Redis(f"redis://{USER}:{PASSWORD}@127.0.0.1:{port}/0" + ("?cluster=true" if cluster else ""))
    copy.deadline = Deadline(seconds=30, longest_wait=5)
    return copy


def test_the_user_may_do_everything_that_the_protocol_does(redis: Redis) -> None:
    held = Hold(key="held", user="u0", quantity=1, epoch=1, ticket=1, ms=0)
    assert redis.load(SKU, SALE, 1, [held], {"u0": "held"})
    redis.add_to_catalogue([SKU])
    redis.rewrite_catalogue([SKU])
    assert isinstance(redis.reserve(SKU, "k1", "u1"), Won)
    assert redis.release(SKU, "k1", "u1")
    assert isinstance(redis.reserve(SKU, "k2", "u2"), Won)
    assert redis.settle(SKU, ["k2"]) == 1
    assert redis.snapshot(SKU) is not None
    assert redis.view(SKU) is not None
    assert redis.epoch(SKU) == 1
    redis.remove(SKU)
    assert redis.reserve(SKU, "k3", "u3") is NothingDeducted.MISSING
    redis.add_to_catalogue([SKU])
    assert redis.not_on_offer(SKU + 1)


@pytest.mark.parametrize(
    "command",
    ["FLUSHALL", "KEYS *", "CONFIG GET *", "INCRBY seckill:{1}:x 1", "SET other 1", "HGET other a", "ACL LIST"],
)
def test_the_user_may_do_nothing_else(address: tuple[int, bool], command: str) -> None:
    user = client_library.Redis(port=address[0], username=USER, password=PASSWORD, protocol=2)
    with pytest.raises(client_library.exceptions.NoPermissionError):
        user.execute_command(*command.split())  # type: ignore[no-untyped-call]
    user.close()
