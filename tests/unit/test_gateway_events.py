"""The local front says what API Gateway says: events in, HTTP answers out."""

import base64
import io
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest

from local.container import Container
from local.gateway import BODY_LIMIT_BYTES, Gateway
from local.gateway_events import find_route
from local.tokens import mint_token

SECRET = "a secret of at least thirty-two bytes"
Handler = Callable[[Any, Any], Any]


def call(handler: Handler, environ: dict[str, Any]) -> tuple[str, dict[str, str], bytes]:
    """What one request gets from a gateway in front of `handler`."""
    container = Container(handler, function_name="reserve", region="us-east-1", timeout_seconds=5)
    said: list[Any] = []
    body = Gateway(container, SECRET)(environ, lambda status, headers: said.extend((status, headers)))
    return said[0], dict(said[1]), b"".join(body)


def request(method: str, path: str, body: bytes = b"", **more: str) -> dict[str, Any]:
    """A WSGI environment as the server makes it."""
    return {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "SERVER_PORT": "8080",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "HTTP_HOST": "www.example.test:8080",
        **more,
    }


def event_for(environ: dict[str, Any]) -> dict[str, Any]:
    """The event that a handler gets for a request."""
    events: list[dict[str, Any]] = []
    call(lambda event, context: events.append(event), environ)
    return events[0]


def test_an_event_has_the_shape_of_payload_format_2_0() -> None:
    event = event_for(
        request(
            "POST",
            "/api/seckill/1001",
            b"{}",
            QUERY_STRING="a=1&a=2&b=%20x&c",
            CONTENT_TYPE="application/json",
            CONTENT_LENGTH="2",
            HTTP_COOKIE="k=v; z=1",
            HTTP_USER_AGENT="curl",
            HTTP_X_DEBUG_USER="alice",
        )
    )
    context = event.pop("requestContext")
    assert event.pop("headers").items() >= {
        ("host", "www.example.test:8080"),
        ("content-type", "application/json"),
        ("content-length", "2"),
        ("user-agent", "curl"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-port", "8080"),
        ("x-forwarded-proto", "http"),
    }
    assert event == {
        "version": "2.0",
        "routeKey": "POST /api/seckill/{skuId}",
        "rawPath": "/api/seckill/1001",
        "rawQueryString": "a=1&a=2&b=%20x&c",
        "cookies": ["k=v", "z=1"],
        "queryStringParameters": {"a": "1,2", "b": " x", "c": ""},
        "pathParameters": {"skuId": "1001"},
        "body": "{}",
        "isBase64Encoded": False,
    }
    assert abs(context.pop("timeEpoch") / 1000 - time.time()) < 5
    assert time.strptime(context.pop("time"), "%d/%b/%Y:%H:%M:%S +0000")
    assert len(context.pop("requestId")) == 16
    assert context == {
        "accountId": "123456789012",
        "apiId": "local",
        "domainName": "www.example.test",
        "domainPrefix": "www",
        "http": {
            "method": "POST",
            "path": "/api/seckill/1001",
            "protocol": "HTTP/1.1",
            "sourceIp": "127.0.0.1",
            "userAgent": "curl",
        },
        "routeKey": "POST /api/seckill/{skuId}",
        "stage": "$default",
        "authorizer": {"jwt": {"claims": {"sub": "alice"}, "scopes": None}},
    }


def test_what_a_request_does_not_have_is_left_out_of_the_event() -> None:
    event = event_for(request("GET", "/api/seckill/reservations", HTTP_X_DEBUG_USER="alice"))
    assert not event.keys() & {"body", "cookies", "queryStringParameters", "pathParameters"}


def test_cookies_are_not_among_the_headers() -> None:
    assert "cookie" not in event_for(request("GET", "/api/seckill/1", HTTP_COOKIE="k=v"))["headers"]


@pytest.mark.parametrize(
    ("content_type", "body", "is_base64"),
    [
        ("application/json; charset=utf-8", b'"\xc3\xa9"', False),
        ("text/plain", b"text", False),
        ("application/problem+json", b"{}", False),
        ("application/x-www-form-urlencoded", b"a=b", True),
        ("", b"{}", True),
        ("text/plain", b"\xff", True),
    ],
)
def test_only_bodies_of_text_travel_as_text(content_type: str, body: bytes, is_base64: bool) -> None:
    event = event_for(request("POST", "/api/seckill/1", body, CONTENT_TYPE=content_type, HTTP_X_DEBUG_USER="alice"))
    assert event["isBase64Encoded"] is is_base64
    assert event["body"] == (base64.b64encode(body).decode() if is_base64 else body.decode())


@pytest.mark.parametrize(
    ("method", "path", "route_key", "parameters"),
    [
        ("POST", "/api/seckill/1001", "POST /api/seckill/{skuId}", {"skuId": "1001"}),
        ("POST", "/api/seckill/reservations", "POST /api/seckill/{skuId}", {"skuId": "reservations"}),
        ("GET", "/api/seckill/1001", "GET /api/seckill/{skuId}", {"skuId": "1001"}),
        ("GET", "/api/seckill/reservations", "GET /api/seckill/reservations", {}),
        (
            "GET",
            "/api/seckill/reservations/k",
            "GET /api/seckill/reservations/{preDeductKey}",
            {"preDeductKey": "k"},
        ),
    ],
)
def test_the_most_specific_route_takes_a_request(
    method: str, path: str, route_key: str, parameters: dict[str, str]
) -> None:
    found = find_route(method, path)
    assert found is not None
    assert (found[0].key, found[1]) == (route_key, parameters)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/api/seckill"),
        ("POST", "/api/seckill/"),
        ("POST", "/api/seckill/1/2"),
        ("POST", "/api/seckill/reservations/k"),
        ("GET", "/api/seckill/reservations/"),
        ("PUT", "/api/seckill/1"),
        ("HEAD", "/api/seckill/1"),
    ],
)
def test_a_request_without_a_route_gets_404_and_no_handler_sees_it(method: str, path: str) -> None:
    status, headers, body = call(must_not_be_called, request(method, path, HTTP_X_DEBUG_USER="alice"))
    assert (status, json.loads(body)) == ("404 Not Found", {"message": "Not Found"})
    assert headers["content-type"] == "application/json"


