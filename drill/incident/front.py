"""THE INCIDENT'S DESIGN, not the product's: deduct, answer "reserved", send and hope."""

from __future__ import annotations

import json
import logging
import os
import time
from functools import cache
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from drill.accounts import connect_redis

logger = logging.getLogger(__name__)

# The product's own time-outs for a send: the two designs wait equally long for a queue that does not answer.
SEND_CONNECT_SECONDS = 0.5
SEND_READ_SECONDS = 0.5


@cache
def _deduct() -> Any:
    script = (Path(__file__).parent / "deduct.lua").read_text(encoding="utf-8")
    return connect_redis(os.environ["REDIS_URL"]).register_script(script)


@cache
def _queue() -> Any:
    once = Config(
        connect_timeout=SEND_CONNECT_SECONDS, read_timeout=SEND_READ_SECONDS, retries={"total_max_attempts": 1}
    )
    return boto3.client("sqs", config=once)


def lambda_handler(event: dict[str, Any], _: object) -> dict[str, Any]:
    """POST /api/seckill/{skuId}: 202 with a key, or 409."""
    sku_id = int(event["pathParameters"]["skuId"])
    user = event["requestContext"]["authorizer"]["jwt"]["claims"]["sub"]
    if _deduct()(keys=[f"seckill:stock:{sku_id}"]) < 0:
        return _answer(409, {"code": "SOLD_OUT"})
    key = f"{user}-{sku_id}-{time.time_ns()}"
    _send(key, sku_id, user)
    return _answer(202, {"preDeductKey": key, "skuId": sku_id, "status": "RESERVED", "quantity": 1})


def _send(key: str, sku_id: int, user: str) -> None:
    message = json.dumps({"preDeductKey": key, "skuId": sku_id, "userId": user})
    try:
        _queue().send_message(QueueUrl=os.environ["LANDING_QUEUE_URL"], MessageBody=message)
    except (BotoCoreError, ClientError) as error:
        # Fault A. The unit is deducted, the user will be told "reserved", and this line is all that remains of it.
        logger.error("sending failed, preDeductKey=%s: %s", key, error)  # noqa: TRY400  as in the incident


def _answer(status: int, body: dict[str, Any]) -> dict[str, Any]:
    return {"statusCode": status, "headers": {"Content-Type": "application/json"}, "body": json.dumps(body)}
