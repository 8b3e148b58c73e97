"""Makes rows and holds old without sleeping."""

import json

from local.servers import Servers
from tests.books import connect
from tests.redis_client import redis_client


def age(servers: Servers, sku_id: int, minutes: int = 10) -> None:
    """Make all ledger rows and all Redis holds of a sale that much older."""
    with connect(servers.database_url) as connection, connection.cursor() as cursor:
        cursor.execute(
            "UPDATE seckill_pre_deduct SET created_at = created_at - INTERVAL %s MINUTE WHERE sku_id = %s",
            [minutes, sku_id],
        )
    client, held = redis_client(servers), f"seckill:{{{sku_id}}}:held"
    for key, text in client.hgetall(held).items():
        if key != b"#epoch":
            hold = json.loads(text)
            client.hset(held, key, json.dumps(hold | {"ms": hold["ms"] - minutes * 60_000}))
