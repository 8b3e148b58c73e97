"""Runs sales: not reachable over HTTP, invoked by operators and by the deployment."""

from functools import cache
from typing import Any

from aws_lambda_powertools import Logger

from functions.sale_admin.actions import ACTIONS, Refusal
from functions.sale_admin.settings import Settings
from seckill.adapters.environment import from_environment
from seckill.adapters.mysql import Database, DatabaseError
from seckill.adapters.redis import Redis, RedisError
from seckill.domain.deadline import Deadline

# An operator waits longer than a shopper; a migration's DDL and a load of many buyers take their time.
CALL_SECONDS = 25.0
LONGEST_WAIT_SECONDS = 20.0

logger = Logger(service="sale_admin")


@cache
def stores() -> tuple[Database, Redis]:
    """The container's connections, kept between calls."""
    settings = from_environment(Settings)
    return Database(settings.database_url), Redis(settings.redis_url)


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """`{"action": ...}`; success carries `"ok": true`, a refusal `"ok": false` with `error` and `detail`."""
    database, redis = stores()
    redis.deadline = deadline = Deadline(CALL_SECONDS, LONGEST_WAIT_SECONDS)
    database.new_call(deadline)
    action = event.get("action")
    try:
        if action not in ACTIONS:
            raise Refusal("INVALID_REQUEST", f"action must be one of {', '.join(ACTIONS)}")
        answer = {"ok": True, **ACTIONS[action](database, redis, event)}
    except Refusal as refusal:
        answer = {"ok": False, "error": refusal.code, "detail": str(refusal)}
    except (DatabaseError, RedisError) as error:
        answer = {"ok": False, "error": "UNAVAILABLE", "detail": str(error)}
    logger.info("action", extra={"action": action, "sku_id": event.get("skuId"), "ok": answer["ok"]})
    return answer
