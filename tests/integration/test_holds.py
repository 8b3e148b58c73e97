"""What Redis remembers of a reservation: given back or forgotten once, unreadable ones, every digit and character."""

from collections.abc import Callable

import pytest

from seckill.adapters.mysql import Database
from seckill.adapters.redis import HoldLost, Redis, Replay
from seckill.domain.answer import Refusal, Refused
from seckill.domain.reservation import Hold
from seckill.domain.sale import LARGEST_EXACT_INTEGER
from seckill.protocol.land import Landing, land
from seckill.protocol.rebuild import Rebuilt, rebuild
from seckill.protocol.reserve import Reserve
from tests.ledger import Ledger
from tests.redis_copy import RedisCopy
from tests.sales import Sales, fresh_sku_id
from tests.stores import SALE_FIELDS, reserved, won

CopyOf = Callable[[int], RedisCopy]
LedgerOf = Callable[[int], Ledger]


# Fifteen and sixteen digits: more than JSON in Lua writes by itself, and still exact in a double.
LONG_EPOCH = 10**14 + 1
LONG_STOCK = LARGEST_EXACT_INTEGER - 1


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
