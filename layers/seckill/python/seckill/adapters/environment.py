"""Reads a function's settings class from the process environment: DATABASE_URL fills `database_url`, and so on."""

import os
import re
from dataclasses import MISSING, fields
from typing import Any, TypeVar

T = TypeVar("T")

# Every number in a settings class counts seconds or attempts, of which 0 would mean nothing. Neither int() nor
# isdecimal() will do: they take the digits of any script.
LARGEST_NUMBER = 999_999_999
_WHOLE_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


def from_environment(settings: type[T]) -> T:
    """An instance of the dataclass `settings`; ValueError names all that is missing or of the wrong type."""
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for field in fields(settings):  # type: ignore[arg-type]
        name = field.name.upper()
        text = os.environ.get(name)
        if text is None or text == "":
            if field.default is MISSING:
                wrong.append(f"{name} is not set")
        elif field.type is int and not _WHOLE_NUMBER.fullmatch(text):
            wrong.append(f"{name} is not a whole number from 1 to {LARGEST_NUMBER}: {text!r}")
        else:
            values[field.name] = int(text) if field.type is int else text
    if wrong:
        raise ValueError("wrong environment: " + ", ".join(wrong))
    return settings(**values)
