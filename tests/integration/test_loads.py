"""Loads of a sale and of the catalogue into Redis: whole or not at all, cut off at any step and by a full Redis."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
from redis.exceptions import OutOfMemoryError

from local.servers import RedisServer
from seckill.adapters.mysql import Database
from seckill.adapters.redis import CATALOGUE, STAGE_FIELDS, Redis, RedisError
from seckill.adapters.sqs import Queues
from seckill.domain.answer import Refusal, Refused
from seckill.domain.reservation import Hold
from seckill.protocol.open_sale import Offer, open_sale
from seckill.protocol.rebuild import Rebuilt, rebuild
from seckill.protocol.reserve import Reserve
from tests.ledger import Ledger
from tests.proxy import Proxy
from tests.redis_copy import RedisCopy
from tests.sales import Sales, fresh_sku_id
from tests.stores import SALE_FIELDS, open_redis, reserved, won

CopyOf = Callable[[int], RedisCopy]
LedgerOf = Callable[[int], Ledger]


@pytest.fixture
def private(own_redis: RedisServer) -> Iterator[Redis]:
    """A client of that Redis, which is emptied before."""
    RedisCopy(own_redis.url, 1).client.flushall()
    client = open_redis(own_redis.url)
    yield client
    client.close()


@pytest.fixture
def far_redis(redis_proxy: Proxy) -> Iterator[Redis]:
    """A client that reaches Redis through the proxy."""
    client = open_redis(redis_proxy.url)
    yield client
    client.close()


# -- loads that need more than one call -----------------------------------------------------------------------------

# The script that takes five keys: load itself. Staging takes one, the others three.
LOAD = rb"EVAL(SHA)?\r\n\$\d+\r\n[^\0]*?\r\n\$1\r\n5\r\n"


def many(count: int) -> tuple[list[Hold], dict[str, str]]:
    """Holds and buyers of an older epoch."""
    holds = [Hold(f"key-{number}", f"user {number} ü", 1, 1, number + 1, 1_700_000_000_000) for number in range(count)]
    return holds, {hold.user: hold.key for hold in holds}


def staged(copy: RedisCopy) -> list[str]:
    """What staging has left behind."""
    pattern = copy.sale_key.replace(":sale", ":stage:*").replace("{", "[{]").replace("}", "[}]")
    return sorted(copy.client.scan_iter(match=pattern, count=1_000))


def test_a_load_of_several_chunks_brings_every_hold_and_buyer_and_leaves_nothing_else(
    redis: Redis, copy_of: CopyOf
) -> None:
    sku_id = fresh_sku_id()
    copy = copy_of(sku_id)
    holds, buyers = many(2 * STAGE_FIELDS + 7)
    assert redis.load(sku_id, SALE_FIELDS, 2, holds, buyers)
    snapshot = redis.snapshot(sku_id)
    assert snapshot is not None
    assert snapshot.hold_count == len(holds)
    assert sorted(snapshot.holds or (), key=lambda hold: hold.key) == sorted(holds, key=lambda hold: hold.key)
    assert copy.buyers() == buyers
    assert staged(copy) == []
    assert [copy.client.ttl(name) for name in (copy.sale_key, copy.held_key, copy.buyers_key)] == [-1, -1, -1]


@pytest.mark.parametrize("lost", ["a hold", "the holds", "a buyer", "the buyers"])
def test_a_load_that_lost_something_staged_changes_nothing(
    lost: str, redis: Redis, far_redis: Redis, redis_proxy: Proxy, copy_of: CopyOf
) -> None:
    sku_id = fresh_sku_id()
    copy = copy_of(sku_id)
    assert redis.load(sku_id, SALE_FIELDS, 1, [], {})
    before = copy.everything()

    def lose() -> None:
        buyers, held = staged(copy)
        name, field = (held, "key-1") if "hold" in lost else (buyers, "u:user 1 ü")
        assert (copy.client.delete(name) if lost.endswith("s") else copy.client.hdel(name, field)) == 1

    redis_proxy.before(LOAD, lose)
    with pytest.raises(RedisError, match="not as expected"):
        far_redis.load(sku_id, SALE_FIELDS, 2, *many(3))
    assert redis_proxy.sprung == 1
    assert copy.everything() == before


# Two chunks of holds, two of buyers, and load.
LOAD_STEPS = 5


@pytest.mark.parametrize("lost", ["request", "reply"])
def test_a_load_cut_off_at_any_step_is_whole_or_nothing_and_leaves_nothing_that_stays_for_ever(
    lost: str, redis: Redis, far_redis: Redis, redis_proxy: Proxy, copy_of: CopyOf
) -> None:
    holds, buyers = many(STAGE_FIELDS + 1)
    assert far_redis.load(fresh_sku_id(), SALE_FIELDS, 1, holds, buyers)  # now the server knows the scripts
    for step in range(LOAD_STEPS):
        sku_id = fresh_sku_id()
        copy = copy_of(sku_id)
        assert redis.load(sku_id, SALE_FIELDS, 1, [], {})
        before = copy.everything()
        if lost == "request":
            redis_proxy.cut_at(rb"", skip=step)
        else:
            redis_proxy.lose_reply_to(rb"", skip=step)
        with pytest.raises(RedisError):
            far_redis.load(sku_id, SALE_FIELDS, 2, holds, buyers)
        if lost == "reply" and step == LOAD_STEPS - 1:
            assert copy.buyers() == buyers
            assert len(copy.holds()) == len(holds)
        else:
            assert copy.everything() == before
        assert all(copy.client.ttl(name) > 0 for name in staged(copy))
        assert redis_proxy.sprung == step + 1
    assert redis_proxy.requests_with(LOAD) > 1, "the last step was not the load"


def test_a_load_replaces_an_older_copy_only(redis: Redis, copy_of: CopyOf) -> None:
    sku_id = fresh_sku_id()
    copy = copy_of(sku_id)
    assert redis.load(sku_id, SALE_FIELDS, 5, [], {})
    won(redis.reserve(sku_id, "key-1", "alice"))
    before = copy.everything()
    for epoch in (4, 5):
        assert not redis.load(sku_id, SALE_FIELDS, epoch, [], {})
        assert copy.everything() == before
    assert redis.load(sku_id, SALE_FIELDS, 6, [], {})
    assert (copy.epoch, copy.stock, copy.ticket, copy.holds(), copy.buyers()) == (6, 3, 0, {}, {})
    assert all(copy.client.ttl(name) > 0 for name in staged(copy)), "what was ignored would stay for ever"


# -- a full Redis ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def full(server: RedisServer) -> Iterator[None]:
    """Not a byte is left (noeviction): every write that may take memory is refused."""
    client = RedisCopy(server.url, 1).client
    client.config_set("maxmemory", "1")
    try:
        with pytest.raises(OutOfMemoryError):
            client.set("any", "thing")
        yield
    finally:
        client.config_set("maxmemory", "0")


def test_a_full_redis_is_a_503_that_costs_nothing(
    own_redis: RedisServer, private: Redis, database: Database, queues: Queues
) -> None:
    sku_id = Sales(database, private).open(total=3)
    reserve, copy = Reserve(private, database, queues, lambda name: None), RedisCopy(own_redis.url, sku_id)
    key = reserved(reserve(sku_id, "alice")).key
    before = copy.everything()
    with full(own_redis):
        assert reserve(sku_id, "bob") == Refused(Refusal.UNAVAILABLE)
        assert copy.everything() == before
        assert reserved(reserve(sku_id, "alice")).key == key  # a replay writes nothing
        view = private.view(sku_id)
        assert view is not None
        assert view.stock == 2
    assert reserved(reserve(sku_id, "bob")).new
    assert copy.stock == 1


def test_a_full_redis_releases_and_settles_whole_or_not_at_all(
    own_redis: RedisServer, private: Redis, database: Database, queues: Queues
) -> None:
    sku_id = Sales(database, private).open(total=3)
    reserve, copy = Reserve(private, database, queues, lambda name: None), RedisCopy(own_redis.url, sku_id)
    alice, bob = (reserved(reserve(sku_id, user)).key for user in ("alice", "bob"))
    with full(own_redis):
        assert private.settle(sku_id, [bob]) == 1  # takes no memory
        with contextlib.suppress(RedisError):
            private.release(sku_id, alice, "alice")
        given_back = (copy.stock, alice in copy.holds(), "alice" in copy.buyers())
        assert given_back in ((1, True, True), (2, False, False))
    private.release(sku_id, alice, "alice")
    assert (copy.stock, copy.holds(), list(copy.buyers())) == (2, {}, ["bob"])


def test_a_full_redis_is_loaded_whole_or_not_at_all(
    own_redis: RedisServer, private: Redis, database: Database, queues: Queues
) -> None:
    sku_id = Sales(database, private).open(total=3)
    reserve, copy = Reserve(private, database, queues, lambda name: None), RedisCopy(own_redis.url, sku_id)
    key = reserved(reserve(sku_id, "alice")).key
    before = copy.everything()
    with full(own_redis):
        assert rebuild(database, private, sku_id, automatic=False) is Rebuilt.NOT_LOADED
        assert copy.everything() == before
        assert staged(copy) == []
    # The epoch that could not be loaded waits: the old copy's tickets are dead until the next beat.
    assert isinstance(reserve(sku_id, "bob"), Refused)
    assert rebuild(database, private, sku_id) is Rebuilt.LOADED
    assert (copy.epoch, copy.stock, copy.buyers()) == (3, 2, {"alice": key})
    assert reserved(reserve(sku_id, "bob")).new


def test_a_redis_that_is_full_between_staging_and_load_keeps_its_copy(own_redis: RedisServer, private: Redis) -> None:
    sku_id = fresh_sku_id()
    copy = RedisCopy(own_redis.url, sku_id)
    assert private.load(sku_id, SALE_FIELDS, 1, [], {})
    before = copy.everything()
    with Proxy(own_redis.url) as proxy, contextlib.ExitStack() as filled:
        far = open_redis(proxy.url)
        proxy.before(LOAD, lambda: filled.enter_context(full(own_redis)))
        with pytest.raises(RedisError, match="maxmemory"):
            far.load(sku_id, SALE_FIELDS, 2, *many(3))
        assert proxy.sprung == 1
        assert copy.everything() == before
        far.close()
    assert all(copy.client.ttl(name) > 0 for name in staged(copy))
    assert private.load(sku_id, SALE_FIELDS, 2, *many(3))


# -- the catalogue --------------------------------------------------------------------------------------------------


def test_the_catalogue_knows_what_is_on_offer_only_while_it_is_there(own_redis: RedisServer, private: Redis) -> None:
    client = RedisCopy(own_redis.url, 1).client
    assert not private.not_on_offer(1), "without a catalogue nobody knows"
    private.add_to_catalogue([1, 2])
    assert [private.not_on_offer(sku_id) for sku_id in (1, 2, 3)] == [False, False, True]
    private.rewrite_catalogue([2])
    assert client.smembers(CATALOGUE) == {"#", "2"}
    private.rewrite_catalogue([])
    assert private.not_on_offer(2)
    client.delete(CATALOGUE)
    client.sadd(CATALOGUE, "1")  # half lost: the sentinel is missing
    assert not private.not_on_offer(3)


def test_a_full_redis_rewrites_its_catalogue_whole_or_not_at_all(own_redis: RedisServer, private: Redis) -> None:
    client = RedisCopy(own_redis.url, 1).client
    private.rewrite_catalogue([1, 2])
    with full(own_redis):
        with contextlib.suppress(RedisError):
            private.rewrite_catalogue([2, 3])
        assert client.smembers(CATALOGUE) in ({"#", "1", "2"}, {"#", "2", "3"})


def test_a_catalogue_of_another_type_is_a_503_until_it_is_rewritten(
    own_redis: RedisServer, private: Redis, database: Database, queues: Queues
) -> None:
    client = RedisCopy(own_redis.url, 1).client
    client.set(CATALOGUE, "x")
    reserve = Reserve(private, database, queues, lambda name: None)
    nowhere = fresh_sku_id()
    assert reserve(nowhere, "alice") == Refused(Refusal.UNAVAILABLE)
    sku_id = fresh_sku_id()
    open_sale(database, private, Offer(sku_id, 1))
    private.rewrite_catalogue([sku_id])
    assert reserve(nowhere, "alice") == Refused(Refusal.NO_SUCH_SALE)
    assert rebuild(database, private, sku_id) in (Rebuilt.LOADED, Rebuilt.NOT_NEEDED)
    assert reserved(reserve(sku_id, "alice")).new
