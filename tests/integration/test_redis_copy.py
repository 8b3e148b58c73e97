"""The copy in Redis when it is damaged, full, half-loaded or wrong: it costs nobody a unit, a rebuild replaces it."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from redis.exceptions import OutOfMemoryError

from local.servers import RedisServer
from seckill.adapters.mysql import Database
from seckill.adapters.redis import CATALOGUE, STAGE_FIELDS, HoldLost, NothingDeducted, Redis, RedisError, Replay, Won
from seckill.adapters.sqs import Queues
from seckill.domain.answer import Refusal, Refused
from seckill.domain.reservation import Hold
from seckill.domain.sale import LARGEST_EPOCH_LEAD, LARGEST_EXACT_INTEGER
from seckill.protocol.land import Landing, land
from seckill.protocol.open_sale import Offer, open_sale
from seckill.protocol.rebuild import Rebuilt, rebuild
from seckill.protocol.reserve import Reserve
from tests.ledger import Ledger
from tests.proxy import Proxy
from tests.redis_copy import RedisCopy
from tests.sales import Sales, fresh_sku_id
from tests.stores import SALE_FIELDS, open_redis, reserved

CopyOf = Callable[[int], RedisCopy]
LedgerOf = Callable[[int], Ledger]

# Fifteen and sixteen digits: more than JSON in Lua writes by itself, and still exact in a double.
LONG_EPOCH = 10**14 + 1
LONG_STOCK = LARGEST_EXACT_INTEGER - 1


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


def won(answer: object) -> Won:
    assert isinstance(answer, Won), answer
    return answer


@dataclass(frozen=True)
class Damaged:
    """A sale of three units, one of them alice's, whose copy is about to be damaged."""

    sku_id: int
    key: str
    copy: RedisCopy
    redis: Redis
    database: Database
    reserve: Reserve

    def answers_nobody(self) -> None:
        """As it is now, the copy promises nothing, gives nothing back, and stays as it is."""
        before = self.dump()
        assert self.reserve(self.sku_id, "bob") == Refused(Refusal.UNAVAILABLE)
        assert self.reserve(self.sku_id, "alice") == Refused(Refusal.UNAVAILABLE)
        assert self.redis.release(self.sku_id, self.key, "alice") is False
        assert self.redis.view(self.sku_id) is None
        assert self.dump() == before

    def is_replaced(self) -> None:
        """A rebuild puts a whole copy in its place."""
        assert rebuild(self.database, self.redis, self.sku_id) is Rebuilt.LOADED
        assert (self.copy.stock, self.copy.ticket, self.copy.buyers()) == (2, 0, {"alice": self.key})
        assert reserved(self.reserve(self.sku_id, "alice")).key == self.key
        assert reserved(self.reserve(self.sku_id, "bob")).new

    def part(self, name: str) -> str:
        """The key of the sale, the holds or the buyers."""
        return {"sale": self.copy.sale_key, "held": self.copy.held_key, "buyers": self.copy.buyers_key}[name]

    def dump(self) -> list[bytes | None]:
        """The three keys as they are, whatever their type."""
        keys = (self.copy.sale_key, self.copy.held_key, self.copy.buyers_key)
        return [self.copy.client.execute_command("DUMP", key, NEVER_DECODE=True) for key in keys]  # DUMP is no text


@pytest.fixture
def damaged(sales: Sales, redis: Redis, database: Database, reserve: Reserve, copy_of: CopyOf) -> Damaged:
    sku_id = sales.open(total=3)
    return Damaged(sku_id, reserved(reserve(sku_id, "alice")).key, copy_of(sku_id), redis, database, reserve)


# -- a copy that is not whole --------------------------------------------------------------------------------------

PARTS = ["sale", "held", "buyers"]


@pytest.mark.parametrize("part", PARTS)
def test_a_key_of_another_type_is_a_503_that_costs_nothing_and_is_replaced(part: str, damaged: Damaged) -> None:
    name = damaged.part(part)
    for words in (("SET", name, "x"), ("RPUSH", name, "x"), ("SADD", name, "x"), ("ZADD", name, 1, "x")):
        damaged.copy.client.delete(name)
        damaged.copy.client.execute_command(*words)
        damaged.answers_nobody()
    damaged.is_replaced()