def test_a_token_makes_its_sub_the_user() -> None:
    token = mint_token(SECRET, "alice", valid_seconds=60)
    for authorization in (f"Bearer {token}", f"bearer {token}", token):
        event = event_for(request("POST", "/api/seckill/1", HTTP_AUTHORIZATION=authorization))
        claims = event["requestContext"]["authorizer"]["jwt"]["claims"]
        assert claims["sub"] == "alice"
        assert all(isinstance(value, str) for value in claims.values())


def signed(**claims: object) -> str:
    return jwt.encode({"iss": "seckill-local", "aud": "seckill", "sub": "alice"} | claims, SECRET, "HS256")


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer nonsense",
        f"Basic {mint_token(SECRET, 'alice', valid_seconds=60)}",
        f"Bearer {mint_token('some other secret of more than 32 bytes', 'alice', valid_seconds=60)}",
        f"Bearer {mint_token(SECRET, 'alice', valid_seconds=-1)}",
        f"Bearer {signed()}",
        f"Bearer {signed(exp=2**32, aud='other')}",
        f"Bearer {signed(exp=2**32, iss='other')}",
        f"Bearer {jwt.encode({'sub': 'alice', 'exp': 2**32}, '', 'none')}",
    ],
    ids=[
        "empty",
        "no token",
        "no JWT",
        "another scheme",
        "another secret",
        "expired",
        "no expiry",
        "another audience",
        "another issuer",
        "unsigned",
    ],
)
def test_a_bad_token_gets_401_even_with_a_debug_user(authorization: str) -> None:
    environ = request("POST", "/api/seckill/1", HTTP_AUTHORIZATION=authorization, HTTP_X_DEBUG_USER="alice")
    status, headers, body = call(must_not_be_called, environ)
    assert (status, json.loads(body)) == ("401 Unauthorized", {"message": "Unauthorized"})
    assert headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/api/seckill/1"), ("GET", "/api/seckill/reservations"), ("GET", "/api/seckill/reservations/k")],
)
def test_every_route_but_the_sale_s_own_needs_a_user(method: str, path: str) -> None:
    assert call(must_not_be_called, request(method, path))[0] == "401 Unauthorized"


def test_the_sale_can_be_looked_at_by_anybody_and_by_nobody_in_particular() -> None:
    token = mint_token(SECRET, "alice", valid_seconds=60)
    for more in ({}, {"HTTP_AUTHORIZATION": f"Bearer {token}"}, {"HTTP_AUTHORIZATION": "nonsense"}):
        event = event_for(request("GET", "/api/seckill/1", b"", **more))
        assert "authorizer" not in event["requestContext"]


