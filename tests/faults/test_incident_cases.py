"""The incident's three fault-injection cases, each against both designs: fails there, passes here.

Everything is real and runs as in the drill: front, functions, queue, poller, servers; one unit is on sale.
"""

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import pytest

from drill.accounts import AccountReader, Accounts, queue_client
from drill.faults.director import HOLD_SECONDS
from drill.faults.plan import FaultPlan, Hit
from drill.incident.consumer import PUNCTUAL_SECONDS
from drill.run import Parameters, Stage, staged
from local.servers import Servers, wait_until
from tests.sales import fresh_sku_id

# Landing takes a second; a full round of retries and the move to the dead-letter queue some fifteen.
DEADLINE_SECONDS = 40


class OneUnitSale:
    """A sale of one unit in one of the designs."""

    def __init__(self, stage: Stage, reader: AccountReader) -> None:
        self.stage = stage
        self._reader = reader

    def buy(self) -> tuple[int, str]:
        """One shopper's click: the status and the key, empty if none was named."""
        address = urlsplit(self.stage.stack.base_url)
        with closing(http.client.HTTPConnection(str(address.hostname), address.port, timeout=10)) as connection:
            connection.request("POST", f"/api/seckill/{self.stage.places.sku_id}", headers={"X-Debug-User": "shopper"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()).get("preDeductKey", "")

    def win(self) -> str:
        status, key = self.buy()
        assert status == 202
        return key

    def deliver(self, key: str) -> None:
        """A landing message by hand, as a queue delivers one that was late."""
        places = self.stage.places
        body = json.dumps({"preDeductKey": key, "skuId": places.sku_id, "userId": "shopper"})
        queue_client(places.aws_endpoint_url).send_message(QueueUrl=places.landing_queue_url, MessageBody=body)

    def accounts(self) -> Accounts:
        return self._reader.read()

    def quiet(self) -> Accounts:
        """The accounts once the queue has run empty."""
        assert wait_until(lambda: self.accounts().queue_depth == 0, DEADLINE_SECONDS)
        return self.accounts()

    def landed(self) -> Accounts:
        """The accounts once there is an order and the queue is empty."""
        assert wait_until(lambda: self.accounts().orders > 0, DEADLINE_SECONDS), "no order came"
        return self.quiet()

    def land_behind_the_held_row(self) -> Accounts:
        """Win the unit, let its message meet the held row as long as in the drill, release, and let all settle."""
        self.win()
        with self.stage.hold_row():
            (message,) = self.stage.proxy.held
            self.stage.proxy.deliver(message)
            released_at = time.monotonic() + HOLD_SECONDS
            landed = wait_until(lambda: self.accounts().orders > 0, released_at - time.monotonic())
            assert not landed, "the row was not held"
        return self.quiet()


@contextmanager
def one_unit(column: str, servers: Servers, hit: Hit | None = None) -> Iterator[OneUnitSale]:
    """The design of that column with one unit on sale, and the fault that its landing message meets."""
    parameters = Parameters(
        users=1, units=1, ramp_seconds=1, storm_seconds=1, faults=frozenset(), seed=1, sku_id=fresh_sku_id()
    )
    plan = FaultPlan({0: hit} if hit else {})
    with (
        staged(column, servers, parameters, plan) as stage,
        closing(AccountReader(stage.design, stage.places)) as reader,
    ):
        yield OneUnitSale(stage, reader)


def test_a_lost_send_loses_the_unit_in_the_incident_design(servers: Servers) -> None:
    with one_unit("before", servers, Hit.LOST) as sale:
        sale.win()
        status, _ = sale.buy()
        assert status == 409, "asking again finds no trace of the promise"
        left = sale.quiet()
        assert (left.redis_stock, left.orders, left.database_stock) == (0, 0, 1)


def test_a_lost_send_stays_in_the_ledger_of_this_product_and_can_land(servers: Servers) -> None:
    with one_unit("after", servers, Hit.LOST) as sale:
        key = sale.win()
        kept = sale.quiet()
        assert (kept.redis_stock, kept.orders, kept.reserved) == (0, 0, 1), "the ledger remembers the promise"
        assert sale.buy() == (200, key), "asking again sends again"
        landed = sale.landed()
        assert (landed.orders, landed.database_stock, landed.landed, landed.reserved) == (1, 0, 1, 0)


@pytest.mark.parametrize("column", ["before", "after"])
def test_a_send_that_times_out_after_delivery_lands_once_in_both_designs(column: str, servers: Servers) -> None:
    with one_unit(column, servers, Hit.DELIVERED) as sale:
        sale.win()
        landed = sale.landed()
        assert (landed.orders, landed.database_stock, landed.dead_letters) == (1, 0, 0)


def test_a_late_message_is_ignored_by_the_incident_design_when_redis_stock_is_0(servers: Servers) -> None:
    with one_unit("before", servers, Hit.LOST) as sale:
        buyer, _, made_at = sale.win().rpartition("-")
        assert sale.accounts().redis_stock == 0
        long_ago = int(made_at) - round((PUNCTUAL_SECONDS + 1) * 1e9)
        sale.deliver(f"{buyer}-{long_ago}")
        left = sale.quiet()
        assert (left.orders, left.database_stock, left.dead_letters) == (0, 1, 0), "acknowledged, and gone"


def test_a_punctual_message_lands_in_the_incident_design_although_redis_stock_is_0(servers: Servers) -> None:
    with one_unit("before", servers) as sale:
        sale.win()
        assert sale.landed().redis_stock == 0


def test_a_late_message_lands_in_this_product_when_redis_stock_is_0(servers: Servers) -> None:
    with one_unit("after", servers, Hit.LOST) as sale:
        key = sale.win()
        assert sale.accounts().redis_stock == 0
        sale.deliver(key)
        landed = sale.landed()
        assert (landed.orders, landed.database_stock, landed.landed) == (1, 0, 1)


def test_a_held_hot_row_sends_the_unit_of_the_incident_design_to_dead_letters_nobody_reads(servers: Servers) -> None:
    with one_unit("before", servers, Hit.HELD_ROW) as sale:
        left = sale.land_behind_the_held_row()
        assert (left.orders, left.database_stock, left.dead_letters) == (0, 1, 1)


def test_a_held_hot_row_only_delays_the_unit_of_this_product(servers: Servers) -> None:
    with one_unit("after", servers, Hit.HELD_ROW) as sale:
        landed = sale.land_behind_the_held_row()
        assert (landed.orders, landed.database_stock, landed.landed, landed.dead_letters) == (1, 0, 1, 0)
