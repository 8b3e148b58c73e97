"""What is being done when the fault strikes: eight verbs, and two branches of reserve that few calls take.

Each prepares a sale, keeps an earlier copy of Redis for a fail-over to go back to, and acts in a process of its own.
What that process lets the world know (answers) goes through `tell`. Afterwards whoever asked asks again.
"""

import contextlib
from collections.abc import Callable

from seckill.adapters.mysql import DatabaseError
from seckill.adapters.redis import RedisError
from seckill.domain.answer import Answer
from seckill.domain.deadline import Deadline
from seckill.protocol.change_sale import close_sale, top_up
from seckill.protocol.land import land
from seckill.protocol.open_sale import open_sale
from seckill.protocol.roll_back import RollBack, roll_back
from tests.faults.evidence import Evidence
from tests.faults.faults import Trouble
from tests.faults.market import LANDING_ATTEMPTS, Process, not_counted
from tests.faults.shop import Shop

Tell = Callable[[tuple[str, Answer]], None]


class Scenario:
    """`lots` reservations are on sale; `shoppers` ask again until they know."""

    lots = 5
    shoppers: tuple[str, ...] = ("amy", "ben")

    def prepare(self, shop: Shop) -> None:
        shop.open(self.lots)
        shop.reserve_and_land("amy")
        shop.keep_earlier_copy()
        shop.reserve("ben")  # has a row that the earlier copy knows nothing of

    def act(self, shop: Shop, process: Process, tell: Tell) -> None:
        raise NotImplementedError

    def again(self, shop: Shop, process: Process) -> None:
        """Whoever asked for the act and does not know what became of it asks again; shoppers do so by themselves."""

    def outcome(self, sale: Evidence) -> list[str]:
        """What is wrong with what the act has brought about in the end."""
        return []

    def __str__(self) -> str:
        return type(self).__name__.lower()


class Reserve(Scenario):
    shoppers = ("amy", "ben", "carl", "dora")

    def act(self, shop: Shop, process: Process, tell: Tell) -> None:
        for user in ("carl", "dora"):
            tell((user, process.reserve(shop.sku_id, user)))


class FailedOver(Reserve):
    """The same when Redis has just lost ben's deduction: carl wins a ticket that ben's row has."""

    def prepare(self, shop: Shop) -> None:
        super().prepare(shop)
        shop.strike_redis(Trouble.LOSES)


class Replay(Scenario):
    """Asked again: with a row, landed, with a deduction only, rolled back while Redis was away."""

    shoppers = ("ben", "amy", "eve", "gus")

    def prepare(self, shop: Shop) -> None:
        super().prepare(shop)
        shop.deduct("eve")
        roll_back_without_redis(shop, "gus")

    def act(self, shop: Shop, process: Process, tell: Tell) -> None:
        for user in self.shoppers:
            tell((user, process.reserve(shop.sku_id, user)))


class GiveUp(Scenario):
    """A fail-over lost ben's deduction, and carl's process died with its ticket: ben wins a second key, which must not
    become a second promise.
    """

    shoppers = ("amy", "ben", "carl")

    def prepare(self, shop: Shop) -> None:
        super().prepare(shop)
        shop.strike_redis(Trouble.LOSES)
        shop.deduct("carl")

    def act(self, shop: Shop, process: Process, tell: Tell) -> None:
        tell(("ben", process.reserve(shop.sku_id, "ben")))


class Land(Scenario):
    shoppers = ("amy", "ben", "carl")

    def prepare(self, shop: Shop) -> None:
        super().prepare(shop)
        shop.reserve("carl")

    def act(self, shop: Shop, process: Process, tell: Tell) -> None:
        process.new_call()
        keys = [key for user in ("ben", "carl") for key in shop.promises[user]]
        land(process.database, process.redis, [*keys, keys[0]], not_counted)