def test_an_answer_becomes_a_response() -> None:
    answer = {
        "statusCode": 202,
        "headers": {"Location": "/x", "Retry-After": 2, "X-Flag": True, "Content-Length": "99"},
        "cookies": ["a=1", "b=2"],
        "body": "é",
    }
    container = Container(lambda event, context: answer, function_name="reserve", region="us-east-1", timeout_seconds=5)
    said: list[Any] = []
    body = Gateway(container, SECRET)(
        request("GET", "/api/seckill/1"), lambda status, headers: said.extend((status, headers))
    )
    status, headers = said
    assert status == "202 Accepted"
    assert sorted(header for header in headers if header[0] != "apigw-requestid") == [
        ("content-type", "text/plain;charset=UTF-8"),
        ("location", "/x"),
        ("retry-after", "2"),
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
        ("x-flag", "true"),
    ]
    assert list(body) == ["é".encode()]


def test_a_base64_body_is_decoded() -> None:
    answer = {"statusCode": 200, "body": base64.b64encode(b"\x00\xff").decode(), "isBase64Encoded": True}
    assert call(lambda event, context: answer, request("GET", "/api/seckill/1"))[2] == b"\x00\xff"


@pytest.mark.parametrize(("answer", "body"), [("text", b"text"), ({"a": 1}, b'{"a": 1}'), (None, b"null"), ([], b"[]")])
def test_an_answer_without_a_status_code_is_a_body(answer: object, body: bytes) -> None:
    status, headers, sent = call(lambda event, context: answer, request("GET", "/api/seckill/1"))
    assert (status, headers["content-type"], sent) == ("200 OK", "application/json", body)


@pytest.mark.parametrize(
    "answer",
    [
        {"statusCode": "200"},
        {"statusCode": True},
        {"statusCode": 99},
        {"statusCode": 200, "headers": ["a"]},
        {"statusCode": 200, "headers": {"a": None}},
        {"statusCode": 200, "headers": {"a": "b\r\nc: d"}},
        {"statusCode": 200, "headers": {"a b": "c"}},
        {"statusCode": 200, "cookies": "a=1"},
        {"statusCode": 200, "cookies": [1.5, None]},
        {"statusCode": 200, "body": {"a": 1}},
        {"statusCode": 200, "body": "not base64", "isBase64Encoded": True},
        {"a": object()},
    ],
)
def test_a_malformed_answer_is_a_500(answer: object) -> None:
    status, _, body = call(lambda event, context: answer, request("GET", "/api/seckill/1"))
    assert (status, json.loads(body)) == (
        "500 Internal Server Error",
        {"message": "Internal Server Error"},
    )


def test_a_handler_that_raises_is_a_500_that_tells_nothing() -> None:
    def handler(event: Any, context: Any) -> Any:
        raise RuntimeError("a secret detail")

    status, headers, body = call(handler, request("GET", "/api/seckill/1"))
    assert (status, json.loads(body)) == (
        "500 Internal Server Error",
        {"message": "Internal Server Error"},
    )
    assert "secret" not in str(headers)


def test_a_body_that_lambda_would_not_take_gets_413() -> None:
    for size, wanted in ((BODY_LIMIT_BYTES, "200 OK"), (BODY_LIMIT_BYTES + 1, "413 Request Entity Too Large")):
        environ = request("POST", "/api/seckill/1", b" " * size, HTTP_X_DEBUG_USER="alice")
        assert call(lambda event, context: "", environ)[0] == wanted


def test_every_response_carries_the_request_id_of_its_event() -> None:
    ids: list[str] = []

    def handler(event: Any, context: Any) -> None:
        ids.append(event["requestContext"]["requestId"])

    _, headers, _ = call(handler, request("GET", "/api/seckill/1"))
    _, others, _ = call(handler, request("GET", "/api/seckill/1"))
    assert [headers["apigw-requestid"], others["apigw-requestid"]] == ids
    assert ids[0] != ids[1]


def test_a_handler_is_told_who_it_is_and_how_much_time_is_left() -> None:
    contexts: list[Any] = []
    call(lambda event, context: contexts.append(context), request("GET", "/api/seckill/1"))
    (context,) = contexts
    assert context.function_name == "reserve"
    assert context.invoked_function_arn == "arn:aws:lambda:us-east-1:123456789012:function:reserve"
    assert context.memory_limit_in_mb == 512
    assert len(context.aws_request_id) == 36
    first = context.get_remaining_time_in_millis()
    assert 4000 < first <= 5000
    time.sleep(0.01)
    assert context.get_remaining_time_in_millis() < first


def must_not_be_called(event: Any, context: Any) -> Any:
    raise AssertionError("the handler was called")
