"""The HTTP front: API Gateway and the reserve function's containers in one program.

    python -m local.gateway --port 8080 --workers 4 --handler functions.reserve.handler.lambda_handler ...

As on Lambda, a container serves one call at a time: every worker is a process with a single Python thread
that calls the handler. Unlike on Lambda, a connection stays with the worker that accepted it, and a call
that exceeds the function's time-out is not cut off: ending the process would cut off everybody else's
connections, too.
"""

from __future__ import annotations

import argparse
import base64
import functools
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from granian import Granian
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels

from local.container import (
    READY,
    Container,
    end_process_when,
    load_container,
    log_to_stderr,
    parent_gone,
)
from local.gateway_events import (
    MalformedAnswerError,
    Request,
    Response,
    find_route,
    message_response,
    to_event,
    to_response,
)
from local.open_files import raise_open_files_limit
from local.tokens import InvalidTokenError, claims_of

logger = logging.getLogger("local.gateway")

# The largest event that Lambda takes; API Gateway refuses larger bodies before anybody reads them.
BODY_LIMIT_BYTES = 6 * 1024 * 1024
# Every worker may hold all connections of a 5,200-user storm, however unevenly the kernel deals them out.
CONNECTIONS_PER_WORKER = 8192
# Waiting connections per worker's listening socket; the kernel cuts it down to net.core.somaxconn.
LISTEN_BACKLOG = 4096
# A shopper's connection may idle between two tries through the longest ramp; API Gateway keeps one longer still.
IDLE_MILLISECONDS = 120_000
# How long a worker may take to finish its calls when the gateway stops: as long as a call may take (3 s).
WORKER_STOP_SECONDS = 3
DEBUG_USER_HEADER = "x-debug-user"


@dataclass(frozen=True, kw_only=True)
class GatewayOptions:
    """What a worker needs to know. `timeout_seconds` is the function's."""

    handler: str
    token_secret: str
    region: str
    timeout_seconds: float


class Gateway:
    """The WSGI application of one worker."""

    def __init__(self, container: Container, token_secret: str) -> None:
        self._container = container
        self._token_secret = token_secret

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request_id = base64.b64encode(os.urandom(11)).decode()
        response = self._respond(environ, request_id)
        start_response(response.status_line, [*response.headers, ("apigw-requestid", request_id)])
        return [response.body]

    def _respond(self, environ: dict[str, Any], request_id: str) -> Response:
        body = environ["wsgi.input"].read(BODY_LIMIT_BYTES + 1)
        if len(body) > BODY_LIMIT_BYTES:
            return message_response(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Request Entity Too Large")
        request = _request(environ, body, request_id)
        found = find_route(request.method, request.path)
        if found is None:
            return message_response(HTTPStatus.NOT_FOUND, "Not Found")
        route, parameters = found
        try:
            claims = None if route.public else self._claims(request)
        except InvalidTokenError:
            unauthorized = message_response(HTTPStatus.UNAUTHORIZED, "Unauthorized")
            unauthorized.headers.append(("www-authenticate", "Bearer"))
            return unauthorized
        return self._answer(to_event(request, route, parameters, claims))

    def _claims(self, request: Request) -> dict[str, str]:
        """The caller's claims: from a token or, without one, from the debug header that exists only here.

        The server passes only ASCII headers on; a user of another name needs a token.
        """
        authorization = request.headers.get("authorization")
        if authorization is not None:
            return claims_of(self._token_secret, authorization)
        user = request.headers.get(DEBUG_USER_HEADER)
        if user is None:
            raise InvalidTokenError("no token")
        return {"sub": user}

    def _answer(self, event: dict[str, object]) -> Response:
        try:
            return to_response(self._container.invoke(event))
        except MalformedAnswerError:
            logger.exception("the function's answer is malformed")
        except Exception:
            # Whatever a handler raises, API Gateway says no more than this to the caller.
            logger.exception("the function raised")
        return message_response(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal Server Error")


def _request(environ: dict[str, Any], body: bytes, request_id: str) -> Request:
    """The request with the headers that API Gateway adds. WSGI's strings are latin-1 in disguise."""
    headers = {
        name[5:].replace("_", "-").lower(): value
        for name, value in environ.items()
        if name.startswith("HTTP_") and isinstance(value, str)
    }
    for name, header in (("CONTENT_TYPE", "content-type"), ("CONTENT_LENGTH", "content-length")):
        if environ.get(name):
            headers[header] = environ[name]
    source_ip = environ["REMOTE_ADDR"]
    headers["x-forwarded-for"] = source_ip
    headers["x-forwarded-port"] = environ["SERVER_PORT"]
    headers["x-forwarded-proto"] = environ["wsgi.url_scheme"]
    headers["x-amzn-trace-id"] = f"Root=1-{int(time.time()):08x}-{secrets.token_hex(12)}"
    return Request(
        method=environ["REQUEST_METHOD"],
        path=environ["PATH_INFO"].encode("latin-1").decode(errors="replace"),
        query=environ.get("QUERY_STRING", ""),
        headers=headers,
        body=body,
        protocol=environ["SERVER_PROTOCOL"],
        source_ip=source_ip,
        request_id=request_id,
    )


def load_gateway(options: GatewayOptions) -> Gateway:
    """Runs in each worker before it serves; the handler's module is imported here, as in Lambda's init."""
    end_process_when(parent_gone())
    log_to_stderr()
    container = load_container(options.handler, region=options.region, timeout_seconds=options.timeout_seconds)
    logger.info(READY)
    return Gateway(container, options.token_secret)


def serve(port: int, workers: int, options: GatewayOptions) -> None:
    """Serve on 127.0.0.1 until SIGTERM or SIGINT."""
    # 1024 beside the connections: logs, sockets to Redis, MySQL and SQS.
    raise_open_files_limit(CONNECTIONS_PER_WORKER + 1024)
    server = Granian(
        "local.gateway",
        address="127.0.0.1",
        port=port,
        interface=Interfaces.WSGI,
        http=HTTPModes.http1,
        websockets=False,
        workers=workers,
        blocking_threads=1,
        backlog=LISTEN_BACKLOG,
        backpressure=CONNECTIONS_PER_WORKER,
        http1_settings=HTTP1Settings(header_read_timeout=IDLE_MILLISECONDS),
        respawn_failed_workers=True,
        workers_kill_timeout=WORKER_STOP_SECONDS,
        log_level=LogLevels.error,
    )
    server.serve(target_loader=functools.partial(load_gateway, options), wrap_loader=False)


def main() -> None:
    """The command line that the stack starts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--handler", required=True)
    parser.add_argument("--token-secret", required=True)
    parser.add_argument("--region", required=True)
    parser.add_argument("--timeout-seconds", type=float, required=True)
    arguments = parser.parse_args()
    options = GatewayOptions(
        handler=arguments.handler,
        token_secret=arguments.token_secret,
        region=arguments.region,
        timeout_seconds=arguments.timeout_seconds,
    )
    serve(arguments.port, arguments.workers, options)


if __name__ == "__main__":
    main()
