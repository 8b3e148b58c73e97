"""`seckill sale open|top-up|close|reopen|archive|rebuild|status|list`: sale_admin's actions, asked and shown."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from cli.answers import Answer, add_asking_options, ask, exit_code_for, tell
from local.stack import SALE_ADMIN
from local.whole_numbers import whole_number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands under `seckill sale`."""
    commands = parser.add_subparsers(dest="sale_command", required=True, metavar="COMMAND")

    def add(name: str, help_text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=help_text)
        add_asking_options(command)
        return command

    def add_for_sku(name: str, help_text: str) -> argparse.ArgumentParser:
        command = add(name, help_text)
        command.add_argument("sku", type=whole_number(1), metavar="SKU")
        return command

    opening = add_for_sku("open", "put a SKU on offer")
    opening.add_argument("--total", type=whole_number(), required=True, help="units on offer")
    opening.add_argument("--quantity", type=whole_number(), help="units per reservation (1)")
    opening.add_argument("--opens-at", metavar="TIME", help="ISO 8601 with an offset (now)")
    opening.add_argument("--closes-at", metavar="TIME", help="ISO 8601 with an offset (never)")

    topping_up = add_for_sku("top-up", "add units")
    topping_up.add_argument("units", type=whole_number(), metavar="UNITS")
    topping_up.add_argument(
        "--operation-id", required=True, metavar="ID", help="names this top-up: asked again, it is not done again"
    )

    add_for_sku("close", "end a sale: no new reservations, the promised ones land")
    reopening = add_for_sku("reopen", "open a closed sale again")
    reopening.add_argument("--closes-at", metavar="TIME", help="ISO 8601 with an offset (never)")
    add_for_sku("archive", "forget a closed sale with nothing pending; its books stay")
    add_for_sku("rebuild", "load Redis anew from the database, after a person has mended the rows")
    add_for_sku("status", "show the accounts of a sale")
    add("list", "list all sales")


def run(arguments: argparse.Namespace) -> int:
    """Ask sale_admin and show what it says."""
    answer = ask(arguments, SALE_ADMIN, event_for(arguments))
    tell(answer, as_json=arguments.json, show=SHOW[arguments.sale_command])
    return exit_code_for(answer)


ACTIONS = {
    "open": "open_sale",
    "top-up": "top_up",
    "close": "close_sale",
    "reopen": "reopen_sale",
    "archive": "archive_sale",
    "rebuild": "rebuild",
    "status": "status",
    "list": "list_sales",
}
# sale_admin's names of the arguments; what was not given is left out.
ARGUMENTS = {
    "sku": "skuId",
    "total": "total",
    "quantity": "quantity",
    "opens_at": "opensAt",
    "closes_at": "closesAt",
    "units": "units",
    "operation_id": "operationId",
}


def event_for(arguments: argparse.Namespace) -> dict[str, Any]:
    """The event that asks for the command."""
    given = {name: getattr(arguments, option, None) for option, name in ARGUMENTS.items()}
    return {"action": ACTIONS[arguments.sale_command]} | {
        name: value for name, value in given.items() if value is not None
    }


def _show_change(done: str) -> Callable[[Answer], None]:
    def show(answer: Answer) -> None:
        text = f"SKU {answer['skuId']} {done.format_map(answer)}"
        if not answer.get("loaded", True):
            text += ", but Redis has not loaded it yet; the same command tries again"
        print(text)

    return show


def _show_status(answer: Answer) -> None:
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


def _show_list(answer: Answer) -> None:
    print(f"{'SKU':>19}  {'state':8}  {'remaining':>10}  {'total':>10}  opens at")
    for sale in answer["sales"]:
        opens_at = sale["opensAt"] or "at once"
        print(f"{sale['skuId']:>19}  {sale['state']:8}  {sale['remaining']:>10}  {sale['total']:>10}  {opens_at}")


SHOW: dict[str, Callable[[Answer], None]] = {
    "open": _show_change("is on offer"),
    "top-up": _show_change("has {units} more units by {operationId}"),
    "close": _show_change("is closed"),
    "reopen": _show_change("is open again"),
    "archive": _show_change("is archived"),
    "rebuild": _show_change("is rebuilt"),
    "status": _show_status,
    "list": _show_list,
}
