"""Lands the reservations of an SQS batch; what cannot land comes back, and ends in the dead letters."""

from functools import cache
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from functions.land_order.settings import Settings
from seckill.adapters.environment import from_environment
from seckill.adapters.metrics import Metrics
from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis
from seckill.domain.deadline import Deadline
from seckill.domain.landing_message import parse_landing_message
from seckill.protocol.land import Landing, land

# Kept until the platform's time-out: a batch ends by an error of its own, never cut off in mid-transaction.
SPARE_SECONDS = 1.0
# A page of 100 rows behind a hot row may take more than the second that a reservation grants.
LONGEST_WAIT_SECONDS = 2.0

logger = Logger(service="land_order")
metrics = Metrics("land_order")


class NotLanded(Exception):
    """The item fails: its message comes back."""


@cache
def stores() -> tuple[Database, Redis]:
    """The container's connections, kept between events."""
    settings = from_environment(Settings)
    return Database(settings.database_url), Redis(settings.redis_url)


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """One SQS batch; answers which items failed, [] also for an empty batch, and never raises because all did."""
    database, redis = stores()
    redis.deadline = deadline = Deadline(
        context.get_remaining_time_in_millis() / 1000 - SPARE_SECONDS, LONGEST_WAIT_SECONDS
    )
    database.new_call(deadline)
    records = event.get("Records") or []
    messages = [parse_landing_message(record["body"]) for record in records]
    with metrics.invocation():
        landings = land(database, redis, (m["preDeductKey"] for m in messages if m), metrics.count)
        return _partial_answer(records, context, landings)


def _partial_answer(records: list[dict[str, Any]], context: Any, landings: dict[str, Landing]) -> dict[str, Any]:
    def judge(record: SQSRecord) -> None:
        message = parse_landing_message(record.body)
        key, landing = message.get("preDeductKey"), landings.get(message.get("preDeductKey", ""))
        about = {
            "pre_deduct_key": key,
            "sku_id": message.get("skuId"),
            "correlation_id": message.get("correlationId"),
            "landing": landing.name if landing else "NOT_A_LANDING_MESSAGE",
        }
        if landing is None or not landing.finished:
            logger.warning("not landed", extra=about)
            raise NotLanded(key)
        logger.info("landed", extra=about)

    # The whole batch has landed or failed by now, in one transaction: the processor only forms the answer.
    processor = BatchProcessor(EventType.SQS, raise_on_entire_batch_failure=False)
    with processor(records, judge, lambda_context=context):
        processor.process()
    return dict(processor.response())
