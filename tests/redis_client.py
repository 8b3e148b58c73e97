"""A plain Redis client of the tests' own, to look and meddle behind the product's back."""

import redis

from local.servers import Servers


def redis_client(servers: Servers) -> "redis.Redis":
    """The server under test; a cluster's one node serves all slots."""
    return redis.Redis.from_url(servers.redis_url.split("?")[0])
