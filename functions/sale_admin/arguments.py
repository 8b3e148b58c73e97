"""Reading an action's arguments; what is wrong is refused before anything is changed."""

from typing import Any

from seckill.domain.sale import parse_sku_id, parse_time

Arguments = dict[str, Any]


class Refusal(Exception):
    """The action is refused and nothing has changed; `code` is the contract's word."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


def sku_id_in(arguments: Arguments) -> int:
    """`skuId`, as the HTTP API takes it."""
    try:
        return parse_sku_id(str(whole_number_in(arguments, "skuId", 1, 2**63 - 1)))
    except ValueError as error:
        raise Refusal("INVALID_REQUEST", str(error)) from None


def whole_number_in(arguments: Arguments, name: str, least: int, most: int, default: int | None = None) -> int:
    """A whole number between two bounds."""
    value = arguments.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Refusal("INVALID_REQUEST", f"{name} must be a whole number from {least} to {most}")
    return value


def time_in(arguments: Arguments, name: str) -> int | None:
    """A time in milliseconds since 1970, or None when it is not given."""
    text = arguments.get(name)
    if text is None:
        return None
    try:
        return parse_time(text)
    except (TypeError, ValueError):
        raise Refusal(
            "INVALID_REQUEST", f"{name} must be an ISO 8601 time with an offset, of the years 1970 to 9999"
        ) from None


def text_in(arguments: Arguments, name: str, longest: int) -> str:
    """A printable text that is not empty."""
    text = arguments.get(name)
    if not isinstance(text, str) or not 0 < len(text) <= longest or not text.isprintable():
        raise Refusal("INVALID_REQUEST", f"{name} must be a printable text of 1 to {longest} characters")
    return text


def ascii_in(arguments: Arguments, name: str, longest: int) -> str:
    """As text_in, of ASCII characters only: identifiers."""
    text = text_in(arguments, name, longest)
    if not text.isascii():
        raise Refusal("INVALID_REQUEST", f"{name} must be of ASCII characters")
    return text
