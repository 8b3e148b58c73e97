"""Messages of the queues: all that wait in one, and the events that Lambda makes of them."""

import itertools
import json
from collections.abc import Iterable
from typing import Any

from local.sqs_events import to_event

# More than any test sends; a queue that never runs dry ends the test instead of looping for ever.
MOST_RECEIVES = 1_000
QUEUE_ARN = "arn:aws:sqs:eu-west-1:123456789012:test-landing"

_numbers = itertools.count(1)


def empty(sqs: Any, url: str) -> None:
    """Forget what earlier tests left: a new queue under the old name. (A purge is granted once a minute only.)"""
    sqs.delete_queue(QueueUrl=url)
    assert sqs.create_queue(QueueName=url.rpartition("/")[2])["QueueUrl"] == url


def drain(sqs: Any, url: str) -> list[dict[str, Any]]:
    """Take all messages out of a queue; their bodies."""
    bodies: list[dict[str, Any]] = []
    for _ in range(MOST_RECEIVES):
        messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
        if not messages:
            return bodies
        for message in messages:
            bodies.append(json.loads(message["Body"]))
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    raise AssertionError(f"{url} does not run dry")


def landing_body(key: str) -> str:
    """What reserve sends for a key, as far as it counts."""
    return json.dumps({"preDeductKey": key})


def landing_event(bodies: Iterable[str]) -> dict[str, Any]:
    """An SQS batch; message ids m0, m1, ... in the order of the bodies."""
    messages = [
        {"MessageId": f"m{position}", "ReceiptHandle": f"r{next(_numbers)}", "Body": body, "MD5OfBody": ""}
        for position, body in enumerate(bodies)
    ]
    return to_event(messages, QUEUE_ARN)


def failed_ids(answer: dict[str, Any]) -> list[str]:
    """The message ids that a partial-batch answer names, and nothing else in it."""
    assert list(answer) == ["batchItemFailures"]
    for failure in answer["batchItemFailures"]:
        assert list(failure) == ["itemIdentifier"]
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
