"""The drill's verdict sees every kind of broken books: a healthy sale is damaged by hand, one way at a time."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

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
from seckill.protocol.roll_back import roll_back
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


# -- what is left when all is quiet ---------------------------------------------------------------------------------


def test_units_on_their_way_back_break_no_equation_but_nothing_may_be_held_at_the_end(sale: StormedSale) -> None:
    """A reserve that died after its deduct: the hold tells of the unit until the sweeper gives it back."""
    sku_id = sale.places.sku_id
    sale.redis("HINCRBY", f"seckill:{{{sku_id}}}:sale", "stock", -1)
    hold = '{"user": "dan", "quantity": 1, "epoch": 1, "ticket": 4, "ms": 0}'
    sale.redis("HSET", f"seckill:{{{sku_id}}}:held", "died", hold)
    verdict = sale.verdict()
    assert verdict.findings == ["P4: 1 reservations still held in Redis, should be 0"]
    assert not verdict.balances


def test_the_hold_of_a_landed_reservation_may_not_stay_either(sale: StormedSale) -> None:
    hold = '{"user": "ann", "quantity": 1, "epoch": 1, "ticket": 1, "ms": 0}'
    sale.redis("HSET", f"seckill:{{{sale.places.sku_id}}}:held", sale.keys[0], hold)
    assert not sale.verdict().balances


def test_dead_letters_are_found(sale: StormedSale) -> None:
    places = sale.places
    sqs = queue_client(places.aws_endpoint_url)
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    sale.places = replace(places, dead_letter_queue_url=dead)
    assert sale.verdict().balances
    sqs.send_message(QueueUrl=dead, MessageBody=f'{{"preDeductKey": "{sale.keys[0]}"}}')
    verdict = sale.verdict()
    sqs.delete_queue(QueueUrl=dead)
    assert verdict.findings == ["1 dead letters, should be 0"]
    assert not verdict.balances


# -- units that nobody got ------------------------------------------------------------------------------------------


def refused(user: str, code: str, status: int = 503) -> Answer:
    return replace(answer(user, None, status), code=code)


@pytest.mark.parametrize("code", ["UNAVAILABLE", "NO_ANSWER", "SOLD_OUT"])
def test_units_that_were_never_dealt_out_although_enough_asked_are_found(sale: StormedSale, code: str) -> None:
    sale.answers += [refused(user, code) for user in ("dan", "eve", "fay")]
    verdict = sale.verdict()
    assert verdict.findings == [f"2 of 5 units unsold, 3 shoppers asked in vain: {code}"]
    assert not verdict.balances


def test_a_sale_of_which_nothing_was_sold_is_found_even_if_few_asked(sale: StormedSale, sales: Sales) -> None:
    untouched = replace(sale.places, sku_id=sales.open(UNITS))
    verdict = check(product_design(untouched.sku_id), untouched, UNITS, [refused("ann", "UNAVAILABLE")])
    assert verdict.findings == ["5 of 5 units unsold, 1 shoppers asked in vain: UNAVAILABLE"]


def test_units_for_which_too_few_asked_are_no_finding(sale: StormedSale) -> None:
    sale.answers.append(refused("dan", "UNAVAILABLE"))
    assert sale.verdict().balances, "he gave up after three tries; four shoppers cannot buy five units"


def test_a_shopper_whose_answer_was_lost_has_not_asked_in_vain(sale: StormedSale, reserve: Reserve) -> None:
    for user in ("dan", "eve"):
        reserve(sale.places.sku_id, user)
        sale.answers.append(refused(user, "NO_ANSWER", status=0))
    assert not [finding for finding in sale.verdict().findings if "unsold" in finding]


def test_units_that_came_back_after_the_last_shopper_are_no_finding(
    sale: StormedSale, reserve: Reserve, database: Database, redis: Redis
) -> None:
    for user in ("dan", "eve"):
        promise = reserve(sale.places.sku_id, user)
        assert isinstance(promise, Reserved)
        sale.answers.append(answer(user, promise.key))
    sale.answers.append(refused("fay", "SOLD_OUT", status=409))
    for promised in sale.answers[3:5]:
        roll_back(database, redis, str(promised.key), sale.places.sku_id, "a whim")
    verdict = sale.verdict()
    assert (verdict.findings, verdict.balances) == ([], True)


def test_units_that_a_rebuild_gave_back_are_no_finding(sale: StormedSale) -> None:
    """A deduction that Redis alone knew is back in the new epoch's stock, and no row tells of it."""
    sale.answers += [refused(user, "SOLD_OUT", status=409) for user in ("dan", "eve", "fay")]
    assert not sale.verdict().balances
    sale.sql("UPDATE seckill_sale SET rebuilt_at = UTC_TIMESTAMP(3) WHERE sku_id = %s", sale.places.sku_id)
    assert sale.verdict().balances


def test_units_that_came_back_are_no_excuse_for_a_sale_that_was_never_sold_out(
    sale: StormedSale, reserve: Reserve, database: Database, redis: Redis
) -> None:
    """Each try fails after its deduction and gives the unit back: rows at status 3, and nobody gets anything."""
    for user in ("dan", "eve"):
        promise = reserve(sale.places.sku_id, user)
        assert isinstance(promise, Reserved)
        roll_back(database, redis, promise.key, sale.places.sku_id, "a whim")
        sale.answers.append(refused(user, "OUTCOME_UNKNOWN"))
    assert not sale.verdict().balances
