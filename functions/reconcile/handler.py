"""Runs a reconcile pass, an audit, or a rebuild that was asked for."""

from functools import cache
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from functions.reconcile.gauges import publish_gauges
from functions.reconcile.jobs import RebuildRequest, parse_job
from functions.reconcile.settings import Settings
from functions.reconcile.summary import summary_of
from seckill.adapters.environment import from_environment
from seckill.adapters.metrics import Metrics
from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis
from seckill.adapters.sns import NoticeTopic
from seckill.adapters.sqs import DeadLetters
from seckill.domain.deadline import Deadline
from seckill.domain.landing_message import parse_landing_message
from seckill.protocol.rebuild import Rebuilt
from seckill.protocol.reconcile import Pass, Reconcile

# What is kept for the answer when the platform's own time-out comes near.
SPARE_SECONDS = 5.0
# A scan of a large sale's ledger takes longer than a reservation may wait.
LONGEST_WAIT_SECONDS = 5.0
WARN_BELOW_STALE_SECONDS = 6

logger = Logger(service="reconcile")
metrics = Metrics("reconcile")


class NotDone(Exception):
    """The item fails: its message comes back."""


@cache
def reconcile() -> Reconcile:
    """The container's reconciler and its connections, kept between calls."""
    settings = from_environment(Settings)
    if settings.stale_after_seconds < WARN_BELOW_STALE_SECONDS:
        logger.warning("STALE_AFTER_SECONDS is below twice the longest reservation: rows in flight count as stale")
    topic = NoticeTopic(settings.notice_topic_arn) if settings.notice_topic_arn else None
    return Reconcile(
        Database(settings.database_url),
        Redis(settings.redis_url),
        DeadLetters(settings.landing_queue_url, settings.landing_dlq_url),
        topic,
        metrics.count,
        settings.stale_after_seconds,
        settings.landing_attempts,
    )


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """An SQS batch is answered like a consumer's; anything else by a JSON summary of what was done."""
    deadline = Deadline(context.get_remaining_time_in_millis() / 1000 - SPARE_SECONDS, LONGEST_WAIT_SECONDS)
    logger.append_keys(correlation_id=context.aws_request_id)  # what a pass does, nobody's request asked for
    with metrics.invocation():
        if "Records" in event:
            return _batch(event, context, deadline)
        done = reconcile().audit(deadline) if event.get("job") == "audit" else reconcile()(deadline)
        return _told(done)


def _told(done: Pass) -> dict[str, Any]:
    publish_gauges(metrics, done)
    summary = summary_of(done)
    for event in done.events:
        logger.info(event.what, extra={"pre_deduct_key": event.key, "sku_id": event.sku_id})
    for body in done.rescue.unknown:
        message = parse_landing_message(body)
        keys = {"pre_deduct_key": message.get("preDeductKey"), "sku_id": message.get("skuId")}
        logger.error("unknown dead letter", extra={"body": body, **keys})
    log = logger.error if summary["failed"] else logger.info
    log("reconciled", extra={"summary": summary})
    return summary


def _batch(event: dict[str, Any], context: Any, deadline: Deadline) -> dict[str, Any]:
    def do(record: SQSRecord) -> None:
        job = parse_job(record.body)
        if job == "beat":
            _told(reconcile()(deadline))
        elif isinstance(job, RebuildRequest):
            outcome = reconcile().rebuild(deadline, job.sku_id, job.epoch)
            logger.info("rebuild", extra={"sku_id": job.sku_id, "outcome": outcome.name})
            if outcome in (Rebuilt.NOT_LOADED, Rebuilt.PROMISED_TOO_MUCH):
                raise NotDone(outcome.name)
        else:
            raise NotDone(f"no such job: {record.body!r}")

    processor = BatchProcessor(EventType.SQS, raise_on_entire_batch_failure=False)
    with processor(event["Records"], do, lambda_context=context):
        processor.process()
    return dict(processor.response())
