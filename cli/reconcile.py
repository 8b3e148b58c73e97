"""`seckill reconcile`: one pass, now."""

from __future__ import annotations

import argparse

from cli.answers import Answer, add_asking_options, ask, tell
from cli.audit import show_audits, show_queues, verdict_on
from cli.exit_code import ExitCode
from local.stack import RECONCILE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `seckill reconcile`."""
    add_asking_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run a pass and show what it did; the exit status judges the books it left."""
    summary = ask(arguments, RECONCILE, {})
    tell(summary, as_json=arguments.json, show=_show)
    return ExitCode.FINDINGS if summary["failed"] else verdict_on(summary["audits"])


def _show(summary: Answer) -> None:
    show_audits(summary["audits"])
    show_queues(summary)
    lines = {
        "stale rows": f"{summary['staleFound']}: landed {summary['landed']}, rolled back {summary['rolledBack']}",
        "old holds": f"released {summary['holdsReleased']}, settled {summary['holdsSettled']}",
        "rescue": f"{summary['deadLettersRescued']} dead letters done, {summary['deadLettersUnknown']} unknown",
        "rebuilt": _skus(summary["rebuilt"]),
        "closed": _skus(summary["closed"]),
    }
    for name, value in lines.items():
        print(f"{name:13} {value}")
    for failure in summary["failed"]:
        print(f"{'not done':13} {failure}")


def _skus(skus: list[int]) -> str:
    return ", ".join(map(str, skus)) or "none"