@pytest.mark.parametrize("part", PARTS)
def test_a_copy_that_lost_a_key_is_a_503_that_costs_nothing_and_is_replaced(part: str, damaged: Damaged) -> None:
    assert damaged.copy.client.delete(damaged.part(part)) == 1
    damaged.answers_nobody()
    damaged.is_replaced()


@pytest.mark.parametrize("field", ["state", "epoch", "stock", "ticket", "quantity", "opens_at", "closes_at"])
def test_a_copy_that_lost_a_field_is_a_503_that_costs_nothing_and_is_replaced(field: str, damaged: Damaged) -> None:
    assert damaged.copy.client.hdel(damaged.copy.sale_key, field) == 1
    damaged.answers_nobody()
    damaged.is_replaced()


@pytest.mark.parametrize("part", ["held", "buyers"])
def test_a_copy_whose_sentinel_is_missing_or_another_epochs_is_a_503_that_costs_nothing_and_is_replaced(
    part: str, damaged: Damaged
) -> None:
    for sentinel in ("0", "2", "01", "1.0", ""):
        damaged.copy.client.hset(damaged.part(part), "#epoch", sentinel)
        damaged.answers_nobody()
    assert damaged.copy.client.hdel(damaged.part(part), "#epoch") == 1
    damaged.answers_nobody()
    damaged.is_replaced()


NO_PLAIN_INTEGERS = [
    "",
    "x",
    "1.5",
    "-1",
    "-0",
    "1e3",
    " 1",
    "1 ",
    "01",
    "+1",
    "0x1",
    "nan",
    "inf",
    str(2**53 + 1),
    "9" * 400,
]


@pytest.mark.parametrize("field", ["epoch", "stock", "ticket", "quantity"])
def test_a_number_that_is_no_plain_integer_is_a_503_that_costs_nothing_and_is_replaced(
    field: str, damaged: Damaged
) -> None:
    for text in NO_PLAIN_INTEGERS:
        damaged.copy.client.hset(damaged.copy.sale_key, field, text)
        if field == "epoch":  # the sentinels agree with it, so that the number alone is wrong
            damaged.copy.client.hset(damaged.copy.held_key, "#epoch", text)
            damaged.copy.client.hset(damaged.copy.buyers_key, "#epoch", text)
        damaged.answers_nobody()
    damaged.is_replaced()


@pytest.mark.parametrize(
    ("field", "texts"),
    [
        ("quantity", ["0"]),
        ("opens_at", ["tomorrow", "-1", "1e15"]),
        ("closes_at", ["tomorrow", "-1", "1e15"]),
        ("state", ["", "OPEN", "archived", "garbage", b"\xff\xfe"]),
        ("epoch", [b"\xff\xfe"]),
    ],
)
def test_a_field_that_no_sale_can_have_is_a_503_that_costs_nothing_and_is_replaced(
    field: str, texts: list[str | bytes], damaged: Damaged
) -> None:
    for text in texts:
        damaged.copy.client.hset(damaged.copy.sale_key, field, text)
        damaged.answers_nobody()
    damaged.is_replaced()


def test_a_ticket_off_the_sales_step_is_a_503_that_costs_nothing_and_is_replaced(
    sales: Sales, redis: Redis, database: Database, reserve: Reserve, copy_of: CopyOf
) -> None:
    sku_id = sales.open(total=6, quantity=2)
    copy = copy_of(sku_id)
    key = reserved(reserve(sku_id, "alice")).key
    copy.set(ticket=3)
    before = copy.everything()
    assert reserve(sku_id, "bob") == Refused(Refusal.UNAVAILABLE)
    assert copy.everything() == before
    assert rebuild(database, redis, sku_id) is Rebuilt.LOADED
    assert (copy.stock, copy.ticket) == (4, 0)
    assert reserved(reserve(sku_id, "alice")).key == key


@pytest.mark.parametrize("left", [{}, {"junk": "1"}], ids=["nothing", "fields of nobody"])
def test_an_empty_sale_hash_is_a_missing_sale_and_no_sold_out_one(left: dict[str, str], damaged: Damaged) -> None:
    for field in damaged.copy.client.hkeys(damaged.copy.sale_key):
        damaged.copy.client.hdel(damaged.copy.sale_key, field)
    if left:
        damaged.copy.client.hset(damaged.copy.sale_key, mapping=left)
    assert damaged.redis.reserve(damaged.sku_id, "key", "bob") is NothingDeducted.MISSING
    damaged.answers_nobody()
    damaged.is_replaced()


