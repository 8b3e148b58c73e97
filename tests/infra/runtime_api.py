"""Runs a built function as Lambda does: a clean process, Lambda's runtime interface client, a small local Runtime API.

The API is that of Lambda's documentation, "Using the Lambda runtime API for custom runtimes": the client asks for the
next event and posts the answer or the error.
"""

import json
import os
import queue
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# A cold start on a busy machine takes seconds, not minutes.
ANSWER_SECONDS = 60
LAMBDA_SECONDS = 60


class FunctionFailed(Exception):
    """The function raised, or could not even be imported; the message is what it posted."""


class RuntimeApi(ThreadingHTTPServer):
    """Hands out events one by one and takes the answers."""

    daemon_threads = True

    def __init__(self, log: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Calls)
        self.log = log
        self.ended: Callable[[], bool] = lambda: False
        self.events: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.answers: queue.Queue[tuple[bool, bytes]] = queue.Queue()
        self.closing = threading.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def invoke(self, event: Any) -> Any:
        """The function's answer. Raises FunctionFailed."""
        self.events.put((str(uuid.uuid4()), event))
        give_up = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < give_up and not self.ended():
            try:
                good, body = self.answers.get(timeout=0.2)
            except queue.Empty:
                continue
            if not good:
                raise FunctionFailed(body.decode())
            return json.loads(body)
        raise FunctionFailed(f"no answer; the log:\n{self.log.read_text()[-2000:]}")


class _Calls(BaseHTTPRequestHandler):
    server: RuntimeApi
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        while not self.server.closing.is_set():
            try:
                request_id, event = self.server.events.get(timeout=0.2)
            except queue.Empty:
                continue
            self.send_response(200)
            self.send_header("Lambda-Runtime-Aws-Request-Id", request_id)
            self.send_header("Lambda-Runtime-Deadline-Ms", str(int((time.time() + LAMBDA_SECONDS) * 1000)))
            # Without these two the client's native part crashes.
            self.send_header("Lambda-Runtime-Trace-Id", "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700;Sampled=0")
            self.send_header("Content-Type", "application/json")
            self.send_header("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:eu-west-1:123456789012:function:f")
            self._end(json.dumps(event).encode())
            return
        self.close_connection = True

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else self._chunks()
        self.server.answers.put((self.path.endswith("/response"), body))
        self.send_response(202)
        self._end(b"{}")

    def _chunks(self) -> bytes:
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _end(self, body: bytes) -> None:
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def running_function(
    python: str, handler: str, *, paths: list[Path], environment: Mapping[str, str], log: Path
) -> Iterator[RuntimeApi]:
    """The function behind `handler`, started in the first of `paths`, importing from them in their order only."""
    api = RuntimeApi(log)
    thread = threading.Thread(target=api.serve_forever, daemon=True)
    thread.start()
    clean = {
        "AWS_LAMBDA_RUNTIME_API": api.address,
        "AWS_LAMBDA_FUNCTION_NAME": "f",
        "AWS_LAMBDA_FUNCTION_VERSION": "1",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_FORMAT": "JSON",
        "AWS_EXECUTION_ENV": "AWS_Lambda_python3.13",
        "LAMBDA_TASK_ROOT": str(paths[0]),
        "_HANDLER": handler,
        "LANG": "en_US.UTF-8",
        "TZ": ":UTC",
        "PATH": os.defpath,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONDONTWRITEBYTECODE": "1",  # /var/task and /opt are read-only on Lambda
        **environment,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [python, "-m", "awslambdaric", handler], cwd=paths[0], env=clean, stdout=output, stderr=output
        )
        api.ended = lambda: process.poll() is not None
        try:
            yield api
        finally:
            process.kill()
            process.wait()
            api.closing.set()
            api.shutdown()
            api.server_close()
