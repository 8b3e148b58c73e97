"""The `seckill` command."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from cli import local_stack, sale
from drill import command as drill


def build_parser() -> argparse.ArgumentParser:
    """Every command sets `run`, a function that takes the parsed arguments and returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="seckill",
        description="A flash-sale back end whose books balance.",
        epilog="exit status: 0 all well, 1 findings, 2 wrong use, 3 unreachable, 4 no verdict yet",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    sale_parser = commands.add_parser("sale", help="open sales and look at them")
    sale.add_arguments(sale_parser)
    sale_parser.set_defaults(run=sale.run)

    local_parser = commands.add_parser("local", help="run everything on this machine until Ctrl-C")
    local_stack.add_local_arguments(local_parser)
    local_parser.set_defaults(run=local_stack.run_local)

    token_parser = commands.add_parser("token", help="print a token for the local stack")
    local_stack.add_token_arguments(token_parser)
    token_parser.set_defaults(run=local_stack.run_token)

    drill_parser = commands.add_parser("drill", help="run the storm and report on the books")
    drill.add_arguments(drill_parser)
    drill_parser.set_defaults(run=drill.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status. argparse itself exits with 2 on wrong use."""
    parsed = build_parser().parse_args(arguments)
    status: int = parsed.run(parsed)
    return status