def test_a_buyers_key_that_is_no_text_is_a_503_and_is_replaced(
    sales: Sales, redis: Redis, database: Database, reserve: Reserve, copy_of: CopyOf
) -> None:
    sku_id = sales.open(total=3)
    copy = copy_of(sku_id)
    copy.client.hset(copy.buyers_key, "u:alice", b"\xff\xfe\x00")
    answer = reserve(sku_id, "alice")
    assert isinstance(answer, Refused)
    assert answer.refusal is Refusal.UNAVAILABLE
    assert rebuild(database, redis, sku_id, automatic=False) is Rebuilt.LOADED
    assert reserved(reserve(sku_id, "alice")).new
    assert copy.stock == 2


# -- epochs ---------------------------------------------------------------------------------------------------------

FAR_AHEAD = [10**12, LARGEST_EXACT_INTEGER, 2**63, int("9" * 40), "9" * 5_000, LARGEST_EPOCH_LEAD + 2]


@pytest.mark.parametrize("garbage", FAR_AHEAD, ids=lambda number: str(number)[:20])
def test_an_epoch_far_ahead_is_garbage_and_is_replaced_by_the_next_of_mysql(
    garbage: int | str, sales: Sales, redis: Redis, database: Database, reserve: Reserve, copy_of: CopyOf
) -> None:
    sku_id = sales.open(total=3)
    copy = copy_of(sku_id)
    key = reserved(reserve(sku_id, "alice")).key
    for name, field in ((copy.sale_key, "epoch"), (copy.held_key, "#epoch"), (copy.buyers_key, "#epoch")):
        copy.client.hset(name, field, str(garbage))
    assert rebuild(database, redis, sku_id) is Rebuilt.LOADED
    assert copy.epoch == 2
    assert (copy.stock, copy.ticket, copy.buyers()) == (2, 0, {"alice": key})


@pytest.mark.parametrize("ahead", [1, 5, LARGEST_EPOCH_LEAD])
def test_an_epoch_somewhat_ahead_is_a_newer_copy_and_mysql_goes_past_it(
    ahead: int, sales: Sales, redis: Redis, database: Database, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=3)
    copy = copy_of(sku_id)
    for name, field in ((copy.sale_key, "epoch"), (copy.held_key, "#epoch"), (copy.buyers_key, "#epoch")):
        copy.client.hset(name, field, 1 + ahead)
    assert rebuild(database, redis, sku_id) is Rebuilt.LOADED
    assert copy.epoch == 1 + ahead + 1
    assert ledger_of(sku_id).select("SELECT epoch FROM seckill_sale WHERE sku_id = %(sku)s") == [(copy.epoch,)]


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


# -- giving back and forgetting, once -------------------------------------------------------------------------------


def test_a_release_gives_back_once(redis: Redis, copy_of: CopyOf) -> None:
    sku_id = fresh_sku_id()
    copy = copy_of(sku_id)
    redis.load(sku_id, {**SALE_FIELDS, "stock": "6", "quantity": "2"}, 1, [], {})
    won(redis.reserve(sku_id, "key-1", "alice"))
    won(redis.reserve(sku_id, "key-2", "bob"))
    assert [redis.release(sku_id, "key-1", "alice") for _ in range(3)] == [True, False, False]
    assert (copy.stock, copy.ticket, list(copy.holds()), copy.buyers()) == (4, 4, ["key-2"], {"bob": "key-2"})


def test_a_release_of_a_lost_hold_lets_its_user_buy_again(redis: Redis, copy_of: CopyOf) -> None:
    sku_id = fresh_sku_id()
    copy = copy_of(sku_id)
    redis.load(sku_id, SALE_FIELDS, 1, [], {})
    won(redis.reserve(sku_id, "key-1", "alice"))
    copy.lose_hold("key-1")
    assert redis.release(sku_id, "key-1", "alice") is False
    assert (copy.stock, copy.buyers()) == (2, {})
    assert won(redis.reserve(sku_id, "key-2", "alice")).deduction.ticket == 2


