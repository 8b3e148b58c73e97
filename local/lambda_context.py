"""What a handler gets as `context` here: the part of Lambda's context object that code may rely on.

Source: AWS Lambda developer guide, "Using the Lambda context object to retrieve Python function information".
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field

# Any twelve digits will do: nothing here checks them, they only make the names look like real ones.
ACCOUNT_ID = "123456789012"


@dataclass(frozen=True, kw_only=True)
class LambdaContext:
    """One invocation. `deadline` is on time.monotonic(), in seconds."""

    function_name: str
    region: str
    deadline: float
    memory_limit_in_mb: int = 512
    function_version: str = "$LATEST"
    aws_request_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @classmethod
    def starting_now(cls, function_name: str, region: str, timeout_seconds: float) -> LambdaContext:
        """The context of an invocation that begins now and may take `timeout_seconds`."""
        deadline = time.monotonic() + timeout_seconds
        return cls(function_name=function_name, region=region, deadline=deadline)

    @property
    def invoked_function_arn(self) -> str:
        """The function's ARN, without a version, as for an unqualified invocation."""
        return f"arn:aws:lambda:{self.region}:{ACCOUNT_ID}:function:{self.function_name}"

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the time-out; 0 when it has passed."""
        return max(0, int((self.deadline - time.monotonic()) * 1000))
