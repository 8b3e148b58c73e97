"""Puts new sales on offer, so that it never just sells out, and does to them what an operator does."""

import random
from dataclasses import dataclass, field
from typing import Any

from local.invocation import InvocationError
from local.stack import Stack
from tests.nemesis.buyers import Market
from tests.sales import fresh_sku_id

# Buyers choose among so many sales. The oldest gives way to a new one, mostly sold out by then.
SALES = 3
# Units of a sale: some buyers come too late, and those are who would be promised too much.
FEWEST, MOST = 20, 100
# A new sale, or an operation on one, no more often than this: each is a cold start of sale_admin.
PAUSE_SECONDS = 2.5
# While a store is down an operator asks again, with the same arguments.
ASKS_AGAIN_AFTER_SECONDS = 0.5


@dataclass
class Seller:
    """`opened` are the sales that came to be, `sku_ids` also those that may have; `done` names operations."""

    stack: Stack
    market: Market
    dice: random.Random
    sku_ids: list[int] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    def open_shop(self) -> None:
        """The first sales, before anything is broken."""
        for _ in range(SALES):
            self._open()

    def run(self) -> None:
        """A new sale, then something done to one of those on offer, until the market closes."""
        while not self.market.closing.wait(PAUSE_SECONDS):
            self._open()
            if not self.market.closing.wait(PAUSE_SECONDS):
                self.dice.choice([self._top_up, self._rebuild, self._close_for_a_moment])()

    def _open(self) -> None:
        quantity = self.dice.choice((1, 1, 2))
        sku_id, total = fresh_sku_id(), quantity * self.dice.randint(FEWEST, MOST)
        self.sku_ids.append(sku_id)
        if self._until_done({"action": "open_sale", "skuId": sku_id, "total": total, "quantity": quantity}):
            self.opened.append(sku_id)
            self.market.sku_ids = self.opened[-SALES:]

    def _top_up(self) -> None:
        sku_id = self._one_on_offer()
        operation_id = f"nemesis-{sku_id}-{len(self.done)}"
        # A multiple of every quantity.
        units = 2 * self.dice.randint(1, 5)
        self._until_done({"action": "top_up", "skuId": sku_id, "units": units, "operationId": operation_id})

    def _rebuild(self) -> None:
        self._until_done({"action": "rebuild", "skuId": self._one_on_offer()})

    def _close_for_a_moment(self) -> None:
        sku_id = self._one_on_offer()
        self._until_done({"action": "close_sale", "skuId": sku_id})
        self._until_done({"action": "reopen_sale", "skuId": sku_id})

    def _one_on_offer(self) -> int:
        return self.dice.choice(list(self.market.sku_ids))

    def _until_done(self, event: dict[str, Any]) -> bool:
        while True:  # ends with the market, whose closing is bounded
            try:
                answer = self.stack.sale_admin(event)
            except InvocationError as error:
                answer = {"ok": False, "detail": str(error)}
            if answer["ok"]:
                self.done.append(event["action"])
                return True
            if self.market.closing.wait(ASKS_AGAIN_AFTER_SECONDS):
                return False