def test_a_late_release_leaves_the_users_next_reservation_alone(redis: Redis, copy_of: CopyOf) -> None:
    sku_id = fresh_sku_id()
    copy = copy_of(sku_id)
    redis.load(sku_id, SALE_FIELDS, 1, [], {})
    won(redis.reserve(sku_id, "key-1", "alice"))
    assert redis.release(sku_id, "key-1", "alice")
    won(redis.reserve(sku_id, "key-2", "alice"))
    assert not redis.release(sku_id, "key-1", "alice")
    assert (copy.stock, copy.buyers(), list(copy.holds())) == (2, {"alice": "key-2"}, ["key-2"])


def test_settling_forgets_holds_once_and_gives_nothing_back(redis: Redis, copy_of: CopyOf) -> None:
    sku_id = fresh_sku_id()
    copy = copy_of(sku_id)
    redis.load(sku_id, SALE_FIELDS, 1, [], {})
    for number, user in enumerate(("alice", "bob", "carol")):
        won(redis.reserve(sku_id, f"key-{number}", user))
    assert redis.settle(sku_id, ["key-0", "key-1", "unknown"]) == 2
    assert redis.settle(sku_id, ["key-0", "key-1", "unknown"]) == 0
    assert (copy.stock, list(copy.holds())) == (0, ["key-2"])
    assert redis.reserve(sku_id, "key-9", "alice") == HoldLost("key-0", 1)


def test_settling_in_a_key_of_another_type_forgets_nothing_and_a_landing_is_none_the_worse(
    sales: Sales, redis: Redis, database: Database, reserve: Reserve, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=1)
    key = reserved(reserve(sku_id, "alice")).key
    copy = copy_of(sku_id)
    copy.client.delete(copy.held_key)
    copy.client.set(copy.held_key, "x")
    assert redis.settle(sku_id, [key]) == 0
    assert land(database, redis, [key], lambda name: None) == {key: Landing.LANDED}
    assert ledger_of(sku_id).statuses() == {key: 2}


# -- holds that cannot be read --------------------------------------------------------------------------------------

UNREADABLE = [
    "",
    "x",
    "null",
    "[]",
    "{}",
    '"text"',
    '{"user":"alice","quantity":1,"epoch":1}',
    '{"user":"alice","quantity":"1","epoch":1,"ticket":1,"ms":1}',
    '{"user":"alice","quantity":null,"epoch":1,"ticket":1,"ms":1}',
    '{"user":"alice","quantity":Infinity,"epoch":1,"ticket":1,"ms":1}',
    '{"user":"alice","quantity":NaN,"epoch":1,"ticket":1,"ms":1}',
    '{"user":"alice","quantity":1e999,"epoch":1,"ticket":1,"ms":1}',
    '{"user":"alice","quantity":1,"epoch":1e999,"ticket":1,"ms":1}',
    '{"user":"alice","quantity":1,"epoch":1,"ticket":-Infinity,"ms":1}',
    '{"user":"alice","quantity":0.5,"epoch":1,"ticket":1,"ms":1}',
    '{"user":"alice","quantity":-1,"epoch":1,"ticket":1,"ms":1}',
    '{"user":"alice","quantity":1e300,"epoch":1,"ticket":1,"ms":1}',
    "[" * 5_000,
    b"\xff\xfe",
]


@pytest.mark.parametrize("text", UNREADABLE, ids=lambda text: repr(text[:60]))
def test_a_hold_that_cannot_be_read_is_a_lost_hold(
    text: str | bytes, sales: Sales, redis: Redis, database: Database, reserve: Reserve, copy_of: CopyOf
) -> None:
    sku_id = sales.open(total=3)
    copy = copy_of(sku_id)
    alice = reserved(reserve(sku_id, "alice")).key
    won(redis.reserve(sku_id, "key-of-nobody", "bob"))
    copy.client.hset(copy.held_key, mapping={alice: text, "key-of-nobody": text})

    assert redis.reserve(sku_id, "key", "alice") == HoldLost(alice, 1)
    assert reserved(reserve(sku_id, "alice")).key == alice
    # Bob's has no row: neither a promise nor a second unit until a rebuild has sorted it out.
    assert reserve(sku_id, "bob") == Refused(Refusal.UNAVAILABLE, "key-of-nobody")
    snapshot = redis.snapshot(sku_id)
    assert snapshot is not None
    assert (snapshot.hold_count, snapshot.holds, snapshot.unreadable_holds) == (2, (), 2)
    assert redis.release(sku_id, "key-of-nobody", "bob") is False
    assert (copy.stock, copy.ticket) == (1, 2)

    assert rebuild(database, redis, sku_id, automatic=False) is Rebuilt.LOADED
    assert (copy.stock, copy.buyers(), list(copy.holds())) == (2, {"alice": alice}, [alice])


