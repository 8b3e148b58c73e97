"""What a request must look like before any store is asked."""

import base64
from typing import Any

import pytest

from functions.reserve.requests import (
    InvalidRequest,
    Unauthorized,
    correlation_id_of,
    refuse_body,
    sku_id_of,
    user_of,
)


def with_sub(sub: object) -> dict[str, Any]:
    return {"requestContext": {"authorizer": {"jwt": {"claims": {"sub": sub}}}}}


@pytest.mark.parametrize("user", ["alice", "A", "a", "pad ", " ", "u:x", "#epoch", "é", "用户", "😀" * 128, "a" * 128])
def test_the_user_is_the_authorizers_sub_letter_for_letter(user: str) -> None:
    assert user_of(with_sub(user)) == user


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"requestContext": {}},
        {"requestContext": {"authorizer": {}}},
        {"requestContext": {"authorizer": {"jwt": {}}}},
        {"requestContext": {"authorizer": {"jwt": {"claims": {}}}}},
        {"requestContext": {"authorizer": {"lambda": {"sub": "alice"}}}},
        {"requestContext": {"authorizer": None}},
        {"requestContext": {"authorizer": {"jwt": None}}},
        *[{"requestContext": {"authorizer": {"jwt": {"claims": claims}}}} for claims in (None, ["sub"], "sub")],
        {"headers": {"sub": "alice", "x-debug-user": "alice"}, "queryStringParameters": {"user": "alice"}},
        *map(with_sub, [None, "", 0, 17, True, ["alice"], {"sub": "alice"}]),
    ],
)
def test_without_a_usable_sub_there_is_no_user(event: dict[str, Any]) -> None:
    with pytest.raises(Unauthorized):
        user_of(event)


@pytest.mark.parametrize(
    "user",
    ["a" * 129, "😀" * 129, "a\x00b", "\x00", "a\nb", "a\tb", "a\x7f", "a\x85b", "a\x9f", "\ud800", "a\udfffb"],
)
def test_an_over_long_sub_or_one_with_control_characters_or_surrogates_is_refused(user: str) -> None:
    with pytest.raises(InvalidRequest):
        user_of(with_sub(user))


EMPTY_BODIES = ["", "{}", " {} ", "\r\n{}\t", "{ }", "{\n}", " ", "\n"]


@pytest.mark.parametrize("body", EMPTY_BODIES)
def test_an_empty_body_is_accepted_as_text_and_in_base64(body: str) -> None:
    refuse_body({"body": body, "isBase64Encoded": False})
    refuse_body({"body": base64.b64encode(body.encode()).decode(), "isBase64Encoded": True})


@pytest.mark.parametrize("event", [{}, {"body": None}, {"body": None, "isBase64Encoded": True}])
def test_no_body_is_accepted(event: dict[str, Any]) -> None:
    refuse_body(event)


FILLED_BODIES = [
    "null",
    "[]",
    "0",
    '""',
    "{",
    "}",
    "{}{}",
    '{"quantity": 2}',
    '{"user": "bob"}',
    "a=b",
    "\x00",
    "{}\x00",
]


@pytest.mark.parametrize("body", FILLED_BODIES)
def test_any_other_body_is_refused_as_text_and_in_base64(body: str) -> None:
    with pytest.raises(InvalidRequest):
        refuse_body({"body": body, "isBase64Encoded": False})
    with pytest.raises(InvalidRequest):
        refuse_body({"body": base64.b64encode(body.encode()).decode(), "isBase64Encoded": True})


@pytest.mark.parametrize("body", ["{}", "e30", "é", "e30=\n", "/w=="])
def test_what_is_no_base64_of_text_is_refused(body: str) -> None:
    with pytest.raises(InvalidRequest):
        refuse_body({"body": body, "isBase64Encoded": True})


@pytest.mark.parametrize("text", [None, "", "0", "01", "1,2", "9223372036854775808"])
def test_a_missing_or_odd_sku_is_an_invalid_request(text: str | None) -> None:
    with pytest.raises(InvalidRequest):
        sku_id_of(text)


def correlation(given: str | None) -> str:
    headers = {} if given is None else {"x-correlation-id": given}
    return correlation_id_of({"headers": headers, "requestContext": {"requestId": "made"}})


@pytest.mark.parametrize("given", ["a", "0b6c-11.22_x", "A" * 64])
def test_a_short_plain_correlation_id_is_the_callers(given: str) -> None:
    assert correlation(given) == given


@pytest.mark.parametrize("given", [None, "", "A" * 65, "a b", "a\nb", 'a"b', "é", "-", "١"])
def test_any_other_is_made_from_the_gateways_request(given: str | None) -> None:
    assert correlation(given) == "made"


def test_an_event_without_headers_gets_a_correlation_id_too() -> None:
    assert correlation_id_of({"headers": None, "requestContext": {"requestId": "made"}}) == "made"
