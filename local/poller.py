"""Lambda's SQS event source: polls a queue, invokes a function with batches, deletes what is done.

    python -m local.poller --queue-url URL --handler functions.land_order.handler.lambda_handler ...

The program keeps `concurrency` containers, each a process that polls for itself and handles one batch at a
time; that is the event source's maximum concurrency. The batch of a container that dies comes back after the
queue's visibility time-out, since nobody deleted it. Failed messages come back the same way, and SQS itself
moves a message to the dead-letter queue after the queue's maxReceiveCount.
"""

from __future__ import annotations

import argparse
import functools
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from local.container import Container, log_to_stderr
from local.containers import Function, keep_containers
from local.sqs_events import WholeBatchFailedError, failed_message_ids, to_event

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import DeleteMessageBatchRequestEntryTypeDef

logger = logging.getLogger("local.poller")

# SQS hands out and takes back at most ten messages per call.
MESSAGES_PER_CALL = 10
# Long polling; the longest time an idle container needs to see a message whose visibility time-out has just
# passed.
LONG_POLL_SECONDS = 1
# Pause between two looks at an empty queue while a batch is being gathered, and after SQS could not be
# reached.
GATHER_PAUSE_SECONDS = 0.05
UNREACHABLE_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class EventSource:
    """One mapping of a queue to a function. Times are in seconds.

    `endpoint_url` is the event source's own way to SQS; the function may have been given another one.
    AWS refuses a mapping whose function may run longer than the queue's visibility time-out, and advises six
    times that and the window on top; here the message must only not come back while the function has time left.
    """

    queue_url: str
    queue_arn: str
    endpoint_url: str
    handler: str
    batch_size: int
    window_seconds: float
    timeout_seconds: float
    visibility_seconds: int

    def __post_init__(self) -> None:
        """Raises ValueError for what AWS would refuse, too."""
        if not 1 <= self.batch_size <= 10_000:
            raise ValueError(f"a batch holds 1 to 10,000 messages, not {self.batch_size}")
        if self.window_seconds + self.timeout_seconds > self.visibility_seconds:
            raise ValueError("window and time-out together must not exceed the visibility time-out")

    @property
    def region(self) -> str:
        """The region in the queue's ARN."""
        return self.queue_arn.split(":")[3]

    def client(self) -> SQSClient:
        """A client that goes by `endpoint_url`, whatever the environment says."""
        config = Config(connect_timeout=5, read_timeout=LONG_POLL_SECONDS + 10, retries={"total_max_attempts": 1})
        return boto3.client("sqs", endpoint_url=self.endpoint_url, region_name=self.region, config=config)


class BatchPoller:
    """Polls for one container."""

    def __init__(self, source: EventSource, container: Container, client: SQSClient) -> None:
        self._source = source
        self._container = container
        self._client = client

    def poll_once(self) -> int:
        """Gather a batch, invoke the function, delete what is done. Returns how many messages there were."""
        batch = self._gather()
        if batch:
            done = self._invoke(batch)
            self._delete(done)
        return len(batch)

    def _gather(self) -> list[Any]:
        """Up to `batch_size` messages; the window opens with the first one."""
        batch = self._receive(self._source.batch_size, wait_seconds=LONG_POLL_SECONDS)
        window_closes = time.monotonic() + self._source.window_seconds
        while batch and len(batch) < self._source.batch_size and time.monotonic() < window_closes:
            more = self._receive(self._source.batch_size - len(batch), wait_seconds=0)
            batch += more
            if not more:
                time.sleep(GATHER_PAUSE_SECONDS)
        return batch

    def _receive(self, wanted: int, *, wait_seconds: int) -> list[Any]:
        answer = self._client.receive_message(
            QueueUrl=self._source.queue_url,
            MaxNumberOfMessages=min(wanted, MESSAGES_PER_CALL),
            WaitTimeSeconds=wait_seconds,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return list(answer.get("Messages", []))

    def _invoke(self, batch: list[Any]) -> list[Any]:
        """The messages of the batch that are done."""
        sent = {message["MessageId"] for message in batch}
        try:
            answer = self._container.invoke(to_event(batch, self._source.queue_arn))
            failed = failed_message_ids(answer, sent)
        except WholeBatchFailedError:
            logger.exception("all %d messages failed", len(batch))
            return []
        except Exception:
            # Whatever a handler raises, the event source takes it as the failure of the whole batch.
            logger.exception("the function raised, all %d messages failed", len(batch))
            return []
        if failed:
            logger.warning("%d of %d messages failed", len(failed), len(batch))
        return [message for message in batch if message["MessageId"] not in failed]

    def _delete(self, done: list[Any]) -> None:
        for start in range(0, len(done), MESSAGES_PER_CALL):
            entries: list[DeleteMessageBatchRequestEntryTypeDef] = [
                {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
                for number, message in enumerate(done[start : start + MESSAGES_PER_CALL])
            ]
            answer = self._client.delete_message_batch(QueueUrl=self._source.queue_url, Entries=entries)
            if answer.get("Failed"):
                logger.warning("not deleted, they will come again: %s", answer["Failed"])


def poll_for_ever(source: EventSource, container: Container) -> NoReturn:
    """A container's life: poll until the process is ended."""
    poller = BatchPoller(source, container, source.client())
    while True:
        try:
            poller.poll_once()
        except (BotoCoreError, ClientError):
            # Messages received before it are neither lost nor done: they come back after their visibility
            # time-out.
            logger.exception("SQS did not answer")
            time.sleep(UNREACHABLE_PAUSE_SECONDS)


def main() -> None:
    """The command line that the stack starts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queue-url", required=True)
    parser.add_argument("--queue-arn", required=True)
    parser.add_argument("--endpoint-url", required=True)
    parser.add_argument("--handler", required=True)
    parser.add_argument("--concurrency", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--window-seconds", type=float, required=True)
    parser.add_argument("--timeout-seconds", type=float, required=True)
    parser.add_argument("--visibility-seconds", type=int, required=True)
    arguments = vars(parser.parse_args())
    concurrency = arguments.pop("concurrency")
    log_to_stderr()
    source = EventSource(**arguments)
    function = Function(handler=source.handler, region=source.region, timeout_seconds=source.timeout_seconds)
    keep_containers(function, concurrency, functools.partial(poll_for_ever, source))


if __name__ == "__main__":
    main()
