"""A copy in Redis that is not whole or of a wrong epoch: it costs nobody a unit, and a rebuild replaces it."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from seckill.adapters.mysql import Database
from seckill.adapters.redis import NothingDeducted, Redis
from seckill.domain.answer import Refusal, Refused
from seckill.domain.sale import LARGEST_EPOCH_LEAD, LARGEST_EXACT_INTEGER
from seckill.protocol.rebuild import Rebuilt, rebuild
from seckill.protocol.reserve import Reserve
from tests.ledger import Ledger
from tests.redis_copy import RedisCopy
from tests.sales import Sales
from tests.stores import reserved

CopyOf = Callable[[int], RedisCopy]
LedgerOf = Callable[[int], Ledger]


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
