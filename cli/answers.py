"""The functions' answers: asked for, shown, and turned into the exit status."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cli.deployment import invoke_deployed
from cli.exit_code import ExitCode
from local.invocation import invoke
from local.state import read_state

Answer = Mapping[str, Any]


def add_asking_options(parser: argparse.ArgumentParser) -> None:
    """The options that every command has which asks a function."""
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    # Suppressed: or the default would hide a --stack in front of the command.
    add_stack_option(parser, default=argparse.SUPPRESS)
    parser.set_defaults(asks=True)


def add_stack_option(parser: argparse.ArgumentParser, *, default: str | None) -> None:
    """`--stack`, in front of the command or among its options."""
    parser.add_argument(
        "--stack", metavar="NAME", type=_stack_name, default=default, help="a deployed stack, instead of the local one"
    )


def _stack_name(text: str) -> str:
    # As from a shell variable that is not set: meant for a deployment, so never for the local stack.
    if not text:
        raise argparse.ArgumentTypeError("the name is empty")
    return text


def ask(arguments: argparse.Namespace, handler: str, event: Mapping[str, Any]) -> Any:
    """The answer of a function of the stack that `arguments` name, or of the local one.

    Raises DeploymentError; NoStackError, InvocationError.
    """
    if arguments.stack is not None:
        return invoke_deployed(arguments.stack, handler, event)
    state = read_state()
    return invoke(handler, event, state.environment, log_directory=Path(state.log_directory))


def tell(answer: Answer, *, as_json: bool, show: Callable[[Answer], None]) -> None:
    """Print an answer for a person or a program; a refusal's reason goes to standard error."""
    if as_json:
        print(json.dumps(answer, indent=2))
    elif answer.get("ok", True):
        show(answer)
    else:
        print(f"{answer['error']}: {answer['detail']}", file=sys.stderr)


# What is no wrong use: a store is away, or the state of the books is what forbids it.
REFUSALS = {
    "UNAVAILABLE": ExitCode.UNREACHABLE,
    "BOOKS_BROKEN": ExitCode.FINDINGS,
    "NOT_LANDED": ExitCode.FINDINGS,
    "NOT_ROLLED_BACK": ExitCode.FINDINGS,
}


def exit_code_for(answer: Answer) -> ExitCode:
    """What sale_admin's answer amounts to; a sale that Redis has yet to load cannot be bought from."""
    if not answer["ok"]:
        return REFUSALS.get(answer["error"], ExitCode.WRONG_USE)
    return ExitCode.ALL_WELL if answer.get("loaded", True) else ExitCode.NO_VERDICT
