"""The local stack: the functions as on AWS, with a front, a poller and queues around them."""

from __future__ import annotations

import contextlib
import http.client
import secrets
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from local.container import READY
from local.environment import REGION, function_environment, process_environment
from local.invocation import invoke
from local.queues import Queues, created_queues
from local.servers import Servers, SupervisedProcess, free_port, temporary_directory, wait_until
from local.state import CHECKOUT
from local.tokens import mint_token

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

SALE_ADMIN = "functions.sale_admin.handler.lambda_handler"
# Lambda's own limit for the reserve function; the function answers within 3 s, this only must not come first.
RESERVE_TIMEOUT_SECONDS = 5.0
# Lambda's own limit for land_order, cut to what a short visibility time-out leaves.
LAND_ORDER_TIMEOUT_SECONDS = 10.0
# Loading a handler takes half a second; ten containers on a busy two-core machine take longest.
START_TIMEOUT_SECONDS = 60.0


class StackError(Exception):
    """The stack cannot be started; one line for a person."""


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """How a stack is laid out. Times are in seconds."""

    workers: int = 4
    """Containers of reserve behind the gateway, each serving one call at a time."""
    port: int | None = None
    """The gateway's; None takes a free one."""
    poller_concurrency: int = 2
    """Containers of land_order."""
    batch_size: int = 100
    batch_window_seconds: float = 0.2
    visibility_seconds: int = 30
    """Of the landing queue. A failed message comes back that long after it was received."""
    max_receive_count: int = 5
    """A message that was received so often without being deleted moves to the dead-letter queue."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Laid over the environment of all functions."""
    reserve_environment: Mapping[str, str] = field(default_factory=dict)
    """Laid over reserve's, last."""
    land_order_environment: Mapping[str, str] = field(default_factory=dict)
    """Laid over land_order's, last."""
    reserve_handler: str = "functions.reserve.handler.lambda_handler"
    land_order_handler: str = "functions.land_order.handler.lambda_handler"
    migrate: bool = True
    """Whether sale_admin brings the database's schema up to date before anything else starts."""


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
    """Holds gateway.log and poller.log while the stack runs."""
    gateway: SupervisedProcess
    poller: SupervisedProcess

    def token(self, user: str, *, valid_seconds: int = 3600) -> str:
        """A token for "Authorization: Bearer ..." that makes the caller `user`."""
        return mint_token(self.token_secret, user, valid_seconds=valid_seconds)

    def sale_admin(self, event: Mapping[str, Any]) -> Any:
        """The answer of the sale_admin function to `event`. Raises InvocationError."""
        return invoke(SALE_ADMIN, event, self.environment)


@contextlib.contextmanager
def running_stack(servers: Servers, options: StackOptions | None = None) -> Iterator[Stack]:
    """A stack on `servers` that answers, with queues of its own; everything it started ends with the block.

    Raises StackError or InvocationError when a part of it cannot be started.
    """
    options = options or StackOptions()
    client = boto3.client(
        "sqs",
        endpoint_url=servers.aws_endpoint_url,
        region_name=REGION,
        aws_access_key_id="local",
        aws_secret_access_key="local",  # noqa: S106 - moto wants some, and checks none
        config=Config(proxies={}),  # a proxy that the shell names is not for this machine
    )
    with contextlib.ExitStack() as ending:
        directory = ending.enter_context(temporary_directory())
        queues = ending.enter_context(_queues(client, options))
        environment = function_environment(
            database_url=servers.database_url,
            redis_url=servers.redis_url,
            aws_endpoint_url=servers.aws_endpoint_url,
            queues=queues,
        ) | dict(options.environment)
        if options.migrate:
            _migrate(environment)
        port = options.port or free_port()
        token_secret = secrets.token_hex(32)
        poller = _start_poller(directory, queues, environment, options, servers.aws_endpoint_url)
        ending.callback(poller.terminate)
        gateway = _start_gateway(directory, port, token_secret, environment, options)
        ending.callback(gateway.terminate)
        _await_ready(gateway, options.workers, port)
        _await_ready(poller, options.poller_concurrency)
        yield Stack(
            base_url=f"http://127.0.0.1:{port}",
            environment=environment,
            queues=queues,
            options=options,
            token_secret=token_secret,
            log_directory=directory,
            gateway=gateway,
            poller=poller,
        )


def _migrate(environment: Mapping[str, str]) -> None:
    answer = invoke(SALE_ADMIN, {"action": "migrate"}, environment)
    if not answer["ok"]:
        raise StackError(f"the database cannot be migrated: {answer['error']}, {answer['detail']}")


def _queues(client: SQSClient, options: StackOptions) -> contextlib.AbstractContextManager[Queues]:
    # Stacks may share a moto server, so each has names of its own.
    return created_queues(
        client,
        f"seckill-{secrets.token_hex(4)}",
        visibility_seconds=options.visibility_seconds,
        max_receive_count=options.max_receive_count,
    )


def _start_gateway(
    directory: Path, port: int, token_secret: str, environment: dict[str, str], options: StackOptions
) -> SupervisedProcess:
    flags = {
        "--port": port,
        "--workers": options.workers,
        "--handler": options.reserve_handler,
        "--token-secret": token_secret,
        "--region": REGION,
        "--timeout-seconds": RESERVE_TIMEOUT_SECONDS,
    }
    return _start("gateway", flags, directory, environment | dict(options.reserve_environment))


def _start_poller(
    directory: Path, queues: Queues, environment: dict[str, str], options: StackOptions, endpoint_url: str
) -> SupervisedProcess:
    flags = {
        "--queue-url": queues.landing_url,
        "--queue-arn": queues.landing_arn,
        "--endpoint-url": endpoint_url,
        "--handler": options.land_order_handler,
        "--concurrency": options.poller_concurrency,
        "--batch-size": options.batch_size,
        "--window-seconds": options.batch_window_seconds,
        "--timeout-seconds": min(LAND_ORDER_TIMEOUT_SECONDS, options.visibility_seconds - options.batch_window_seconds),
        "--visibility-seconds": options.visibility_seconds,
    }
    return _start("poller", flags, directory, environment | dict(options.land_order_environment))


def _start(
    name: str, flags: Mapping[str, object], directory: Path, environment: Mapping[str, str]
) -> SupervisedProcess:
    command = [sys.executable, "-m", f"local.{name}"]
    for flag, value in flags.items():
        command += [flag, str(value)]
    log = directory / f"{name}.log"
    return SupervisedProcess(command, log=log, env=process_environment(environment), cwd=CHECKOUT)


def _await_ready(process: SupervisedProcess, containers: int, port: int | None = None) -> None:
    """Returns when all containers have loaded their handler and the port, if there is one, answers."""

    def ready() -> bool:
        loaded = process.log.read_text(errors="replace").count(READY) >= containers
        return loaded and (port is None or _answers(port))

    in_time = wait_until(lambda: not process.alive or ready(), START_TIMEOUT_SECONDS)
    if not in_time or not process.alive:
        problem = "ended at once" if in_time else f"was not ready within {START_TIMEOUT_SECONDS:.0f} s"
        raise StackError(f"the local {process.log.stem} {problem}: {process.last_words()}")


def _answers(port: int) -> bool:
    """Whether a gateway answers on `port`: API Gateway's request id is on everything it says."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/")
        return connection.getresponse().getheader("apigw-requestid") is not None
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
