"""SNS: where roll-back notices are published. boto3 is imported on first use."""

import json
from typing import Any


class NoticeError(Exception):
    """The notice was not published, or it is not known whether it was."""


class NoticeTopic:
    """Publishes notices; raises NoticeError."""

    def __init__(self, arn: str) -> None:
        self._arn = arn
        self._client: Any = None

    def publish(self, notice: dict[str, Any]) -> None:
        """Publish one notice; a reader may see it more than once."""
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        if self._client is None:
            import boto3  # noqa: PLC0415
            from botocore.config import Config  # noqa: PLC0415

            # The next pass tries again: one attempt, and no longer than a second each way.
            once = Config(connect_timeout=1, read_timeout=1, retries={"total_max_attempts": 1})
            self._client = boto3.client("sns", config=once)
        try:
            self._client.publish(TopicArn=self._arn, Message=json.dumps(notice))
        except (BotoCoreError, ClientError) as error:
            raise NoticeError(f"{type(error).__name__}: {error}") from error
