"""The functions' answers: asked for, shown, and turned into the exit status."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cli.exit_code import ExitCode
from local.invocation import invoke
from local.state import read_state

Answer = Mapping[str, Any]


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """`--json`, which every command that asks has."""
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def ask(handler: str, event: Mapping[str, Any]) -> Any:
    """The answer of a function of the local stack. Raises NoStackError, InvocationError."""
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
