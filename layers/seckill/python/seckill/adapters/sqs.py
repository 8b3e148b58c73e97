"""SQS: landing queue, dead letters, reconcile queue. boto3 is imported on first use: only winners need it."""

import json
import time
from dataclasses import dataclass
from typing import Any

from seckill.domain.deadline import Deadline

# Connecting and waiting for the answer, together at most the one second that a single wait may take.
CONNECT_SECONDS = 0.5
READ_SECONDS = 0.5
# Asking for a rebuild is a hint that repeats itself: at most one a second per container, over all SKUs.
REBUILD_REQUEST_SECONDS = 1.0
# SQS's own limit for one receive.
RECEIVE_MESSAGES = 10


class QueueError(Exception):
    """It was not done, or it is not known whether it was."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A received message and the handle by which it is deleted."""

    message_id: str
    body: str
    handle: str


@dataclass(frozen=True, slots=True)
class Depth:
    """About how many messages a queue has."""

    waiting: int
    in_flight: int

    def as_json(self) -> dict[str, int]:
        """As the contracts name it."""
        return {"waiting": self.waiting, "inFlight": self.in_flight}


class _Client:
    """boto3's SQS client, built on first use (some 100 ms); one attempt a call."""

    def __init__(self) -> None:
        self._client: Any = None

    def warm(self) -> Any:
        if self._client is None:
            import boto3  # noqa: PLC0415  the import is what most requests must not pay for
            from botocore.config import Config  # noqa: PLC0415

            once = Config(connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS, retries={"total_max_attempts": 1})
            self._client = boto3.client("sqs", config=once)
        return self._client

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """The one place where a call leaves this process."""
        client = self.warm()
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        try:
            answer: dict[str, Any] = getattr(client, operation)(**arguments)
        except (BotoCoreError, ClientError) as error:
            raise QueueError(f"{operation}: {type(error).__name__}: {error}") from error
        return answer


class Queues:
    """Sends landing messages and rebuild requests; raises QueueError.

    A send is not even begun when the deadline leaves less time than it may take: the ledger row is the promise, and the
    message only hurries its landing (docs/protocol.md 4.8).
    """

    def __init__(self, landing_url: str, reconcile_url: str) -> None:
        self._landing_url = landing_url
        self._reconcile_url = reconcile_url
        self._client = _Client()
        self._next_rebuild_request = 0.0
        self.deadline = Deadline(seconds=1.0)

    def warm(self) -> None:
        """Build the client while nobody waits."""
        self._client.warm()

    def send_landing(self, key: str, sku_id: int, correlation_id: str) -> None:
        """Tell land_order of a reservation. Only the key counts; the rest is for its log lines."""
        self._send(self._landing_url, {"preDeductKey": key, "skuId": sku_id, "correlationId": correlation_id})

    def ask_for_rebuild(self, sku_id: int, epoch: int | None) -> None:
        """Ask reconcile to rebuild Redis's copy of a sale, seen at `epoch`; dropped when too frequent."""
        now = time.monotonic()
        if now < self._next_rebuild_request:
            return
        self._next_rebuild_request = now + REBUILD_REQUEST_SECONDS
        self._send(self._reconcile_url, {"job": "rebuild", "skuId": sku_id, "epoch": epoch})

    def _send(self, url: str, body: dict[str, Any]) -> None:
        self._refuse_if_late()
        self._client.warm()  # on a cold container an import of some 0.3 s
        self._refuse_if_late()
        self._client.call("send_message", QueueUrl=url, MessageBody=json.dumps(body))

    def _refuse_if_late(self) -> None:
        if self.deadline.left() < CONNECT_SECONDS + READ_SECONDS:
            raise QueueError("too little time left to send")


class DeadLetters:
    """The landing queue's dead letters, and how much both queues hold; raises QueueError."""

    def __init__(self, landing_url: str, dead_letter_url: str) -> None:
        self._landing_url = landing_url
        self._url = dead_letter_url
        self._client = _Client()

    def receive(self) -> list[Letter]:
        """Some letters, at most ten; they stay invisible for the queue's visibility time-out."""
        answer = self._client.call("receive_message", QueueUrl=self._url, MaxNumberOfMessages=RECEIVE_MESSAGES)
        return [
            Letter(message["MessageId"], message["Body"], message["ReceiptHandle"])
            for message in answer.get("Messages", [])
        ]

    def delete(self, letter: Letter) -> None:
        """Forget a letter, after the database said that nothing is left to do for it."""
        self._client.call("delete_message", QueueUrl=self._url, ReceiptHandle=letter.handle)

    def make_visible(self, letter: Letter) -> None:
        """Give a letter back at once."""
        self._client.call(
            "change_message_visibility", QueueUrl=self._url, ReceiptHandle=letter.handle, VisibilityTimeout=0
        )

    def landing_depth(self) -> Depth:
        """The landing queue's depth."""
        return self._depth(self._landing_url)

    def depth(self) -> Depth:
        """How many dead letters there are."""
        return self._depth(self._url)

    def _depth(self, url: str) -> Depth:
        answer = self._client.call("get_queue_attributes", QueueUrl=url, AttributeNames=["All"])["Attributes"]
        waiting = int(answer["ApproximateNumberOfMessages"]) + int(answer["ApproximateNumberOfMessagesDelayed"])
        return Depth(waiting, int(answer["ApproximateNumberOfMessagesNotVisible"]))
