"""A landing message in SQS: `{"preDeductKey": ...}` plus what helps a reader; only the key counts."""

import json
from typing import Any

LONGEST_KEY = 36


def parse_landing_message(body: str) -> dict[str, Any]:
    """The message, with a `preDeductKey` that can be one; empty when it is no landing message."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):  # not JSON, or nested a thousand deep
        return {}
    key = message.get("preDeductKey") if isinstance(message, dict) else None
    known = isinstance(key, str) and key.isascii() and 0 < len(key) <= LONGEST_KEY
    return dict(message) if known else {}
