"""`seckill drill`: the incident's storm against the incident's own design, then against this product."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import TextIO

from drill.database import connect
from drill.error import DrillError
from drill.faults.plan import Fault
from drill.report import report_json, write_reports
from drill.run import Outcome, Parameters, describe, run_design
from drill.summary import versions
from drill.terminal import ProgressBar, results
from local.invocation import InvocationError
from local.open_files import raise_open_files_limit
from local.servers import ServerError, Servers, running_servers
from local.stack import StackError
from local.whole_numbers import whole_number

REPORTS = Path(__file__).resolve().parent.parent / "build" / "drill"

EXIT_BALANCES, EXIT_FINDINGS, EXIT_UNREACHABLE, EXIT_NO_VERDICT = 0, 1, 3, 4
EXIT_INTERRUPTED = 130  # as a shell counts SIGINT; SIGTERM comes as one (cli/main.py)

# Ramp and storm in seconds: what CI has time for, and the incident's own.
SHORT = (5.0, 15.0)
FULL = (20.0, 30.0)
# Limits of a load on one machine, so that a slip of the finger cannot start one that does not end.
MOST_USERS = 20_000
MOST_SECONDS = 300.0
# Beside one connection a user and one more for each double-clicker: logs, servers, the queue proxy.
OTHER_OPEN_FILES = 400
CONNECTIONS_PER_USER = 1.15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `seckill drill`."""
    parser.add_argument(
        "--users", type=whole_number(1, MOST_USERS), default=5200, help="shoppers, one connection each (%(default)s)"
    )
    parser.add_argument("--units", type=whole_number(0, MOST_USERS), default=100, help="units on sale (%(default)s)")
    parser.add_argument(
        "--ramp", type=_seconds, help=f"seconds in which they connect ({SHORT[0]:g}, with --full {FULL[0]:g})"
    )
    parser.add_argument("--seconds", type=_seconds, help=f"seconds of storm ({SHORT[1]:g}, with --full {FULL[1]:g})")
    parser.add_argument("--full", action="store_true", help="the incident's own ramp and storm")
    parser.add_argument(
        "--faults", type=_faults, default=frozenset(Fault), help="all, none, or letters such as A,C (all)"
    )
    parser.add_argument(
        "--seed", type=whole_number(), default=1, help="who clicks when, and which sends are hit (%(default)s)"
    )
    parser.add_argument(
        "--design", choices=("both", "before", "after"), default="both", help="which designs (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print report.json; progress goes to standard error")
    parser.set_defaults(runs_servers=True)


def run(arguments: argparse.Namespace) -> int:
    """0: this product's books balance; 1: they do not; 3: no servers to be had; 4: no verdict."""
    talk = sys.stderr if arguments.json else sys.stdout
    parameters = _parameters(arguments, talk)
    columns = ["before", "after"] if arguments.design == "both" else [arguments.design]
    try:
        with running_servers() as servers:
            described = describe(parameters) | {"lockWaitSeconds": _lock_wait_seconds(servers)}
            _say(talk, _opening_words(parameters, described))
            outcomes = [_run(column, servers, parameters, talk) for column in columns]
            report = report_json(outcomes, described, versions(servers.database_url, servers.redis_url))
    except (ServerError, StackError) as error:
        print(f"seckill drill: {error}", file=sys.stderr)
        return EXIT_UNREACHABLE
    except KeyboardInterrupt:
        print("\nseckill drill: interrupted, everything it started is stopped", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (DrillError, InvocationError) as error:
        print(f"seckill drill: {error}", file=sys.stderr)
        return EXIT_NO_VERDICT
    page = write_reports(REPORTS, outcomes, report)
    _say(talk, f"\n{results(outcomes)}\n\n  versions: {_one_line(report['versions'])}\n  report:   {page}")
    if arguments.json:
        print(json.dumps(report, indent=2))
    return _exit_code(outcomes)


def _run(column: str, servers: Servers, parameters: Parameters, talk: TextIO) -> Outcome:
    started = time.monotonic()
    progress = ProgressBar(talk, f"{column:<6}", parameters.ramp_seconds, parameters.storm_seconds)
    outcome = run_design(column, servers, parameters, REPORTS / f"{column}.answers.jsonl", progress)
    _say(
        talk,
        f"  {column:<6} quiet {outcome.quiet_after:.1f} s after opening, {time.monotonic() - started:.0f} s in all",
    )
    return outcome


def _exit_code(outcomes: list[Outcome]) -> int:
    """By this product's books alone: that the incident's design loses units is what the drill is for."""
    for outcome in outcomes:
        if outcome.design.column == "after":
            if not outcome.verdict.balances:
                return EXIT_FINDINGS
            if outcome.verdict.accounts.queue_depth:
                return EXIT_NO_VERDICT  # messages are still on their way
    return EXIT_BALANCES


def _parameters(arguments: argparse.Namespace, talk: TextIO) -> Parameters:
    ramp, storm = FULL if arguments.full else SHORT
    return Parameters(
        users=_as_many_users_as_files_allow(arguments.users, talk),
        units=arguments.units,
        ramp_seconds=ramp if arguments.ramp is None else arguments.ramp,
        storm_seconds=storm if arguments.seconds is None else arguments.seconds,
        faults=arguments.faults,
        seed=arguments.seed,
    )


def _as_many_users_as_files_allow(users: int, talk: TextIO) -> int:
    wanted = round(users * CONNECTIONS_PER_USER) + OTHER_OPEN_FILES
    reached = raise_open_files_limit(wanted)
    if reached >= wanted:
        return users
    fewer = max(1, int((reached - OTHER_OPEN_FILES) / CONNECTIONS_PER_USER))
    _say(talk, f"  only {reached:,} files may be open here (ulimit -Hn): {fewer:,} users instead of {users:,}")
    return fewer


def _lock_wait_seconds(servers: Servers) -> int:
    with contextlib.closing(connect(servers.database_url)) as session, session.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.innodb_lock_wait_timeout")
        row = cursor.fetchone()
    return int(row[0]) if row else 0


def _opening_words(parameters: Parameters, described: dict[str, object]) -> str:
    faults = ", ".join(sorted(fault.value for fault in parameters.faults)) or "none"
    return (
        f"seckill drill: {parameters.users:,} shoppers, {parameters.units} units, ramp {parameters.ramp_seconds:g} s, "
        f"storm {parameters.storm_seconds:g} s, faults {faults}, seed {parameters.seed}\n"
        f"  {described['reserveContainers']} reserve containers, lock wait {described['lockWaitSeconds']} s, "
        f"visibility {described['visibilitySeconds']} s, reconcile every {described['reconcileSeconds']} s, "
        f"stale after {described['staleAfterSeconds']} s; all of it on this machine\n"
    )


def _say(stream: TextIO, words: str) -> None:
    print(words, file=stream, flush=True)


def _one_line(values: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most {MOST_SECONDS:g}")
    return seconds


def _faults(text: str) -> frozenset[Fault]:
    if text.lower() in ("all", "none"):
        return frozenset(Fault) if text.lower() == "all" else frozenset()
    try:
        return frozenset(Fault(letter) for letter in text.upper().replace(",", ""))
    except ValueError:
        raise argparse.ArgumentTypeError("must be all, none, or some of A, B, C") from None
