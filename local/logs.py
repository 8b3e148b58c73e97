"""What the functions logged about one reservation: the lines of the stack's logs that belong to a key.

Logs are JSON lines as aws-lambda-powertools writes them, mixed with what the programs themselves have to say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# As powertools' Logger writes times: 2026-11-29 20:02:45,123+0000
TIME_FORMAT = "%Y-%m-%d %H:%M:%S,%f%z"


@dataclass(frozen=True)
class LogLine:
    """One line, with all its fields."""

    at: datetime
    service: str
    fields: dict[str, Any]


def lines_about(directory: Path, key: str) -> list[LogLine]:
    """All lines of the logs in `directory` about the reservation `key`, by time.

    These are the lines that carry the key, and those without any key that have the correlation id of such a line:
    what a request logged before it had a key.
    """
    own = list(_lines(directory, lambda text: key in text, lambda line: line.get("pre_deduct_key") == key))
    calls = {line.fields["correlation_id"] for line in own if line.fields.get("correlation_id")}
    beside = _lines(
        directory,
        lambda text: any(call in text for call in calls),
        lambda line: line.get("correlation_id") in calls and not line.get("pre_deduct_key"),
    )
    return sorted([*own, *beside], key=lambda line: line.at)


def _lines(
    directory: Path, may_belong: Callable[[str], bool], belongs: Callable[[dict[str, Any]], bool]
) -> Iterator[LogLine]:
    """`may_belong` looks at the text first: parsing all lines of a storm would take long."""
    for log in sorted(directory.glob("*.log")):
        with log.open(errors="replace") as file:
            for text in file:
                line = _parsed(text) if may_belong(text) else None
                if line and belongs(line.fields):
                    yield line


def _parsed(text: str) -> LogLine | None:
    """The line; None when no function's logger wrote it."""
    try:
        fields = json.loads(text)
        at = datetime.strptime(fields["timestamp"], TIME_FORMAT).astimezone(UTC)
        return LogLine(at, fields["service"], fields)
    except (ValueError, KeyError, TypeError):
        return None
