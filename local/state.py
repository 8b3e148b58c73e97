"""How a second program finds the local stack that runs in this checkout: `.local/stack.json`."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
STATE_FILE = CHECKOUT / ".local" / "stack.json"


class NoStackError(Exception):
    """No local stack runs in this checkout."""


class StackRunsError(Exception):
    """A local stack already runs in this checkout, or is being started."""


@dataclass(frozen=True, kw_only=True)
class StackState:
    """What other programs need to know about the running stack."""

    base_url: str
    environment: dict[str, str]
    token_secret: str
    log_directory: str


@contextlib.contextmanager
def claimed_state(path: Path | None = None) -> Iterator[Callable[[StackState], None]]:
    """Claim `path` (STATE_FILE) for the length of the block; what it yields publishes the state there.

    The claim is a lock on the file, which goes with this process, however it ends; a process id would say no more
    after a crash than that somebody has it now. Raises StackRunsError when another process has the claim.
    """
    path = path or STATE_FILE
    path.parent.mkdir(exist_ok=True)
    # For this user's eyes only: it holds the token secret, and the database's password if there is one.
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StackRunsError(f"a local stack already runs here, see {path}") from error
        file.truncate(0)

        def publish(state: StackState) -> None:
            file.write(json.dumps(dataclasses.asdict(state), indent=2))
            file.flush()

        try:
            yield publish
        finally:
            path.unlink(missing_ok=True)


def read_state(path: Path | None = None) -> StackState:
    """The state of the stack that runs now. Raises NoStackError, also for what a killed stack left behind."""
    path = path or STATE_FILE
    try:
        with path.open() as file, contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            raise NoStackError("the last local stack was killed; start one with `seckill local`")
        text = path.read_text()
    except FileNotFoundError as error:
        raise NoStackError("no local stack runs here; start one with `seckill local`") from error
    if not text:
        raise NoStackError("the local stack is still being started")
    return StackState(**json.loads(text))
