"""Runs sales and repairs: not reachable over HTTP, invoked by operators and by the deployment."""

from functools import cache
from typing import Any

from aws_lambda_powertools import Logger

from functions.sale_admin import repairs, sales, timelines
from functions.sale_admin.arguments import Refusal
from functions.sale_admin.settings import Settings
from functions.sale_admin.stores import Stores, make_stores
from seckill.adapters.environment import from_environment
from seckill.adapters.mysql import DatabaseError
from seckill.adapters.redis import RedisError
from seckill.adapters.sqs import QueueError
from seckill.domain.deadline import Deadline
from seckill.protocol.change_sale import NoSuchSale, Refused

# An operator waits longer than a shopper, and a load of many buyers takes its time.
CALL_SECONDS = 25.0
LONGEST_WAIT_SECONDS = 20.0
# `migrate` has all the time that the platform grants, but for this, which is kept for the answer.
SPARE_SECONDS = 5.0

ACTIONS = {
    "migrate": sales.run_migrate,
    "open_sale": sales.run_open_sale,
    "top_up": sales.run_top_up,
    "close_sale": sales.run_close_sale,
    "reopen_sale": sales.run_reopen_sale,
    "archive_sale": sales.run_archive_sale,
    "rebuild": sales.run_rebuild,
    "status": sales.run_status,
    "list_sales": sales.run_list_sales,
    "audit": repairs.run_audit,
    "resolve": repairs.run_resolve,
    "dead_letters": repairs.run_dead_letters,
    "timeline": timelines.run_timeline,
}

logger = Logger(service="sale_admin")


@cache
def stores() -> Stores:
    """The container's connections, kept between calls."""
    return make_stores(from_environment(Settings))


def lambda_handler(event: Any, context: Any) -> dict[str, Any]:
    """`{"action": ...}`; success carries `"ok": true`, a refusal `"ok": false` with `error` and `detail`."""
    event = event if isinstance(event, dict) else {}  # JSON that is no object names no action
    logger.clear_state()
    logger.append_keys(correlation_id=context.aws_request_id, sku_id=event.get("skuId"))
    granted = context.get_remaining_time_in_millis() / 1000 - SPARE_SECONDS
    seconds = granted if event.get("action") == "migrate" else CALL_SECONDS
    stores().new_call(Deadline(seconds, LONGEST_WAIT_SECONDS))
    answer = _answer(event)
    logger.info(
        "action",
        extra={
            "action": event.get("action"),
            "pre_deduct_key": event.get("preDeductKey"),
            "decision": event.get("decision"),
            "reason": event.get("reason"),
            "ok": answer["ok"],
        },
    )
    return answer


def _answer(event: dict[str, Any]) -> dict[str, Any]:
    action = event.get("action")
    try:
        if not isinstance(action, str) or action not in ACTIONS:
            raise Refusal("INVALID_REQUEST", f"action must be one of {', '.join(ACTIONS)}")
        return {"ok": True, **ACTIONS[action](stores(), event)}
    except (Refusal, Refused) as refusal:
        return _refusal(refusal.code, str(refusal))
    except NoSuchSale as error:
        return _refusal("NO_SUCH_SALE", str(error))
    except (DatabaseError, RedisError, QueueError) as error:
        return _refusal("UNAVAILABLE", str(error))


def _refusal(code: str, detail: str) -> dict[str, Any]:
    return {"ok": False, "error": code, "detail": detail}
