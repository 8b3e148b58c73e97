"""`seckill dead-letters` and `seckill resolve KEY`: what waits for a person, and the person's decision."""

from __future__ import annotations

import argparse
from typing import Any

from cli.answers import Answer, add_asking_options, ask, exit_code_for, tell
from local.stack import SALE_ADMIN

# As typed, and as sale_admin knows them.
DECISIONS = {"land": "land", "roll-back": "roll_back", "discard": "discard"}


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `seckill dead-letters`."""
    add_asking_options(parser)


def run_list(arguments: argparse.Namespace) -> int:
    """Show the dead letters that can be seen now."""
    answer = ask(arguments, SALE_ADMIN, {"action": "dead_letters"})
    tell(answer, as_json=arguments.json, show=_show_letters)
    return exit_code_for(answer)


def add_resolve_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `seckill resolve`."""
    parser.add_argument("key", metavar="KEY", help="the reservation's; a letter without one goes by its message id")
    parser.add_argument(
        "--decision",
        required=True,
        choices=DECISIONS,
        help="land: write the order; roll-back: take the promise back, with a notice; discard: an unknown dead letter",
    )
    parser.add_argument("--reason", required=True, metavar="TEXT", help="goes into the log, and into a notice")
    add_asking_options(parser)


def event_for(arguments: argparse.Namespace) -> dict[str, Any]:
    """The event that carries the decision."""
    return {
        "action": "resolve",
        "preDeductKey": arguments.key,
        "decision": DECISIONS[arguments.decision],
        "reason": arguments.reason,
    }


def run_resolve(arguments: argparse.Namespace) -> int:
    """Carry out the decision and show what the ledger says then."""
    answer = ask(arguments, SALE_ADMIN, event_for(arguments))
    tell(answer, as_json=arguments.json, show=_show_resolved)
    return exit_code_for(answer)


def _show_letters(answer: Answer) -> None:
    for letter in answer["letters"]:
        print(f"message {letter['messageId']}")
        print(f"  key     {letter['preDeductKey'] or 'none'}")
        print(f"  ledger  {letter['ledger'] or 'does not know it'}")
        print(f"  body    {letter['body']}")
    unseen = answer["deadLetters"]["inFlight"]
    print(f"{len(answer['letters'])} dead letters can be seen, {unseen} are being looked at")


def _show_resolved(answer: Answer) -> None:
    print(f"{answer['preDeductKey']}: {answer['decision']}, the ledger says {answer['ledger'] or 'nothing of it'}")
