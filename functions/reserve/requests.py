"""What a request must look like: the caller from the authorizer, the SKU, the empty body."""

import base64
import unicodedata
from typing import Any

from seckill.domain.sale import parse_sku_id

LONGEST_USER_CODE_POINTS = 128
LONGEST_CORRELATION_ID = 64


class InvalidRequest(Exception):
    """400: the request is refused as it stands."""


class Unauthorized(Exception):
    """401: no usable `sub` from the authorizer."""


def user_of(event: dict[str, Any]) -> str:
    """The authorizer's `sub`, never a field of the request. Raises Unauthorized, InvalidRequest."""
    user: Any = event
    for name in ("requestContext", "authorizer", "jwt", "claims", "sub"):
        user = user.get(name) if isinstance(user, dict) else None
    if not isinstance(user, str) or not user:
        raise Unauthorized("the token has no subject")
    if len(user) > LONGEST_USER_CODE_POINTS:
        raise InvalidRequest(f"the token's subject is longer than {LONGEST_USER_CODE_POINTS} characters")
    # Cc: control characters; Cs: lone surrogates, which no encoding carries.
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in user):
        raise InvalidRequest("the token's subject has control characters")
    return user


def sku_id_of(text: str | None) -> int:
    """The SKU of a path or query parameter. Raises InvalidRequest."""
    try:
        return parse_sku_id(text or "")
    except ValueError as error:
        raise InvalidRequest(str(error)) from None


def refuse_body(event: dict[str, Any]) -> None:
    """The POST has no body; an empty one or `{}` is accepted, also base64, also with white space around it."""
    body = event.get("body") or ""
    if event.get("isBase64Encoded"):
        try:
            body = base64.b64decode(body, validate=True).decode()
        except ValueError:
            raise InvalidRequest("the body is not base64 of UTF-8 text") from None
    compact = "".join(body.split())
    if compact not in ("", "{}"):
        raise InvalidRequest("this request takes no body")


def correlation_id_of(event: dict[str, Any]) -> str:
    """The caller's X-Correlation-Id if it is short and plain, else the gateway's request id."""
    given = (event.get("headers") or {}).get("x-correlation-id", "")
    plain = given.isascii() and given.replace("-", "").replace("_", "").replace(".", "").isalnum()
    if plain and len(given) <= LONGEST_CORRELATION_ID:
        return str(given)
    return str(event.get("requestContext", {}).get("requestId", "unknown"))
