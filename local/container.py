"""A function's container: the process that has loaded one handler and calls it, one event at a time."""

from __future__ import annotations

import importlib
import io
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from local.lambda_context import LambdaContext

Handler = Callable[[Any, Any], Any]

# How late a container may notice that its parent is gone or its time is up. Short, since nothing may outlive
# the stack; five wake-ups a second cost nothing measurable.
WATCH_INTERVAL_SECONDS = 0.2
# The line that a container logs when it has loaded its handler and takes events.
READY = "container ready"


class Container:
    """One loaded handler, and what its invocations are told about themselves. One call at a time."""

    def __init__(self, handler: Handler, *, function_name: str, region: str, timeout_seconds: float) -> None:
        self._handler = handler
        self._function_name = function_name
        self._region = region
        self._timeout_seconds = timeout_seconds
        self._running: LambdaContext | None = None

    def invoke(self, event: object) -> object:
        """The handler's answer to `event`; whatever it raises comes through."""
        self._running = LambdaContext.starting_now(self._function_name, self._region, self._timeout_seconds)
        try:
            return self._handler(event, self._running)
        finally:
            self._running = None

    def is_overdue(self) -> bool:
        """True while an invocation runs that has used up its time; Lambda ends the process then."""
        running = self._running
        return running is not None and running.get_remaining_time_in_millis() == 0


def load_container(handler: str, *, region: str, timeout_seconds: float) -> Container:
    """Load the handler that Lambda would know as, say, "functions.reserve.handler.lambda_handler".

    Raises ImportError or AttributeError when there is no such handler.
    """
    # What Lambda's runtime itself puts into a function's environment, as far as anything may look at it.
    os.environ["AWS_LAMBDA_FUNCTION_NAME"] = function_name(handler)
    os.environ["AWS_LAMBDA_INITIALIZATION_TYPE"] = "on-demand"
    os.environ["AWS_REGION"] = region
    os.environ["TZ"] = ":UTC"
    time.tzset()
    # A line in a log is written as a whole, whatever other containers write to the same file.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    module_name, _, attribute = handler.rpartition(".")
    function = getattr(importlib.import_module(module_name), attribute)
    return Container(
        function,
        function_name=function_name(handler),
        region=region,
        timeout_seconds=timeout_seconds,
    )


def function_name(handler: str) -> str:
    """The name of the package that holds the handler's module; a module without a package names itself."""
    return handler.split(".")[-3:][0]


def log_to_stderr() -> None:
    """Log what this package has to say, and warnings of all else. A function's own logs go to stdout."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(process)d %(message)s")
    logging.getLogger("local").setLevel(logging.INFO)


def parent_gone() -> Callable[[], bool]:
    """A condition for `end_process_when`: this process's present parent has ended, by whatever means."""
    parent = os.getppid()
    return lambda: os.getppid() != parent


def end_process_when(*conditions: Callable[[], bool]) -> None:
    """End this process at once, from a thread of its own, when one of the conditions holds."""

    def watch() -> None:
        # Runs as long as the process does.
        while not any(condition() for condition in conditions):
            time.sleep(WATCH_INTERVAL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="end-process-when", daemon=True).start()
