"""SQS: the landing queue and the reconcile queue. boto3 is imported on first use: only winners need it."""

import json
import time
from typing import Any

from seckill.domain.deadline import Deadline

# Connecting and waiting for the answer, together at most the one second that a single wait may take.
CONNECT_SECONDS = 0.5
READ_SECONDS = 0.5
# Asking for a rebuild is a hint that repeats itself: at most one a second per container, over all SKUs.
REBUILD_REQUEST_SECONDS = 1.0


class QueueError(Exception):
    """The message was not sent, or it is not known whether it was."""


class Queues:
    """Sends landing messages and rebuild requests; raises QueueError.

    A send is not even begun when the deadline leaves less time than it may take: the ledger row is the promise, and the
    message only hurries its landing (docs/protocol.md 4.8).
    """

    def __init__(self, landing_url: str, reconcile_url: str) -> None:
        self._landing_url = landing_url
        self._reconcile_url = reconcile_url
        self._client: Any = None
        self._next_rebuild_request = 0.0
        self.deadline = Deadline(seconds=1.0)

    def warm(self) -> None:
        """Build the client, which costs some 100 ms, while nobody waits."""
        if self._client is None:
            import boto3  # noqa: PLC0415  the import is what most requests must not pay for
            from botocore.config import Config  # noqa: PLC0415

            once = Config(connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS, retries={"total_max_attempts": 1})
            self._client = boto3.client("sqs", config=once)

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
        if self.deadline.left() < CONNECT_SECONDS + READ_SECONDS:
            raise QueueError("too little time left to send")
        self.warm()
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        try:
            self._client.send_message(QueueUrl=url, MessageBody=json.dumps(body))
        except (BotoCoreError, ClientError) as error:
            raise QueueError(f"{type(error).__name__}: {error}") from error
