"""`seckill timeline KEY`: one reservation's life, from the books and the logs, by time.

Of a deployed stack it tells the books' part; for the logs' part the stack brings a saved query.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cli.answers import Answer, add_asking_options, ask, exit_code_for, tell
from cli.exit_code import ExitCode
from local.logs import LogLine, lines_about
from local.stack import SALE_ADMIN
from local.state import read_state

# Fields of a log line that its place in the timeline says already, or that tell of the code and not of the reservation.
UNSAID_FIELDS = {"level", "location", "message", "timestamp", "service", "pre_deduct_key", "sku_id"}


@dataclass(frozen=True)
class Event:
    """Something that happened to the reservation."""

    at: datetime
    source: str
    """ledger, order or notice (by the database's clock), or the function that logged it (by its own)."""
    what: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `seckill timeline`."""
    parser.add_argument("key", metavar="KEY", help="the reservation's preDeductKey")
    add_asking_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask the books, search the logs, show both by time. A key that nobody knows is wrong use."""
    answer = ask(arguments, SALE_ADMIN, {"action": "timeline", "preDeductKey": arguments.key})
    if not answer["ok"]:
        tell(answer, as_json=arguments.json, show=_show)
        return exit_code_for(answer)
    lines = _log_lines(arguments)
    events = timeline(answer, lines)
    log = [line.fields for line in lines]
    told = [{"at": _time(event), "source": event.source, "what": event.what} for event in events]
    tell(answer | {"events": told, "log": log}, as_json=arguments.json, show=_show)
    if arguments.stack is not None:
        query = f"{arguments.stack}/One reservation's timeline"
        print(f"for the logs' part run the saved query {query} in CloudWatch Logs Insights", file=sys.stderr)
    if not events:
        who = "neither the books nor the logs know" if arguments.stack is None else "the books do not know"
        print(f"{who} {arguments.key}", file=sys.stderr)
        return ExitCode.WRONG_USE
    return ExitCode.ALL_WELL


def _log_lines(arguments: argparse.Namespace) -> list[LogLine]:
    """What the local stack's functions logged; a deployed stack's logs are CloudWatch's to search."""
    if arguments.stack is not None:
        return []
    lines = lines_about(Path(read_state().log_directory), arguments.key)
    return [line for line in lines if not _is_question(line)]


def _is_question(line: LogLine) -> bool:
    """Whether it tells of somebody who asked for the timeline: that is no event of the reservation's life."""
    return line.fields.get("action") == "timeline"


def timeline(answer: Answer, lines: list[LogLine]) -> list[Event]:
    """All events by time; of several in the same millisecond, the books' come first."""
    events = [*_in_the_books(answer), *(Event(line.at, line.service, _said(line)) for line in lines)]
    return sorted(events, key=lambda event: event.at)


def _in_the_books(answer: Answer) -> Iterator[Event]:
    ledger, order, notice = answer["ledger"], answer["order"], answer["notice"]
    if ledger:
        yield from _in_the_ledger(ledger)
    if order:
        yield Event(_moment(order["createdAt"]), "order", f"order {order['orderId']} of {order['quantity']} units")
    if notice:
        yield Event(_moment(notice["createdAt"]), "notice", f"to be sent: {notice['reason']}")
        if notice["sentAt"]:
            yield Event(_moment(notice["sentAt"]), "notice", "sent")


def _in_the_ledger(ledger: dict[str, Any]) -> Iterator[Event]:
    """A row knows when it was written and when it was changed last. A tombstone is written at its final status."""
    tombstone = ledger["status"] == "ROLLED_BACK" and ledger["createdAt"] == ledger["updatedAt"]
    about = "SKU {skuId}, {quantity} units, epoch {epoch}, ticket {ticket}".format_map(ledger)
    reason = f": {ledger['reason']}" if ledger["reason"] else ""
    first = f"ROLLED_BACK{reason}" if tombstone else "RESERVED"
    yield Event(_moment(ledger["createdAt"]), "ledger", f"{first}, {about}")
    if ledger["status"] != "RESERVED" and not tombstone:
        yield Event(_moment(ledger["updatedAt"]), "ledger", ledger["status"] + reason)
    elif ledger["retryCount"]:
        yield Event(_moment(ledger["updatedAt"]), "ledger", f"failed landing {ledger['retryCount']}")


def _said(line: LogLine) -> str:
    """The message and what it is about."""
    said = {
        name: value
        for name, value in line.fields.items()
        if name not in UNSAID_FIELDS and value is not None and not name.startswith(("function_", "xray_"))
    }
    return " ".join([str(line.fields.get("message", "")), *(f"{name}={value}" for name, value in said.items())])


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _time(event: Event) -> str:
    return event.at.isoformat(timespec="milliseconds")


def _show(answer: Answer) -> None:
    for event in answer["events"]:
        print(f"{event['at']}  {event['source']:10}  {event['what']}")
    if answer["events"] and not answer["ledger"]:
        print("the ledger does not know this key")
