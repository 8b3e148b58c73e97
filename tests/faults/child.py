"""A process forked from this warm one, and what it says to us."""

import multiprocessing
import os
import signal
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Self

# Everything a child does is bounded by its own deadlines, far below this.
CHILD_SECONDS = 60


class Parent:
    """What a child sees of its parent."""

    def __init__(self, end: Connection) -> None:
        self._end = end

    def tell(self, what: Any) -> None:
        """Something that the world has seen of this process from now on, such as an answer."""
        self._end.send(("said", what))

    def reached(self, session: int | None) -> None:
        """Stand at the point until told to go on."""
        self._end.send(("reached", session))
        self._end.recv()

    def failed(self, trace: str) -> None:
        """Nothing more is to be expected."""
        self._end.send(("failed", trace))


class Child:
    """`with Child(work) as child:` runs `work(parent)` in a child process, which never outlives the block or us."""

    def __init__(self, work: Callable[[Parent], None]) -> None:
        self.said: list[Any] = []
        self.session: int | None = None
        self.exit_status: int | None = None
        self._end, other_end = multiprocessing.Pipe()
        with warnings.catch_warnings():
            # A test runner's threads only wait for messages, and the child ends by _exit without touching them.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid == 0:
            self._end.close()
            _run(work, Parent(other_end))
        other_end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()  # a child at its point ends here, as it does when this process dies
        if self.exit_status is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def until_point(self) -> bool:
        """Listen until the child stands at its point; False when it ended before."""
        while (heard := self._hear()) is not None:
            match heard:
                case ("reached", session):
                    self.session = session
                    return True
                case ("said", what):
                    self.said.append(what)
                case ("failed", trace):
                    raise AssertionError(f"in the child process:\n{trace}")
        self.exit_status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return False

    def go_on(self) -> None:
        """Let it leave its point, and listen until it ends."""
        self._end.send("go on")
        assert not self.until_point(), "a run comes to its point once"

    def _hear(self) -> Any:
        assert self._end.poll(CHILD_SECONDS), "a child process says nothing"
        try:
            return self._end.recv()
        except (EOFError, ConnectionResetError):
            return None


def _run(work: Callable[[Parent], None], parent: Parent) -> None:
    status = 1
    try:
        work(parent)
        status = 0
    except (EOFError, BrokenPipeError):
        pass  # the parent is gone
    except BaseException:  # noqa: BLE001  nothing may unwind into the parent's test
        parent.failed(traceback.format_exc())
    finally:
        os._exit(status)
