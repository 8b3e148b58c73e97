"""What API Gateway's HTTP API does to a request and an answer: routes, payload-2.0 events, proxy answers.

Pure: no socket, no server. Sources: AWS API Gateway developer guide, "Create AWS Lambda proxy integrations
for HTTP APIs" and "Create routes for HTTP APIs".
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qsl

from local.lambda_context import ACCOUNT_ID

API_ID = "local"
STAGE = "$default"

# API Gateway hands these on as text and everything else in base64.
TEXT_BODY = re.compile(r"(text/|application/([\w.+-]+\+)?(json|xml|javascript)\b)", re.IGNORECASE)
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class MalformedAnswerError(Exception):
    """The function's answer is none that API Gateway could turn into an HTTP response."""


@dataclass(frozen=True)
class Route:
    """A method and a path template; `{name}` takes exactly one non-empty segment."""

    method: str
    template: str
    public: bool = False

    @property
    def key(self) -> str:
        """As in the event's `routeKey`: "POST /api/seckill/{skuId}"."""
        return f"{self.method} {self.template}"

    def path_parameters(self, path: str) -> dict[str, str] | None:
        """The template's parameters if `path` fits it, else None."""
        parts, wanted = path.split("/"), self.template.split("/")
        if len(parts) != len(wanted):
            return None
        parameters = {}
        for part, want in zip(parts, wanted, strict=True):
            if want.startswith("{") and part:
                parameters[want[1:-1]] = part
            elif part != want:
                return None
        return parameters


# Literal segments before variables: API Gateway takes the most specific route, this list the first that fits.
ROUTES = (
    Route("GET", "/api/seckill/reservations"),
    Route("GET", "/api/seckill/reservations/{preDeductKey}"),
    Route("GET", "/api/seckill/{skuId}", public=True),
    Route("POST", "/api/seckill/{skuId}"),
)


def find_route(method: str, path: str) -> tuple[Route, dict[str, str]] | None:
    """The route for a request and its path parameters, or None (404)."""
    for route in ROUTES:
        if route.method == method and (parameters := route.path_parameters(path)) is not None:
            return route, parameters
    return None


@dataclass(frozen=True, kw_only=True)
class Request:
    """An HTTP request: path decoded, header names in lower case, repeated headers joined by commas."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    protocol: str
    source_ip: str
    request_id: str


def to_event(
    request: Request, route: Route, parameters: dict[str, str], claims: dict[str, str] | None
) -> dict[str, object]:
    """The payload-2.0 event, without what the request doesn't have: cookies, query, parameters, body."""
    headers = dict(request.headers)
    # Cookies travel in a list of their own, not among the headers.
    cookies = [cookie.strip() for cookie in headers.pop("cookie", "").split(";") if cookie.strip()]
    event: dict[str, object] = {
        "version": "2.0",
        "routeKey": route.key,
        "rawPath": request.path,
        "rawQueryString": request.query,
        "headers": headers,
        "requestContext": _request_context(request, route, claims),
        "isBase64Encoded": False,
    }
    if cookies:
        event["cookies"] = cookies
    if query := _query_parameters(request.query):
        event["queryStringParameters"] = query
    if parameters:
        event["pathParameters"] = parameters
    if request.body:
        event["body"], event["isBase64Encoded"] = _event_body(request)
    return event


def _request_context(request: Request, route: Route, claims: dict[str, str] | None) -> dict[str, object]:
    domain = request.headers.get("host", "localhost").partition(":")[0]
    now = time.time()
    context: dict[str, object] = {
        "accountId": ACCOUNT_ID,
        "apiId": API_ID,
        "domainName": domain,
        "domainPrefix": domain.partition(".")[0],
        "http": {
            "method": request.method,
            "path": request.path,
            "protocol": request.protocol,
            "sourceIp": request.source_ip,
            "userAgent": request.headers.get("user-agent", ""),
        },
        "requestId": request.request_id,
        "routeKey": route.key,
        "stage": STAGE,
        "time": time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now)),
        "timeEpoch": int(now * 1000),
    }
    if claims is not None:
        context["authorizer"] = {"jwt": {"claims": claims, "scopes": None}}
    return context


def _query_parameters(query: str) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        parameters[name] = f"{parameters[name]},{value}" if name in parameters else value
    return parameters


def _event_body(request: Request) -> tuple[str, bool]:
    if TEXT_BODY.match(request.headers.get("content-type", "")):
        try:
            return request.body.decode(), False
        except UnicodeDecodeError:
            pass  # text by name only: it travels like any other bytes
    return base64.b64encode(request.body).decode(), True


@dataclass(frozen=True)
class Response:
    """An HTTP response, ready to be sent."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def status_line(self) -> str:
        """ "202 Accepted"; a status without a name keeps its number alone."""
        try:
            return f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            return f"{self.status} "


def message_response(status: HTTPStatus, message: str) -> Response:
    """One of API Gateway's own answers: {"message": "Not Found"}."""
    body = json.dumps({"message": message}, separators=(",", ":")).encode()
    return Response(status, [("content-type", "application/json")], body)


def to_response(answer: object) -> Response:
    """The HTTP response for a function's answer. Raises MalformedAnswerError.

    Without a statusCode the whole answer is the body, 200, application/json: API Gateway infers the format.
    """
    if not isinstance(answer, dict) or "statusCode" not in answer:
        return _inferred_response(answer)
    status = answer["statusCode"]
    if not isinstance(status, int) or isinstance(status, bool) or not 100 <= status <= 599:
        raise MalformedAnswerError(f"statusCode is {status!r}")
    headers = [_header(name, value) for name, value in _mapping(answer.get("headers")).items()]
    if not any(name == "content-type" for name, _ in headers):
        headers.append(("content-type", "text/plain;charset=UTF-8"))
    cookies = answer.get("cookies") or []
    if not isinstance(cookies, list):
        raise MalformedAnswerError(f"cookies is {cookies!r}")
    headers += [_header("set-cookie", cookie) for cookie in cookies]
    # The server counts the body itself.
    headers = [header for header in headers if header[0] != "content-length"]
    return Response(status, headers, _response_body(answer.get("body"), answer.get("isBase64Encoded", False)))


def _inferred_response(answer: object) -> Response:
    try:
        body = answer if isinstance(answer, str) else json.dumps(answer)
    except (TypeError, ValueError) as error:
        raise MalformedAnswerError(str(error)) from error
    return Response(HTTPStatus.OK, [("content-type", "application/json")], body.encode())


def _mapping(value: object) -> dict[object, object]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MalformedAnswerError(f"headers is {value!r}")
    return value


def _header(name: object, value: object) -> tuple[str, str]:
    if isinstance(value, bool):
        value = "true" if value else "false"
    elif isinstance(value, int | float):
        value = str(value)
    if not isinstance(name, str) or not isinstance(value, str):
        raise MalformedAnswerError(f"header {name!r} is {value!r}")
    if not HEADER_NAME.fullmatch(name) or not HEADER_VALUE.fullmatch(value):
        raise MalformedAnswerError(f"header {name!r} holds characters that no header may hold")
    return name.lower(), value


def _response_body(body: object, is_base64: object) -> bytes:
    if body is None:
        return b""
    if not isinstance(body, str) or not isinstance(is_base64, bool):
        raise MalformedAnswerError("body is no string, or isBase64Encoded no boolean")
    if not is_base64:
        return body.encode()
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise MalformedAnswerError(f"body is not base64: {error}") from error
