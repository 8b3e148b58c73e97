"""`seckill audit [SKU]`: the accounts of each sale side by side, and the arithmetic between them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from cli.answers import Answer, add_asking_options, ask, exit_code_for, tell
from cli.exit_code import ExitCode
from local.stack import SALE_ADMIN
from local.whole_numbers import whole_number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `seckill audit`."""
    parser.add_argument("sku", type=whole_number(1), nargs="?", metavar="SKU", help="one sale (all on offer)")
    add_asking_options(parser)


def event_for(arguments: argparse.Namespace) -> dict[str, Any]:
    """The event that asks for the audit."""
    return {"action": "audit"} | ({} if arguments.sku is None else {"skuId": arguments.sku})


def run(arguments: argparse.Namespace) -> int:
    """Audit and show; the exit status is the verdict."""
    answer = ask(arguments, SALE_ADMIN, event_for(arguments))
    tell(answer, as_json=arguments.json, show=_show)
    return verdict_on(answer["audits"]) if answer["ok"] else exit_code_for(answer)


def verdict_on(audits: Iterable[Answer]) -> ExitCode:
    """One for all sales: a broken equation or a gap is a finding, even beside sales without a verdict."""
    audits = list(audits)
    if any(audit["ok"] is False or audit["gap"] for audit in audits):
        return ExitCode.FINDINGS
    if any(audit["ok"] is None for audit in audits):
        return ExitCode.NO_VERDICT
    return ExitCode.ALL_WELL


def _show(answer: Answer) -> None:
    if not answer["audits"]:
        print("no sale is on offer")
    show_audits(answer["audits"])
    show_queues(answer)


def show_audits(audits: Iterable[Answer]) -> None:
    """Print each sale's accounts in units, its equations and its gap."""
    for audit in audits:
        print(f"SKU {audit['skuId']}, {audit['state']}, {audit['total']} units: {_verdict(audit)}")
        for account, standing in _accounts(audit).items():
            print(f"  {account:9} {standing}")
        for equation in audit["equations"]:
            print(f"{_mark(equation, audit)} {equation}")
        print(f"  gap: {audit['gapTerms']} = {audit['gap']}")
        for finding in audit["findings"]:
            if finding not in audit["equations"]:
                print(f"! {finding}")
        print()


def _mark(equation: str, audit: Answer) -> str:
    return "!" if equation in audit["findings"] else " "


def _verdict(audit: Answer) -> str:
    if audit["ok"] is None and not audit["gap"]:
        return "no verdict"
    words = [f"gap {audit['gap']}"] if audit["gap"] else []
    words += [f"drift {audit['drift']}"] if audit["drift"] else []
    words += ["an equation is off"] if audit["ok"] is False else []
    return ", ".join(words) or "ok"


def _accounts(audit: Answer) -> dict[str, str]:
    redis, reserved = audit["redis"], audit["ledger"]["reserved"]
    age = f", the oldest reserved {audit['oldestPendingSeconds']} s ago" if reserved else ""
    return {
        "Redis": (
            "stock {stock}, ticket {ticket}, epoch {epoch}, holds {holds}".format_map(redis)
            if redis
            else "no whole copy, or not reachable"
        ),
        "ledger": "reserved {reserved}, landed {landed}, rolled back {rolledBack}".format_map(audit["ledger"]) + age,
        "orders": str(audit["orders"]),
        "database": f"stock {audit['databaseStock']}, cap {audit['cap']}, epoch {audit['epoch']}",
        "notices": f"{audit['noticesPending']} not sent yet",
    }


def show_queues(answer: Answer) -> None:
    """Print the depths of the landing queue and its dead letters; a depth that could not be read is said."""
    for name, key in (("landing queue", "queueDepth"), ("dead letters", "deadLetters")):
        depth = answer[key]
        text = "{waiting} waiting, {inFlight} in flight".format_map(depth) if depth else "not reachable"
        print(f"{name:13} {text}")
