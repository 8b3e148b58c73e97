"""The `seckill` command."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence

from cli import audit, dead_letters, local_stack, reconcile, sale, timeline
from cli.answers import add_stack_option
from cli.deployment import DeploymentError
from cli.exit_code import ExitCode
from drill import command as drill
from local.invocation import InvocationError
from local.state import NoStackError

AddArguments = Callable[[argparse.ArgumentParser], None]
Run = Callable[[argparse.Namespace], int]


def build_parser() -> argparse.ArgumentParser:
    """Every command sets `run`, a function that takes the parsed arguments and returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="seckill",
        description="A flash-sale back end whose books balance.",
        epilog="exit status: 0 all well, 1 findings, 2 wrong use, 3 unreachable, 4 no verdict yet",
    )
    add_stack_option(parser, default=None)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, help_text: str, add_arguments: AddArguments, run: Run) -> None:
        command = commands.add_parser(name, help=help_text)
        add_arguments(command)
        command.set_defaults(run=run)

    add("sale", "open and change sales, and look at them", sale.add_arguments, sale.run)
    add("audit", "put the accounts side by side and judge them", audit.add_arguments, audit.run)
    add("reconcile", "repair now what was left open", reconcile.add_arguments, reconcile.run)
    add("timeline", "tell one reservation's life", timeline.add_arguments, timeline.run)
    add("dead-letters", "show what could not be landed", dead_letters.add_list_arguments, dead_letters.run_list)
    add("resolve", "decide a reservation by hand", dead_letters.add_resolve_arguments, dead_letters.run_resolve)
    add("local", "run everything on this machine until Ctrl-C", local_stack.add_local_arguments, local_stack.run_local)
    add("token", "print a token for the local stack", local_stack.add_token_arguments, local_stack.run_token)
    add("drill", "run the storm and report on the books", drill.add_arguments, drill.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status. argparse itself exits with 2 on wrong use."""
    parser = build_parser()
    parsed = parser.parse_args(arguments)
    if parsed.stack is not None and not getattr(parsed, "asks", False):
        parser.error("--stack: this command is about this machine only")
    if getattr(parsed, "runs_servers", False):
        _end_in_good_order_by_signals()
    try:
        status: int = parsed.run(parsed)
    except (NoStackError, InvocationError, DeploymentError) as error:
        print(error, file=sys.stderr)
        return ExitCode.UNREACHABLE
    return status


def _end_in_good_order_by_signals() -> None:
    """SIGTERM ends the program as Ctrl-C does; and so does SIGINT where a shell, as for every command in the
    background, has set it to be ignored.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # By way of SIGINT, for which asyncio.run has a handler of its own while it runs.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
