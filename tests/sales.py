"""Sales for tests: each with a SKU of its own, so that tests share servers and nothing else."""

import os

from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis
from seckill.protocol.open_sale import Offer, open_sale

# Test processes share a user's own servers, so the process id is part of the number.
SKU_IDS = range(os.getpid() * 1_000_000 + 1, (os.getpid() + 1) * 1_000_000)

_numbers = iter(SKU_IDS)


def fresh_sku_id() -> int:
    """A SKU that no test has used."""
    return next(_numbers)


class Sales:
    """Opens sales and remembers their SKUs."""

    def __init__(self, database: Database, redis: Redis) -> None:
        self._database = database
        self._redis = redis
        self.sku_ids: list[int] = []

    def open(self, total: int, quantity: int = 1, opens_at: int | None = None, closes_at: int | None = None) -> int:
        """Open a sale of `total` units; its SKU. Times in milliseconds since 1970."""
        sku_id = fresh_sku_id()
        offer = Offer(sku_id, total, quantity, opens_at, closes_at)
        assert open_sale(self._database, self._redis, offer), "the sale is not loaded into Redis"
        self.sku_ids.append(sku_id)
        return sku_id
