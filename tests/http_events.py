"""HTTP API events (payload 2.0) as API Gateway makes them, and what the reserve function answers to them."""

import itertools
import json
from dataclasses import dataclass
from typing import Any

from functions.reserve.handler import lambda_handler
from tests.containers import context

REQUEST_ID = "JKJaXmPLvHcESHA="
SALE = "/api/seckill/{skuId}"
LATEST = "/api/seckill/reservations"
RESERVATION = "/api/seckill/reservations/{preDeductKey}"

_requests = itertools.count(1)


@dataclass(frozen=True)
class HttpAnswer:
    """A function's answer; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def code(self) -> str:
        """The machine-readable word of a problem document."""
        return str(self.body["code"])


def post(sku_id: object, user: object = "alice", **more: Any) -> dict[str, Any]:
    """Reserve."""
    return event("POST", SALE, {"skuId": str(sku_id)}, claims={"sub": user}, **more)


def get_sale(sku_id: object, **more: Any) -> dict[str, Any]:
    """Look at the sale, without a token: the route may be public."""
    return event("GET", SALE, {"skuId": str(sku_id)}, **more)


def get_latest(sku_id: object | None, user: object = "alice") -> dict[str, Any]:
    """Look at one's reservation of a sale."""
    query = {} if sku_id is None else {"skuId": str(sku_id)}
    return event("GET", LATEST, {}, claims={"sub": user}, query=query)


def get_reservation(key: str, user: object = "alice") -> dict[str, Any]:
    """Look at one reservation."""
    return event("GET", RESERVATION, {"preDeductKey": key}, claims={"sub": user})


def event(
    method: str,
    template: str,
    parameters: dict[str, str],
    *,
    claims: dict[str, Any] | None = None,
    query: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
    body: str | None = None,
    base64: bool = False,
) -> dict[str, Any]:
    """An event of the route `method template`; without claims no authorizer ran. Absent parts are left out."""
    path = template
    for name, value in parameters.items():
        path = path.replace("{" + name + "}", value)
    route = f"{method} {template}"
    made: dict[str, Any] = {
        "version": "2.0",
        "routeKey": route,
        "rawPath": path,
        "rawQueryString": "&".join(f"{name}={value}" for name, value in (query or {}).items()),
        "headers": {"host": "shop.example", **(headers or {})},
        "requestContext": {
            "accountId": "123456789012",
            "apiId": "a1b2c3",
            "domainName": "shop.example",
            "domainPrefix": "shop",
            "http": {
                "method": method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "192.0.2.1",
                "userAgent": "test",
            },
            "requestId": f"{REQUEST_ID}{next(_requests)}",
            "routeKey": route,
            "stage": "$default",
            "time": "11/Nov/2026:12:00:00 +0000",
            "timeEpoch": 1794398400000,
        },
        "isBase64Encoded": base64,
    }
    if claims is not None:
        made["requestContext"]["authorizer"] = {"jwt": {"claims": claims, "scopes": None}}
    if query:
        made["queryStringParameters"] = query
    if parameters:
        made["pathParameters"] = parameters
    if body is not None:
        made["body"] = body
    return made


def call(request: dict[str, Any]) -> HttpAnswer:
    """The function's answer. Whatever it says, it has a correlation id, and an error is a problem document."""
    raw = lambda_handler(request, context())
    headers = {name.lower(): value for name, value in raw["headers"].items()}
    answer = HttpAnswer(raw["statusCode"], headers, json.loads(raw["body"]))
    assert headers["x-correlation-id"]
    if answer.status < 400:
        assert headers["content-type"] == "application/json"
    else:
        assert headers["content-type"] == "application/problem+json"
        assert answer.body["type"] == "about:blank"
        assert answer.body["status"] == answer.status
        assert answer.body["title"]
        assert answer.code.replace("_", "").isupper()
    assert ("retry-after" in headers) == (answer.status == 503)
    return answer
