"""AWS from moto alone, in this process: no server, no network; Redis and the database are real."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from moto import mock_aws

from functions.land_order.handler import lambda_handler
from local.sqs_events import failed_message_ids, to_event
from tests.containers import context, new_containers

# docs/protocol.md 5: a message that failed so often goes to the dead letters.
MAX_RECEIVE_COUNT = 5
REGION = "eu-west-1"


@dataclass(frozen=True)
class LandingQueue:
    """The landing queue with its dead-letter queue, and what Lambda's event source does with them."""

    sqs: Any
    url: str
    dead_letters_url: str
    arn: str

    def send(self, body: str) -> None:
        """Put a message of the test's own into the queue."""
        self.sqs.send_message(QueueUrl=self.url, MessageBody=body)

    def deliver(self) -> list[str]:
        """One batch to land_order: what is done is deleted, what failed comes back at once; the bodies that failed."""
        messages = self.receive()
        failed = failed_message_ids(
            lambda_handler(to_event(messages, self.arn), context()), {message["MessageId"] for message in messages}
        )
        for message in messages:
            if message["MessageId"] in failed:
                self.come_back(message)
            else:
                self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
        return [message["Body"] for message in messages if message["MessageId"] in failed]

    def receive(self) -> list[Any]:
        """Up to ten messages, which are invisible from now on."""
        answer = self.sqs.receive_message(
            QueueUrl=self.url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"]
        )
        return list(answer.get("Messages", []))

    def come_back(self, message: Any) -> None:
        """As if its visibility time-out had passed."""
        self.sqs.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
        )

    def waiting(self) -> int:
        """Messages in the queue, those in flight too."""
        return self._count(self.url)

    def dead_letters(self) -> list[str]:
        """Bodies in the dead-letter queue, which keeps them."""
        assert self._count(self.dead_letters_url) <= 10
        answer = self.sqs.receive_message(QueueUrl=self.dead_letters_url, MaxNumberOfMessages=10, VisibilityTimeout=0)
        return [message["Body"] for message in answer.get("Messages", [])]

    def _count(self, url: str) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(map(int, found.values()))


@pytest.fixture
def landing(function_environment: pytest.MonkeyPatch) -> Iterator[LandingQueue]:
    """The queues as the deployment makes them, and cold containers that know them."""
    function_environment.delenv("AWS_ENDPOINT_URL", raising=False)
    function_environment.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        sqs = boto3.client("sqs", region_name=REGION)
        dead_letters_url = sqs.create_queue(QueueName="landing-dlq")["QueueUrl"]
        redrive = {"deadLetterTargetArn": arn_of(sqs, dead_letters_url), "maxReceiveCount": MAX_RECEIVE_COUNT}
        url = sqs.create_queue(
            QueueName="landing", Attributes={"RedrivePolicy": json.dumps(redrive), "VisibilityTimeout": "60"}
        )["QueueUrl"]
        reconcile_url = sqs.create_queue(QueueName="reconcile")["QueueUrl"]
        function_environment.setenv("LANDING_QUEUE_URL", url)
        function_environment.setenv("LANDING_DLQ_URL", dead_letters_url)
        function_environment.setenv("RECONCILE_QUEUE_URL", reconcile_url)
        new_containers()
        yield LandingQueue(sqs, url, dead_letters_url, arn_of(sqs, url))


def arn_of(sqs: Any, url: str) -> str:
    """The queue's ARN."""
    return str(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"])
