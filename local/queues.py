"""The queues of the local stack: landing with its dead-letter queue, and reconcile."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


@dataclass(frozen=True, kw_only=True)
class Queues:
    """URLs as the functions get them, and the ARN that landing events carry."""

    landing_url: str
    landing_arn: str
    landing_dlq_url: str
    reconcile_url: str


@contextlib.contextmanager
def created_queues(
    client: SQSClient, prefix: str, *, visibility_seconds: int, max_receive_count: int
) -> Iterator[Queues]:
    """Three empty queues named after `prefix`, deleted at the end.

    A landing message that was received `max_receive_count` times and never deleted moves to the dead-letter
    queue.
    """
    dlq_url = client.create_queue(QueueName=f"{prefix}-landing-dlq")["QueueUrl"]
    redrive = {"deadLetterTargetArn": _arn(client, dlq_url), "maxReceiveCount": max_receive_count}
    landing_url = client.create_queue(
        QueueName=f"{prefix}-landing",
        Attributes={"VisibilityTimeout": str(visibility_seconds), "RedrivePolicy": json.dumps(redrive)},
    )["QueueUrl"]
    reconcile_url = client.create_queue(QueueName=f"{prefix}-reconcile")["QueueUrl"]
    try:
        yield Queues(
            landing_url=landing_url,
            landing_arn=_arn(client, landing_url),
            landing_dlq_url=dlq_url,
            reconcile_url=reconcile_url,
        )
    finally:
        for url in (landing_url, dlq_url, reconcile_url):
            client.delete_queue(QueueUrl=url)


def _arn(client: SQSClient, url: str) -> str:
    attributes = client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return attributes["Attributes"]["QueueArn"]
