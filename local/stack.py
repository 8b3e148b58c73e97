"""The local stack: the functions as on AWS, with a front, pollers, a schedule and queues around them."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from local.environment import REGION, function_environment
from local.invocation import invoke
from local.programs import RECONCILE, Programs, StackError
from local.queues import Queues, created_queues
from local.servers import Servers, SupervisedProcess, free_port, temporary_directory
from local.stack_options import StackOptions
from local.state import StackState
from local.tokens import mint_token

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

__all__ = ["RECONCILE", "SALE_ADMIN", "Stack", "StackError", "StackOptions", "running_stack"]

SALE_ADMIN = "functions.sale_admin.handler.lambda_handler"


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A running stack."""

    base_url: str
    environment: dict[str, str]
    """Of all functions, before what only reserve or land_order gets."""
    queues: Queues
    options: StackOptions
    token_secret: str
    log_directory: Path
    """Holds the functions' logs while the stack runs, a file for each program and one for sale_admin."""
    gateway: SupervisedProcess
    poller: SupervisedProcess
    """Lands what the landing queue brings."""
    scheduler: SupervisedProcess | None
    """Runs the passes of reconcile; None without reconcile."""
    rebuild_poller: SupervisedProcess | None
    """Runs the rebuilds that the reconcile queue asks for; None without reconcile."""

    @property
    def programs(self) -> list[SupervisedProcess]:
        """All that must stay alive."""
        programs = (self.gateway, self.poller, self.scheduler, self.rebuild_poller)
        return [program for program in programs if program]

    @property
    def state(self) -> StackState:
        """What other programs need to know."""
        return StackState(
            base_url=self.base_url,
            environment=self.environment,
            token_secret=self.token_secret,
            log_directory=str(self.log_directory),
        )

    def token(self, user: str, *, valid_seconds: int = 3600) -> str:
        """A token for "Authorization: Bearer ..." that makes the caller `user`."""
        return mint_token(self.token_secret, user, valid_seconds=valid_seconds)

    def sale_admin(self, event: Mapping[str, Any]) -> Any:
        """The answer of the sale_admin function to `event`. Raises InvocationError."""
        return invoke(SALE_ADMIN, event, self.environment, log_directory=self.log_directory)


@contextlib.contextmanager
def running_stack(servers: Servers, options: StackOptions | None = None) -> Iterator[Stack]:
    """A stack on `servers` that answers, with queues of its own; everything it started ends with the block.

    Raises StackError or InvocationError when a part of it cannot be started.
    """
    options = options or StackOptions()
    with contextlib.ExitStack() as ending:
        directory = ending.enter_context(temporary_directory())
        queues = ending.enter_context(_queues(servers.aws_endpoint_url, options))
        environment = _environment(servers, queues, options)
        if options.migrate:
            _migrate(environment)
        programs = Programs(
            options=options,
            ending=ending,
            directory=directory,
            queues=queues,
            environment=environment,
            aws_endpoint_url=servers.aws_endpoint_url,
        )
        port = options.port or free_port()
        token_secret = secrets.token_hex(32)
        stack = Stack(
            base_url=f"http://127.0.0.1:{port}",
            environment=environment,
            queues=queues,
            options=options,
            token_secret=token_secret,
            log_directory=directory,
            poller=programs.start_poller(),
            rebuild_poller=programs.start_rebuild_poller() if options.reconcile else None,
            scheduler=programs.start_scheduler() if options.reconcile else None,
            gateway=programs.start_gateway(port, token_secret),
        )
        programs.await_ready()
        yield stack


def _environment(servers: Servers, queues: Queues, options: StackOptions) -> dict[str, str]:
    return function_environment(
        database_url=servers.database_url,
        redis_url=servers.redis_url,
        aws_endpoint_url=servers.aws_endpoint_url,
        queues=queues,
        stale_after_seconds=options.stale_after_seconds,
        landing_attempts=options.landing_attempts,
    ) | dict(options.environment)


def _migrate(environment: Mapping[str, str]) -> None:
    answer = invoke(SALE_ADMIN, {"action": "migrate"}, environment)
    if not answer["ok"]:
        raise StackError(f"the database cannot be migrated: {answer['error']}, {answer['detail']}")


def _queues(aws_endpoint_url: str, options: StackOptions) -> contextlib.AbstractContextManager[Queues]:
    client: SQSClient = boto3.client(
        "sqs",
        endpoint_url=aws_endpoint_url,
        region_name=REGION,
        aws_access_key_id="local",
        aws_secret_access_key="local",  # noqa: S106 - moto wants some, and checks none
        config=Config(proxies={}),  # a proxy that the shell names is not for this machine
    )
    # Stacks may share a moto server, so each has names of its own.
    return created_queues(
        client,
        f"seckill-{secrets.token_hex(4)}",
        visibility_seconds=options.visibility_seconds,
        max_receive_count=options.max_receive_count,
    )
