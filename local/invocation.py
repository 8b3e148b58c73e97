"""One invocation of a function in a process of its own: a cold container that serves a single call.

    python -m local.invocation HANDLER ANSWER_FILE < event.json

The answer goes into a file, since a handler's logs and metrics go to standard output, as on Lambda.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from local.container import end_process_when, function_name, load_container, parent_gone
from local.environment import REGION, process_environment
from local.state import CHECKOUT

# sale_admin's longest work is a load of all buyers of a sale; on AWS it gets the same minute.
TIMEOUT_SECONDS = 60.0


class InvocationError(Exception):
    """The function raised or did not answer in time; the message ends with what it wrote."""


def invoke(
    handler: str, event: Mapping[str, Any], environment: Mapping[str, str], *, log_directory: Path | None = None
) -> Any:
    """The answer of `handler` to `event`, with the function's `environment`. Raises InvocationError.

    What it logs is appended to the function's own file in `log_directory`.
    """
    with tempfile.TemporaryDirectory(prefix="seckill-") as directory:
        answer = Path(directory, "answer.json")
        command = [sys.executable, "-m", "local.invocation", handler, str(answer)]
        try:
            done = subprocess.run(
                command,
                input=json.dumps(event),
                env=process_environment(environment),
                cwd=CHECKOUT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise InvocationError(f"{handler} did not answer within {TIMEOUT_SECONDS:.0f} s") from error
        if log_directory:
            _append(log_directory / f"{function_name(handler)}.log", done.stdout)
        if done.returncode != 0 or not answer.exists():
            raise InvocationError(f"{handler} failed:\n{done.stdout}")
        return json.loads(answer.read_text())


def _append(log: Path, text: str) -> None:
    # The directory goes with the stack, which may have ended meanwhile.
    with contextlib.suppress(FileNotFoundError), log.open("a") as file:
        file.write(text)


def main() -> None:
    """Runs in the process that `invoke` starts."""
    handler, answer = sys.argv[1:]
    end_process_when(parent_gone())
    container = load_container(handler, region=REGION, timeout_seconds=TIMEOUT_SECONDS)
    Path(answer).write_text(json.dumps(container.invoke(json.load(sys.stdin))))


if __name__ == "__main__":
    main()
