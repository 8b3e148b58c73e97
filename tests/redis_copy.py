"""A sale's copy in Redis, read and damaged by hand; shares nothing with the product's client."""

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import redis
from redis.cluster import RedisCluster


def plain_client(url: str) -> Any:
    """A client of the test's own, for one server or a cluster."""
    parts = urlsplit(url)
    if parse_qs(parts.query).get("cluster") == ["true"]:
        return RedisCluster(host=parts.hostname, port=parts.port or 6379, decode_responses=True)
    return redis.Redis.from_url(url.partition("?")[0], decode_responses=True)


class RedisCopy:
    """The three hashes of one sale. Counts leave the sentinels out."""

    def __init__(self, url: str, sku_id: int) -> None:
        self.client = plain_client(url)
        self.sale_key, self.held_key, self.buyers_key = (
            f"seckill:{{{sku_id}}}:{part}" for part in ("sale", "held", "buyers")
        )

    @property
    def stock(self) -> int:
        """Units that can still be deducted."""
        return int(self.client.hget(self.sale_key, "stock"))

    @property
    def ticket(self) -> int:
        """The last ticket number given out."""
        return int(self.client.hget(self.sale_key, "ticket"))

    @property
    def epoch(self) -> int:
        """The copy's generation."""
        return int(self.client.hget(self.sale_key, "epoch"))

    def holds(self) -> dict[str, dict[str, Any]]:
        """Holds by key."""
        fields = self.client.hgetall(self.held_key)
        return {key: json.loads(text) for key, text in fields.items() if key != "#epoch"}

    def buyers(self) -> dict[str, str]:
        """Keys by user."""
        fields = self.client.hgetall(self.buyers_key)
        return {field.removeprefix("u:"): key for field, key in fields.items() if field != "#epoch"}

    def everything(self) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        """All three hashes as they are, to see that nothing changed."""
        sale, held, buyers = (self.client.hgetall(key) for key in (self.sale_key, self.held_key, self.buyers_key))
        return sale, held, buyers

    def set(self, **fields: str | int) -> None:
        """Overwrite fields of the sale hash."""
        self.client.hset(self.sale_key, mapping=fields)

    def lose_buyer(self, user: str) -> None:
        """As after a fail-over that lost this write."""
        assert self.client.hdel(self.buyers_key, f"u:{user}") == 1

    def lose_hold(self, key: str) -> None:
        """As after a fail-over that lost this write."""
        assert self.client.hdel(self.held_key, key) == 1

    def put_buyer(self, user: str, key: str) -> None:
        """Claim that the user holds this key."""
        self.client.hset(self.buyers_key, f"u:{user}", key)
