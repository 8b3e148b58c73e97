"""Reads a function's settings class from the process environment: DATABASE_URL fills `database_url`, and so on."""

import os
from dataclasses import MISSING, fields
from typing import Any, TypeVar

T = TypeVar("T")


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
        elif field.type is int and not text.isdecimal():
            wrong.append(f"{name} is not a whole number: {text!r}")
        else:
            values[field.name] = int(text) if field.type is int else text
    if wrong:
        raise ValueError("wrong environment: " + ", ".join(wrong))
    return settings(**values)
