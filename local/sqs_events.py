"""What Lambda's SQS event source does to messages and answers: event records, and which messages are done.

Pure: no client, no clock. Sources: AWS Lambda developer guide, "Using Lambda with Amazon SQS" and "Handling
errors for an SQS event source in Lambda", success and failure conditions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


def to_event(messages: Iterable[Mapping[str, Any]], queue_arn: str) -> dict[str, list[dict[str, Any]]]:
    """The event for messages as SQS's ReceiveMessage returned them."""
    return {"Records": [_record(message, queue_arn) for message in messages]}


def _record(message: Mapping[str, Any], queue_arn: str) -> dict[str, Any]:
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": dict(message.get("Attributes", {})),
        "messageAttributes": {
            name: _message_attribute(value) for name, value in message.get("MessageAttributes", {}).items()
        },
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": queue_arn.split(":")[3],
    }


def _message_attribute(value: Mapping[str, Any]) -> dict[str, Any]:
    attribute = {"stringListValues": [], "binaryListValues": [], "dataType": value["DataType"]}
    for name in ("StringValue", "BinaryValue"):
        if name in value:
            attribute[name[0].lower() + name[1:]] = value[name]
    return attribute


class WholeBatchFailedError(Exception):
    """The answer says, or is too malformed to say otherwise, that nothing of the batch is done."""


def failed_message_ids(answer: object, sent: set[str]) -> set[str]:
    """Which of the `sent` message ids the function reported as failed (ReportBatchItemFailures).

    A null answer, an empty one and one with null or no failures mean that all is done.
    Raises WholeBatchFailedError for an answer that is no JSON object, for a bad key name, and for an identifier
    that is empty, null or was not sent.
    """
    try:
        json.dumps(answer)
    except (TypeError, ValueError) as error:
        raise WholeBatchFailedError(f"the answer is not JSON: {error}") from error
    if answer is None:
        return set()
    if not isinstance(answer, dict):
        raise WholeBatchFailedError(f"the answer is {answer!r}")
    failures = answer.get("batchItemFailures")
    if failures is None:
        return set()
    if not isinstance(failures, list):
        raise WholeBatchFailedError(f"batchItemFailures is {failures!r}")
    return {_failed_id(failure, sent) for failure in failures}


def _failed_id(failure: object, sent: set[str]) -> str:
    identifier = failure.get("itemIdentifier") if isinstance(failure, dict) else None
    if not isinstance(identifier, str) or identifier not in sent:
        raise WholeBatchFailedError(f"{failure!r} names no message of this batch")
    return identifier