class Reconcile(Scenario):
    """A stale row, a hold without a row, holds of a landed and of a rolled-back row, a row that cannot be landed, a
    dead letter.
    """

    lots = 8
    shoppers = ("amy", "ben", "eve", "fay", "gus", "hal", "ivy")

    def prepare(self, shop: Shop) -> None:
        super().prepare(shop)
        shop.deduct("eve")
        fay = shop.reserve("fay")
        roll_back_without_redis(shop, "gus", also_land=fay)
        hal, ivy = shop.reserve("hal"), shop.reserve("ivy")
        shop.age()
        with shop.market.database.cursor() as cursor:
            row = "WHERE pre_deduct_key = %s"
            cursor.execute("INSERT INTO refused_orders VALUES (%s)", [hal])
            cursor.execute(f"UPDATE seckill_pre_deduct SET retry_count = {LANDING_ATTEMPTS - 1} {row}", [hal])
            cursor.execute(f"UPDATE seckill_pre_deduct SET created_at = UTC_TIMESTAMP(3) {row}", [ivy])
        shop.send_dead_letter(ivy)

    def act(self, shop: Shop, process: Process, tell: Tell) -> None:
        process.reconcile(Deadline(seconds=30, longest_wait=5))


class Rebuild(Scenario):
    """As a request asks for it after Redis was flushed."""

    shoppers = ("amy", "ben", "eve")

    def prepare(self, shop: Shop) -> None:
        super().prepare(shop)
        shop.deduct("eve")
        shop.put_redis({})

    def act(self, shop: Shop, process: Process, tell: Tell) -> None:
        with contextlib.suppress(DatabaseError, RedisError):  # the request comes back
            process.reconcile.rebuild(Deadline(seconds=30, longest_wait=5), shop.sku_id, None)


class _Operation(Scenario):
    """An operator's call; it is asked again as it was."""

    shoppers: tuple[str, ...] = ("amy", "ben", "eve")

    def prepare(self, shop: Shop) -> None:
        super().prepare(shop)
        shop.deduct("eve")

    def act(self, shop: Shop, process: Process, tell: Tell) -> None:
        process.new_call()
        with contextlib.suppress(DatabaseError, RedisError):  # the operator is told to ask again
            self.operate(shop, process)

    def again(self, shop: Shop, process: Process) -> None:
        self.act(shop, process, lambda _: None)

    def operate(self, shop: Shop, process: Process) -> None:
        raise NotImplementedError


class Open(_Operation):
    shoppers = ("amy", "ben")

    def prepare(self, shop: Shop) -> None:
        pass

    def operate(self, shop: Shop, process: Process) -> None:
        open_sale(process.database, process.redis, shop.offer(self.lots))

    def outcome(self, sale: Evidence) -> list[str]:
        return [] if sale.total == self.lots * sale.quantity else [f"opened with {sale.total}"]


class TopUp(_Operation):
    lots = 3

    def operate(self, shop: Shop, process: Process) -> None:
        top_up(process.database, process.redis, shop.sku_id, 2 * shop.quantity, f"top-up-{shop.sku_id}")

    def outcome(self, sale: Evidence) -> list[str]:
        return [] if sale.total == (self.lots + 2) * sale.quantity else [f"topped up to {sale.total}"]


class Close(_Operation):
    def operate(self, shop: Shop, process: Process) -> None:
        close_sale(process.database, process.redis, shop.sku_id)

    def outcome(self, sale: Evidence) -> list[str]:
        return [] if sale.state == "closed" else [f"closed, and is {sale.state}"]


def roll_back_without_redis(shop: Shop, user: str, also_land: str | None = None) -> None:
    """Roll the user's promise back (and land another's) while Redis is away: its copy still has the holds."""
    key = shop.reserve(user)
    contents = shop.redis_contents()
    shop.front.new_call()
    verdict = roll_back(shop.front.database, shop.front.redis, key, shop.sku_id, "cannot be delivered")
    assert verdict is RollBack.ROLLED_BACK
    if also_land:
        land(shop.front.database, shop.front.redis, [also_land], not_counted)
    shop.put_redis(contents)
    shop.check()


SCENARIOS: tuple[Scenario, ...] = (
    Reconcile(), Reserve(), FailedOver(), Replay(), GiveUp(), Land(), Rebuild(), Open(), TopUp(), Close(),
)  # fmt: skip
