"""The clients' own log: every answer a shopper got, one JSON line each, and what its numbers say."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

# What the load side writes when there is no HTTP answer: status 0 and one of these codes.
NO_ANSWER = "NO_ANSWER"
NO_CONNECTION = "NO_CONNECTION"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: `start` in seconds since the sale opened, `latency` in seconds, `key` only if one was named."""

    user: str
    attempt: int
    status: int
    code: str
    key: str | None
    start: float
    latency: float

    @property
    def promised(self) -> bool:
        """Was this shopper told "reserved"? docs/protocol.md section 1 counts the keys of 2xx answers."""
        return 200 <= self.status < 300

    @property
    def won(self) -> bool:
        return self.status == 202

    @property
    def sold_out(self) -> bool:
        return self.code == "SOLD_OUT"


class AnswerLog:
    """Writes each answer as it comes, so that a storm that dies half way still leaves its evidence."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file: TextIO = path.open("w", encoding="utf-8")

    def write(self, answer: Answer) -> None:
        self._file.write(json.dumps(asdict(answer), separators=(",", ":")) + "\n")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_answers(path: Path) -> list[Answer]:
    with path.open(encoding="utf-8") as lines:
        return [Answer(**json.loads(line)) for line in lines]


def promised_keys(answers: Iterable[Answer]) -> dict[str, str]:
    """The keys named in 2xx answers, each with the user who was told."""
    return {answer.key: answer.user for answer in answers if answer.promised and answer.key is not None}


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest-rank percentile of sorted values; 0.0 if there are none."""
    if not values:
        return 0.0
    return values[max(0, math.ceil(len(values) * percent / 100) - 1)]


def latency_ms(answers: Iterable[Answer]) -> dict[str, float]:
    values = sorted(answer.latency * 1000 for answer in answers)
    named = {f"p{percent}": percentile(values, percent) for percent in (50, 90, 95, 99)}
    return {name: round(value, 1) for name, value in {**named, "max": values[-1] if values else 0.0}.items()}


def requests_per_second(answers: Sequence[Answer]) -> float:
    """Answers per second between the first click and the last answer."""
    if not answers:
        return 0.0
    first = min(answer.start for answer in answers)
    last = max(answer.start + answer.latency for answer in answers)
    return round(len(answers) / max(last - first, 0.001), 1)
