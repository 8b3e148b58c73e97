"""The drill's verdict sees every kind of broken books: a healthy sale is damaged by hand, one way at a time."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from drill.accounts import Places, connect_redis, queue_client
from drill.answers import Answer
from drill.check import Verdict, check
from drill.designs import product_design
from local.servers import Servers
from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis
from seckill.domain.answer import Reserved
from seckill.protocol.land import land
from seckill.protocol.reserve import Reserve
from tests.books import connect
from tests.sales import Sales

UNITS = 5


@dataclass
class StormedSale:
    """A sale of five units, three of them promised to shoppers and landed."""

    places: Places
    keys: list[str]
    answers: list[Answer]

    def sql(self, text: str, *arguments: object) -> None:
        with connect(self.places.database_url) as connection, connection.cursor() as cursor:
            assert cursor.execute(text, arguments) > 0, "the damage was not done"

    def redis(self, *command: object) -> None:
        with contextlib.closing(connect_redis(self.places.redis_url)) as client:
            client.execute_command(*command)

    def verdict(self) -> Verdict:
        return check(product_design(self.places.sku_id), self.places, UNITS, self.answers)


def answer(user: str, key: str | None, status: int = 202) -> Answer:
    return Answer(user=user, attempt=1, status=status, code="RESERVED", key=key, start=0.0, latency=0.1)


@pytest.fixture
def sale(
    servers: Servers, sales: Sales, reserve: Reserve, database: Database, redis: Redis, counts: list[str]
) -> StormedSale:
    sku_id = sales.open(UNITS)
    sales.sku_ids.remove(sku_id)  # its books are about to be broken
    promises = {user: reserve(sku_id, user) for user in ("ann", "bob", "cid")}
    keys = {user: promise.key for user, promise in promises.items() if isinstance(promise, Reserved)}
    land(database, redis, keys.values(), counts.append)
    queue_url = queue_client(servers.aws_endpoint_url).create_queue(QueueName="empty")["QueueUrl"]
    places = Places(
        database_url=servers.database_url,
        redis_url=servers.redis_url,
        aws_endpoint_url=servers.aws_endpoint_url,
        landing_queue_url=queue_url,
        dead_letter_queue_url=queue_url,
        sku_id=sku_id,
    )
    return StormedSale(places, list(keys.values()), [answer(user, key) for user, key in keys.items()])


def test_a_healthy_sale_balances(sale: StormedSale) -> None:
    verdict = sale.verdict()
    assert verdict.balances
    assert (verdict.promised, verdict.gap, verdict.findings, verdict.orders_nobody_was_told_of) == (3, 0, [], 0)
    assert (verdict.accounts.redis_stock, verdict.accounts.orders, verdict.accounts.database_stock) == (2, 3, 2)


def test_a_promise_that_left_no_trace_is_lost(sale: StormedSale) -> None:
    sale.answers.append(answer("dan", "never-written"))
    verdict = sale.verdict()
    assert (verdict.lost, verdict.pending, verdict.gap) == (["never-written"], [], 1)
    assert not verdict.balances


def test_a_promise_at_status_1_is_pending_and_counts_in_the_gap(sale: StormedSale, reserve: Reserve) -> None:
    promise = reserve(sale.places.sku_id, "dan")
    assert isinstance(promise, Reserved)
    sale.answers.append(answer("dan", promise.key))
    verdict = sale.verdict()
    assert (verdict.lost, verdict.pending, verdict.gap) == ([], [promise.key], 1)
    assert not verdict.balances


def test_a_rolled_back_promise_is_lost_without_its_notice_and_none_with_it(sale: StormedSale, reserve: Reserve) -> None:
    promise = reserve(sale.places.sku_id, "dan")
    assert isinstance(promise, Reserved)
    sale.answers.append(answer("dan", promise.key))
    sale.sql("UPDATE seckill_pre_deduct SET status = 3 WHERE pre_deduct_key = %s", promise.key)
    assert sale.verdict().lost == [promise.key]
    sale.sql(
        "INSERT INTO seckill_notice (pre_deduct_key, user_id, sku_id, reason, created_at)"
        " VALUES (%s, 'dan', %s, 'test', UTC_TIMESTAMP(3))",
        promise.key,
        sale.places.sku_id,
    )
    assert sale.verdict().lost == []


def test_an_order_of_somebody_else_is_found(sale: StormedSale) -> None:
    sale.sql("UPDATE seckill_order SET user_id = 'eve' WHERE pre_deduct_key = %s", sale.keys[0])
    (finding,) = sale.verdict().findings
    assert "eve" in finding


def test_one_key_for_two_users_is_found(sale: StormedSale) -> None:
    sale.answers.append(answer("eve", sale.keys[0]))
    assert any("2 users" in finding for finding in sale.verdict().findings)


def test_a_promise_without_a_key_is_found(sale: StormedSale) -> None:
    sale.answers.append(answer("eve", None))
    assert sale.verdict().findings == ["1 promises named no key"]


def test_an_order_nobody_was_told_of_is_counted(sale: StormedSale) -> None:
    sale.answers.pop()
    verdict = sale.verdict()
    assert verdict.orders_nobody_was_told_of == 1
    assert verdict.balances, "the shopper's answer was lost; asking again returns it"


def test_units_sold_twice_are_counted(sale: StormedSale) -> None:
    sale.sql("UPDATE seckill_order SET quantity = 5 WHERE pre_deduct_key = %s", sale.keys[0])
    verdict = sale.verdict()
    assert verdict.oversold == 2
    assert not verdict.balances


Damage = Callable[[StormedSale], None]


@pytest.mark.parametrize(
    ("equation", "damage"),
    [
        ("I0", lambda sale: sale.sql("DELETE FROM seckill_order WHERE pre_deduct_key = %s", sale.keys[0])),
        ("I1", lambda sale: sale.sql("UPDATE seckill_sale SET cap = cap + 1 WHERE sku_id = %s", sale.places.sku_id)),
        (
            "I2",
            lambda sale: sale.sql(
                "UPDATE seckill_stock SET remaining = remaining - 1 WHERE sku_id = %s", sale.places.sku_id
            ),
        ),
        (
            "total",
            lambda sale: sale.sql("UPDATE seckill_stock SET total = total + 1 WHERE sku_id = %s", sale.places.sku_id),
        ),
        ("I3", lambda sale: sale.redis("HINCRBY", f"seckill:{{{sale.places.sku_id}}}:sale", "stock", 1)),
        ("I3", lambda sale: sale.redis("DEL", f"seckill:{{{sale.places.sku_id}}}:sale")),
    ],
)
def test_each_broken_equation_is_named(sale: StormedSale, equation: str, damage: Damage) -> None:
    damage(sale)
    verdict = sale.verdict()
    assert any(finding.startswith(equation) for finding in verdict.findings), verdict.findings
    assert not verdict.balances


def test_units_on_their_way_back_are_no_finding(sale: StormedSale) -> None:
    """A reserve that died after its deduct: the hold tells of the unit until the sweeper gives it back."""
    sku_id = sale.places.sku_id
    sale.redis("HINCRBY", f"seckill:{{{sku_id}}}:sale", "stock", -1)
    hold = '{"user": "dan", "quantity": 1, "epoch": 1, "ticket": 4, "ms": 0}'
    sale.redis("HSET", f"seckill:{{{sku_id}}}:held", "died", hold)
    assert sale.verdict().findings == []