# -- digits ---------------------------------------------------------------------------------------------------------


def test_long_numbers_keep_all_their_digits_on_every_way_through_redis(redis: Redis, copy_of: CopyOf) -> None:
    sku_id = fresh_sku_id()
    copy = copy_of(sku_id)
    opens_at, ms, ticket = 1_700_000_000_123, 1_799_999_999_987, 10**15 + 7
    old = Hold("key-0", "somebody", 1, LONG_EPOCH - 1, ticket, ms)
    sale = {**SALE_FIELDS, "stock": str(LONG_STOCK), "opens_at": str(opens_at)}
    assert redis.load(sku_id, sale, LONG_EPOCH, [old], {"somebody": "key-0"})
    copy.set(ticket=ticket)

    deduction = won(redis.reserve(sku_id, "key-1", "alice")).deduction
    assert (deduction.epoch, deduction.ticket) == (LONG_EPOCH, ticket + 1)
    assert redis.reserve(sku_id, "key-2", "alice") == Replay(deduction)
    replay = redis.reserve(sku_id, "key-2", "somebody")
    assert isinstance(replay, Replay)
    assert (replay.deduction.epoch, replay.deduction.ticket) == (LONG_EPOCH - 1, ticket)
    copy.lose_hold("key-0")
    assert redis.reserve(sku_id, "key-2", "somebody") == HoldLost("key-0", LONG_EPOCH)

    snapshot = redis.snapshot(sku_id)
    assert snapshot is not None
    assert (snapshot.sale.epoch, snapshot.sale.stock, snapshot.sale.ticket) == (LONG_EPOCH, LONG_STOCK - 1, ticket + 1)
    assert snapshot.sale.opens_at == opens_at
    (hold,) = snapshot.holds or ()
    assert (hold.epoch, hold.ticket) == (LONG_EPOCH, ticket + 1)
    assert redis.release(sku_id, "key-1", "alice")
    assert (copy.stock, copy.epoch) == (LONG_STOCK, LONG_EPOCH)


def test_a_hold_knows_the_millisecond_of_its_deduction_by_redis_clock(redis: Redis, copy_of: CopyOf) -> None:
    sku_id = fresh_sku_id()
    copy = copy_of(sku_id)
    redis.load(sku_id, SALE_FIELDS, 1, [], {})

    def now() -> int:
        seconds, microseconds = copy.client.time()
        return int(seconds * 1000 + microseconds // 1000)

    earliest = now()
    won(redis.reserve(sku_id, "key-1", "alice"))
    snapshot = redis.snapshot(sku_id)
    assert snapshot is not None
    (hold,) = snapshot.holds or ()
    assert earliest <= hold.ms <= snapshot.sale.now <= now()


@pytest.mark.parametrize("user", ["Ä ö 你好 🎟", 'quote " slash \\ / end', "#epoch", "u:alice", "{1}", "%s", "x" * 128])
def test_a_user_of_any_characters_is_one_user(user: str, redis: Redis, copy_of: CopyOf) -> None:
    sku_id = fresh_sku_id()
    redis.load(sku_id, SALE_FIELDS, 1, [], {})
    deduction = won(redis.reserve(sku_id, "key-1", user)).deduction
    assert redis.reserve(sku_id, "key-2", user) == Replay(deduction)
    snapshot = redis.snapshot(sku_id)
    assert snapshot is not None
    assert [hold.user for hold in snapshot.holds or ()] == [user]
    assert redis.release(sku_id, "key-1", user)
    assert copy_of(sku_id).buyers() == {}


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
