"""What may be done to a sale, each in a process of its own, and what may become of its copy in Redis."""

import contextlib
from collections.abc import Callable

from seckill.adapters.mysql import DatabaseError
from seckill.adapters.redis import RedisError
from seckill.domain.deadline import Deadline
from seckill.protocol.change_sale import close_sale, reopen_sale, top_up
from seckill.protocol.land import land
from seckill.protocol.rebuild import rebuild
from seckill.protocol.roll_back import roll_back
from tests.faults.evidence import Row
from tests.faults.market import Process, not_counted
from tests.faults.scenarios import Tell
from tests.faults.shop import Shop
from tests.faults.standing import Work

# Each is told whose turn it is.
Verb = Callable[[Shop, str], Work]
# Each is told a number of units that is not 0.
RedisTrouble = Callable[[Shop, int], None]


def asks(shop: Shop, user: str) -> Work:
    def work(process: Process, tell: Tell) -> None:
        tell((user, process.reserve(shop.sku_id, user)))

    return work


def lands(shop: Shop, _: str) -> Work:
    keys = sorted(key for promised in shop.promises.values() for key in promised)

    def work(process: Process, tell: Tell) -> None:
        process.new_call()
        land(process.database, process.redis, keys, not_counted)

    return work


def reconciles(shop: Shop, _: str) -> Work:
    shop.age()

    def work(process: Process, tell: Tell) -> None:
        process.reconcile(Deadline(seconds=30, longest_wait=5))

    return work


def rebuilds(shop: Shop, _: str) -> Work:
    return _operation(lambda one: rebuild(one.database, one.redis, shop.sku_id, automatic=False))


def closes(shop: Shop, _: str) -> Work:
    return _operation(lambda one: close_sale(one.database, one.redis, shop.sku_id))


def reopens(shop: Shop, _: str) -> Work:
    return _operation(lambda one: reopen_sale(one.database, one.redis, shop.sku_id, None))


def tops_up(shop: Shop, user: str) -> Work:
    """Each user's name stands for one top-up, so that the same one comes twice."""
    operation_id = f"{shop.sku_id}-{user}"
    return _operation(lambda one: top_up(one.database, one.redis, shop.sku_id, shop.quantity, operation_id))


def takes_back(shop: Shop, user: str) -> Work:
    row = live_row(shop, user)
    key = row.key if row else "no such key"
    return _operation(lambda one: roll_back(one.database, one.redis, key, shop.sku_id, "cannot be delivered"))


def _operation(operate: Callable[[Process], object]) -> Work:
    """An operator's call; after an error he is told to ask again."""

    def work(process: Process, tell: Tell) -> None:
        process.new_call()
        with contextlib.suppress(DatabaseError, RedisError):
            operate(process)

    return work


VERBS: tuple[Verb, ...] = (lands, reconciles, rebuilds, takes_back, tops_up, closes, reopens)


def live_row(shop: Shop, user: str) -> Row | None:
    """The user's promise."""
    sale = shop.evidence()
    assert sale is not None
    return next((row for row in sale.rows.values() if row.live and row.user == user), None)


def fails_over(shop: Shop, _: int) -> None:
    """To a replica that has not got the last writes."""
    shop.put_redis(shop.earlier)


def is_flushed(shop: Shop, _: int) -> None:
    shop.put_redis({})


def has_a_wrong_stock(shop: Shop, units: int) -> None:
    shop.market.redis.hincrby(f"seckill:{{{shop.sku_id}}}:sale", "stock", units)


def has_a_wrong_ticket(shop: Shop, units: int) -> None:
    shop.market.redis.hincrby(f"seckill:{{{shop.sku_id}}}:sale", "ticket", units)


def loses_a_key(shop: Shop, units: int) -> None:
    shop.market.redis.delete(f"seckill:{{{shop.sku_id}}}:{('sale', 'held', 'buyers')[units % 3]}")


# The first is the most likely one in earnest.
REDIS_TROUBLES: tuple[RedisTrouble, ...] = (
    fails_over, fails_over, is_flushed, has_a_wrong_stock, has_a_wrong_ticket, loses_a_key,
)  # fmt: skip
