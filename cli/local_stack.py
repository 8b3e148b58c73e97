"""`seckill local` and `seckill token`: everything on this machine, and a way in."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from cli.exit_code import ExitCode
from local.servers import ServerError, Servers, running_servers
from local.stack import Stack, StackError, StackOptions, running_stack
from local.state import StackRunsError, claimed_state, read_state
from local.tokens import mint_token
from local.whole_numbers import whole_number

# How long a dead program may go unnoticed.
HEALTH_CHECK_SECONDS = 0.5
LARGEST_PORT = 65_535


def add_local_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `seckill local`."""
    default = StackOptions()
    parser.add_argument("--port", type=whole_number(0, LARGEST_PORT), help="of the HTTP front (a free one)")
    parser.add_argument(
        "--workers",
        type=whole_number(1),
        default=default.workers,
        help="containers of reserve, each serving one call at a time (%(default)s)",
    )
    parser.add_argument(
        "--pollers",
        type=whole_number(1),
        default=default.poller_concurrency,
        help="containers of land_order (%(default)s)",
    )
    parser.set_defaults(runs_servers=True)


def run_local(arguments: argparse.Namespace) -> int:
    """Start servers and stack, say how to use them, and stay until Ctrl-C."""
    options = StackOptions(workers=arguments.workers, port=arguments.port, poller_concurrency=arguments.pollers)
    try:
        with (
            claimed_state() as publish,
            running_servers() as servers,
            running_stack(servers, options) as stack,
        ):
            publish(stack.state)
            print(_how_to_use(stack, servers), flush=True)
            return _stay(stack)
    except KeyboardInterrupt:
        print("\nended", flush=True)
        return ExitCode.ALL_WELL
    except StackRunsError as error:
        print(error, file=sys.stderr)
        return ExitCode.WRONG_USE
    except (ServerError, StackError) as error:
        print(error, file=sys.stderr)
        return ExitCode.UNREACHABLE


def add_token_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `seckill token`."""
    parser.add_argument("user", metavar="USER", help="becomes the token's sub")
    parser.add_argument("--valid-seconds", type=whole_number(1), default=3600, help="until it expires (%(default)s)")


def run_token(arguments: argparse.Namespace) -> int:
    """Print a token for the local stack that runs here."""
    secret = read_state().token_secret
    print(mint_token(secret, arguments.user, valid_seconds=arguments.valid_seconds))
    return ExitCode.ALL_WELL


def _stay(stack: Stack) -> int:
    while all(program.alive for program in stack.programs):
        time.sleep(HEALTH_CHECK_SECONDS)
    for program in stack.programs:
        if not program.alive:
            print(f"the {program.log.stem} ended: {program.last_words()}", file=sys.stderr)
    return ExitCode.UNREACHABLE


def _how_to_use(stack: Stack, servers: Servers) -> str:
    seckill = os.path.relpath(Path(sys.argv[0]).resolve())
    return f"""\
The local stack answers at {stack.base_url}

  reserve     {stack.options.workers} containers, each serving one call at a time
  land_order  {stack.options.poller_concurrency} containers
  reconcile   every {stack.options.reconcile_seconds:g} s, for what is older than {stack.options.stale_after_seconds} s
  database    {servers.database_url}
  Redis       {servers.redis_url}
  SQS         {servers.aws_endpoint_url}
  logs        {stack.log_directory}

In another terminal, in this directory:

  {seckill} sale open 1001 --total 100
  curl -i -X POST -H "Authorization: Bearer $({seckill} token alice)" {stack.base_url}/api/seckill/1001
  curl -i -X POST -H "X-Debug-User: bob" {stack.base_url}/api/seckill/1001
  {seckill} sale status 1001
  {seckill} audit

X-Debug-User stands for a token, here and nowhere else. Ctrl-C ends everything."""
