"""Keeps a function's containers running, each a process of its own that serves for as long as it lives."""

from __future__ import annotations

import logging
import multiprocessing
import multiprocessing.connection
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import NoReturn

from local.container import READY, Container, end_process_when, load_container, parent_gone

logger = logging.getLogger("local.containers")

# A container that dies again and again is replaced no more often than this.
RESTART_INTERVAL_SECONDS = 1.0
EXIT_CANNOT_LOAD = 3

Serve = Callable[[Container], NoReturn]


@dataclass(frozen=True, kw_only=True)
class Function:
    """What a container loads, and how long one invocation may take before its process is ended, in seconds."""

    handler: str
    region: str
    timeout_seconds: float


def keep_containers(function: Function, count: int, serve: Serve) -> NoReturn:
    """Keep `count` containers running until this process is ended; each loads the function, then serves.

    A container that dies, or overruns its time-out and is ended for it, is replaced. Ends this process when the handler
    cannot be loaded.
    """
    # Nothing but this loop runs here, so a fork copies no thread and no connection.
    processes = multiprocessing.get_context("fork")

    def start() -> BaseProcess:
        process = processes.Process(target=_run_container, args=(function, serve))
        process.start()
        return process

    running = [start() for _ in range(count)]
    while True:
        multiprocessing.connection.wait([process.sentinel for process in running])
        time.sleep(RESTART_INTERVAL_SECONDS)
        for process in [process for process in running if not process.is_alive()]:
            if process.exitcode == EXIT_CANNOT_LOAD:
                sys.exit(f"{function.handler} cannot be loaded")
            logger.warning("container %s ended with status %s, starting another", process.pid, process.exitcode)
            running.remove(process)
            process.close()
            running.append(start())


def _run_container(function: Function, serve: Serve) -> NoReturn:
    try:
        container = load_container(function.handler, region=function.region, timeout_seconds=function.timeout_seconds)
    except Exception:
        # Whatever stopped it from loading will stop the next one, too: starting it again would help nobody.
        logger.exception("%s cannot be loaded", function.handler)
        sys.exit(EXIT_CANNOT_LOAD)
    end_process_when(parent_gone(), container.is_overdue)
    logger.info(READY)
    serve(container)
