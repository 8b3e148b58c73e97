"""The queues of the local stack: landing and reconcile, each with its dead letters."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.literals import QueueAttributeNameType

# Of the dead-letter queues: a letter that the ledger does not know must not come up in every pass and so keep
# the others waiting (docs/protocol.md 6.3).
DEAD_LETTER_VISIBILITY_SECONDS = 600
# Of the reconcile queue: as long as a rebuild may take. A failed one need not come back sooner, the next beat
# tries it anyway.
RECONCILE_VISIBILITY_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Queues:
    """URLs as the functions get them, and the ARNs that their events carry."""

    landing_url: str
    landing_arn: str
    landing_dlq_url: str
    reconcile_url: str
    reconcile_arn: str


@contextlib.contextmanager
def created_queues(
    client: SQSClient, prefix: str, *, visibility_seconds: int, max_receive_count: int
) -> Iterator[Queues]:
    """Empty queues named after `prefix`, deleted at the end. `visibility_seconds` is the landing queue's.

    A message that was received `max_receive_count` times and never deleted moves to its queue's dead letters.
    Those of the reconcile queue are read by nobody: a rebuild that is still needed is found by every beat.
    """
    with contextlib.ExitStack() as made:

        def create(name: str, visibility_seconds: int, dead_letters: str | None = None) -> str:
            attributes: dict[QueueAttributeNameType, str] = {"VisibilityTimeout": str(visibility_seconds)}
            if dead_letters:
                redrive = {"deadLetterTargetArn": _arn(client, dead_letters), "maxReceiveCount": max_receive_count}
                attributes["RedrivePolicy"] = json.dumps(redrive)
            url = client.create_queue(QueueName=f"{prefix}-{name}", Attributes=attributes)["QueueUrl"]
            made.callback(client.delete_queue, QueueUrl=url)
            return url

        landing_dlq_url = create("landing-dlq", DEAD_LETTER_VISIBILITY_SECONDS)
        landing_url = create("landing", visibility_seconds, landing_dlq_url)
        reconcile_dlq_url = create("reconcile-dlq", DEAD_LETTER_VISIBILITY_SECONDS)
        reconcile_url = create("reconcile", RECONCILE_VISIBILITY_SECONDS, reconcile_dlq_url)
        yield Queues(
            landing_url=landing_url,
            landing_arn=_arn(client, landing_url),
            landing_dlq_url=landing_dlq_url,
            reconcile_url=reconcile_url,
            reconcile_arn=_arn(client, reconcile_url),
        )


def _arn(client: SQSClient, url: str) -> str:
    attributes = client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return attributes["Attributes"]["QueueArn"]
