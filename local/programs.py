"""The programs that a stack is made of: `python -m local.<module>`, supervised, each with a log of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from local.container import READY
from local.environment import REGION, process_environment
from local.poller import EventSource
from local.queues import RECONCILE_VISIBILITY_SECONDS, Queues
from local.servers import SupervisedProcess, wait_until
from local.stack_options import StackOptions
from local.state import CHECKOUT

RECONCILE = "functions.reconcile.handler.lambda_handler"
# Lambda's own limit for the reserve function; the function answers within 3 s, this only must not come first.
RESERVE_TIMEOUT_SECONDS = 5.0
# Lambda's own limit for land_order, cut to what a short visibility time-out leaves.
LAND_ORDER_TIMEOUT_SECONDS = 10.0
# Lambda's own limit for reconcile: a pass bounds itself by what is left of it.
RECONCILE_TIMEOUT_SECONDS = 60.0
# Rebuild requests are few, and none waits for others to come.
REBUILD_BATCH_SIZE = 10
# Loading a handler takes half a second; a dozen containers on a busy two-core machine take longest.
START_TIMEOUT_SECONDS = 60.0


class StackError(Exception):
    """The stack cannot be started; one line for a person."""


@dataclass(frozen=True, kw_only=True)
class Programs:
    """Starts a stack's programs; each ends with `ending`."""

    options: StackOptions
    ending: contextlib.ExitStack
    directory: Path
    """Where the logs are written."""
    queues: Queues
    environment: Mapping[str, str]
    """Of all functions."""
    aws_endpoint_url: str
    """The pollers' own; a function may have been given another one."""
    _started: list[_Program] = field(default_factory=list)

    def start_gateway(self, port: int, token_secret: str) -> SupervisedProcess:
        """The front, with the containers of reserve."""
        flags = {
            "port": port,
            "workers": self.options.workers,
            "handler": self.options.reserve_handler,
            "token_secret": token_secret,
            "region": REGION,
            "timeout_seconds": RESERVE_TIMEOUT_SECONDS,
        }
        own = self.options.reserve_environment
        return self._start("gateway", flags, own, containers=self.options.workers, port=port)

    def start_poller(self) -> SupervisedProcess:
        """land_order behind the landing queue."""
        options = self.options
        source = EventSource(
            queue_url=self.queues.landing_url,
            queue_arn=self.queues.landing_arn,
            endpoint_url=self.aws_endpoint_url,
            handler=options.land_order_handler,
            batch_size=options.batch_size,
            window_seconds=options.batch_window_seconds,
            timeout_seconds=min(LAND_ORDER_TIMEOUT_SECONDS, options.visibility_seconds - options.batch_window_seconds),
            visibility_seconds=options.visibility_seconds,
        )
        flags = dataclasses.asdict(source) | {"concurrency": options.poller_concurrency}
        return self._start("poller", flags, options.land_order_environment, containers=options.poller_concurrency)

    def start_rebuild_poller(self) -> SupervisedProcess:
        """reconcile behind its queue; one container."""
        source = EventSource(
            queue_url=self.queues.reconcile_url,
            queue_arn=self.queues.reconcile_arn,
            endpoint_url=self.aws_endpoint_url,
            handler=RECONCILE,
            batch_size=REBUILD_BATCH_SIZE,
            window_seconds=0,
            timeout_seconds=RECONCILE_TIMEOUT_SECONDS,
            visibility_seconds=RECONCILE_VISIBILITY_SECONDS,
        )
        flags = dataclasses.asdict(source) | {"concurrency": 1}
        return self._start("poller", flags, {}, containers=1, log="rebuild_poller")

    def start_scheduler(self) -> SupervisedProcess:
        """reconcile behind its schedule; one container."""
        flags = {
            "handler": RECONCILE,
            "region": REGION,
            "interval_seconds": self.options.reconcile_seconds,
            "timeout_seconds": RECONCILE_TIMEOUT_SECONDS,
        }
        return self._start("scheduler", flags, {}, containers=1)

    def await_ready(self) -> None:
        """Returns when every container has loaded its handler and every port answers.

        Raises StackError when a program has ended, or takes too long.
        """
        for program in self._started:
            program.await_ready()

    def _start(
        self,
        module: str,
        flags: Mapping[str, object],
        own_environment: Mapping[str, str],
        *,
        containers: int,
        port: int | None = None,
        log: str | None = None,
    ) -> SupervisedProcess:
        command = [sys.executable, "-m", f"local.{module}"]
        for flag, value in flags.items():
            command += [f"--{flag.replace('_', '-')}", str(value)]
        process = SupervisedProcess(
            command,
            log=self.directory / f"{log or module}.log",
            env=process_environment({**self.environment, **own_environment}),
            cwd=CHECKOUT,
        )
        self.ending.callback(process.terminate)
        self._started.append(_Program(process, containers, port))
        return process


@dataclass(frozen=True)
class _Program:
    process: SupervisedProcess
    containers: int
    port: int | None

    def await_ready(self) -> None:
        process = self.process
        in_time = wait_until(lambda: not process.alive or self._ready(), START_TIMEOUT_SECONDS)
        if not in_time or not process.alive:
            problem = "ended at once" if in_time else f"was not ready within {START_TIMEOUT_SECONDS:.0f} s"
            raise StackError(f"the local {process.log.stem} {problem}: {process.last_words()}")

    def _ready(self) -> bool:
        loaded = self.process.log.read_text(errors="replace").count(READY) >= self.containers
        return loaded and (self.port is None or _answers(self.port))


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
