"""What the drill says on a terminal: progress while it runs, the table at the end."""

from __future__ import annotations

import time
from typing import TextIO

from drill.answers import latency_ms, requests_per_second
from drill.run import Outcome
from drill.storm import Progress
from drill.summary import Row, account_rows, fault_rows

BAR_WIDTH = 30
LINES_EVERY_SECONDS = 5.0  # where nobody sees a bar move
PERCENTILES = ("p50", "p90", "p95", "p99", "max")


class ProgressBar:
    """One moving line on a terminal, a line now and then anywhere else."""

    def __init__(self, stream: TextIO, title: str, ramp_seconds: float, storm_seconds: float) -> None:
        self._stream = stream
        self._title = title
        self._lengths = {"ramp": ramp_seconds, "storm": storm_seconds, "done": storm_seconds}
        self._next_line_at = 0.0
        self._phase = ""

    def __call__(self, progress: Progress) -> None:
        if self._stream.isatty():
            end = "\n" if progress.phase == "done" else ""
            self._stream.write(f"\r\033[K  {self._bar(progress)} {self._words(progress)}{end}")
        elif progress.phase != self._phase or time.monotonic() >= self._next_line_at:
            self._next_line_at = time.monotonic() + LINES_EVERY_SECONDS
            self._stream.write(f"  {self._words(progress)}\n")
        self._phase = progress.phase
        self._stream.flush()

    def _bar(self, progress: Progress) -> str:
        share = min(1.0, progress.seconds / max(self._lengths[progress.phase], 0.001))
        filled = round(share * BAR_WIDTH)
        return "█" * filled + "░" * (BAR_WIDTH - filled)

    def _words(self, progress: Progress) -> str:
        words = f"{self._title} {progress.phase:<5} {progress.seconds:5.1f} s  {progress.connections:,} connections"
        if progress.phase != "ramp":
            words += f"  {progress.answers:,} answers  {progress.promised:,} reserved  {progress.sold_out:,} sold out"
        return words + (f"  {progress.unanswered:,} unanswered" if progress.unanswered else "")


def table(head: list[str], rows: list[Row]) -> str:
    """Columns of numbers set to the right under their heads, names to the left."""
    names = [head[0], *(name for name, _ in rows)]
    columns = [[title, *(cells[index] for _, cells in rows)] for index, title in enumerate(head[1:])]
    name_width = max(len(name) for name in names)
    widths = [max(len(cell) for cell in column) for column in columns]
    lines = []
    for index, name in enumerate(names):
        cells = "".join(f"   {column[index]:>{width}}" for column, width in zip(columns, widths, strict=True))
        lines.append(f"  {name:<{name_width}}{cells}".rstrip())
    lines.insert(1, "  " + "-" * (name_width + sum(width + 3 for width in widths)))
    return "\n".join(lines)


def results(outcomes: list[Outcome]) -> str:
    """The account table, what each fault cost, latency, and what does not balance."""
    columns = [outcome.design.column for outcome in outcomes]
    parts = [table(["account", *columns], account_rows(outcomes))]
    if any(outcome.hit_sends for outcome in outcomes):
        parts.append(table(["units lost to", *columns], fault_rows(outcomes)))
    parts.append(table(["milliseconds", *PERCENTILES], _latency_rows(outcomes)))
    rates = [f"{outcome.design.column} {requests_per_second(outcome.answers):,.0f}" for outcome in outcomes]
    opened = [f"{outcome.design.column} {outcome.most_connections:,}" for outcome in outcomes]
    parts.append(f"  requests per second: {', '.join(rates)}\n  connections open at once: {', '.join(opened)}")
    parts += [_verdict(outcome) for outcome in outcomes]
    return "\n\n".join(parts)


def _latency_rows(outcomes: list[Outcome]) -> list[Row]:
    rows = []
    for outcome in outcomes:
        for words, answers in (
            ("won", [answer for answer in outcome.answers if answer.won]),
            ("sold out", [answer for answer in outcome.answers if answer.sold_out]),
        ):
            numbers = latency_ms(answers)
            rows.append((f"{outcome.design.column}, {words}", [f"{numbers[name]:,.0f}" for name in PERCENTILES]))
    return rows


def _verdict(outcome: Outcome) -> str:
    verdict = outcome.verdict
    words = [f"{_counted(len(verdict.lost), 'promised unit')} lost"] if verdict.lost else []
    words += [f"{_counted(verdict.oversold, 'unit')} sold twice"] if verdict.oversold else []
    words += verdict.findings
    if verdict.balances:
        words.append("the books balance")
    if verdict.pending:
        words.append(f"{_counted(len(verdict.pending), 'promised unit')} still pending at status 1")
    if verdict.users_promised_twice:
        words.append(f"{_counted(verdict.users_promised_twice, 'user')} promised more than one unit")
    return f"  {outcome.design.column}, {outcome.design.title}: {'; '.join(words)}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
