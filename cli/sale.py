"""`seckill sale open|status|list`: the sale_admin function's actions, asked and shown."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from cli.exit_code import ExitCode
from local.invocation import InvocationError, invoke
from local.stack import SALE_ADMIN
from local.state import NoStackError, read_state


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands under `seckill sale`."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="print the answer as JSON")
    commands = parser.add_subparsers(dest="sale_command", required=True, metavar="COMMAND")

    opening = commands.add_parser("open", parents=[shared], help="put a SKU on offer")
    opening.add_argument("sku", type=int, metavar="SKU")
    opening.add_argument("--total", type=int, required=True, help="units on offer")
    opening.add_argument("--quantity", type=int, help="units per reservation (1)")
    opening.add_argument("--opens-at", metavar="TIME", help="ISO 8601 with an offset (now)")
    opening.add_argument("--closes-at", metavar="TIME", help="ISO 8601 with an offset (never)")

    status = commands.add_parser("status", parents=[shared], help="show the accounts of a sale")
    status.add_argument("sku", type=int, metavar="SKU")

    commands.add_parser("list", parents=[shared], help="list all sales")


def run(arguments: argparse.Namespace) -> int:
    """Ask sale_admin and show what it says."""
    try:
        answer = invoke(SALE_ADMIN, event_for(arguments), read_state().environment)
    except (NoStackError, InvocationError) as error:
        print(error, file=sys.stderr)
        return ExitCode.UNREACHABLE
    if arguments.json:
        print(json.dumps(answer, indent=2))
    elif answer["ok"]:
        SHOW[arguments.sale_command](answer)
    else:
        print(f"{answer['error']}: {answer['detail']}", file=sys.stderr)
    return exit_code_for(answer)


def event_for(arguments: argparse.Namespace) -> dict[str, Any]:
    """The event that asks for the command."""
    if arguments.sale_command == "list":
        return {"action": "list_sales"}
    if arguments.sale_command == "status":
        return {"action": "status", "skuId": arguments.sku}
    given = {
        "total": arguments.total,
        "quantity": arguments.quantity,
        "opensAt": arguments.opens_at,
        "closesAt": arguments.closes_at,
    }
    given = {name: value for name, value in given.items() if value is not None}
    return {"action": "open_sale", "skuId": arguments.sku, **given}


def exit_code_for(answer: Mapping[str, Any]) -> ExitCode:
    """A refusal is wrong use, unless a store is away; an open sale that Redis lacks cannot be bought from yet."""
    if not answer["ok"]:
        return ExitCode.UNREACHABLE if answer["error"] == "UNAVAILABLE" else ExitCode.WRONG_USE
    return ExitCode.ALL_WELL if answer.get("loaded", True) else ExitCode.NO_VERDICT


def _show_opened(answer: Mapping[str, Any]) -> None:
    if answer["loaded"]:
        print(f"SKU {answer['skuId']} is on offer")
    else:
        print(f"SKU {answer['skuId']} is on offer, but Redis has not loaded it yet; the same command tries again")


def _show_status(answer: Mapping[str, Any]) -> None:
    ledger, redis = answer["ledger"], answer["redis"]
    if redis is None:
        copy = "no whole copy, or not reachable"
    else:
        copy = "stock {stock}, ticket {ticket}, holds {holds}, epoch {epoch}".format_map(redis)
    lines = {
        "SKU": f"{answer['skuId']}, {answer['state']}, {answer['quantity']} per reservation",
        "opens": answer["opensAt"] or "at once",
        "closes": answer["closesAt"] or "never",
        "database stock": f"{answer['remaining']} of {answer['total']}",
        "orders": answer["orders"],
        "ledger": "reserved {reserved}, landed {landed}, rolled back {rolledBack}".format_map(ledger),
        "cap": f"{answer['cap']}, epoch {answer['epoch']}",
        "Redis": copy,
    }
    for name, value in lines.items():
        print(f"{name:15} {value}")


def _show_list(answer: Mapping[str, Any]) -> None:
    print(f"{'SKU':>19}  {'state':8}  {'remaining':>10}  {'total':>10}  opens at")
    for sale in answer["sales"]:
        opens_at = sale["opensAt"] or "at once"
        print(f"{sale['skuId']:>19}  {sale['state']:8}  {sale['remaining']:>10}  {sale['total']:>10}  {opens_at}")


SHOW = {"open": _show_opened, "status": _show_status, "list": _show_list}
