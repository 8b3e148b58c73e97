"""Whole numbers on a command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

# What fits the database's largest column, and no more digits than that has.
LARGEST = 2**63 - 1
_DIGITS = re.compile(r"[0-9]{1,19}")


def whole_number(least: int = 0, most: int = LARGEST) -> Callable[[str], int]:
    """The type of an option, for argparse: plain digits, where int() takes 1_003, +7 and ٧ as well."""

    def parse(text: str) -> int:
        if not _DIGITS.fullmatch(text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most}")
        return int(text)

    return parse
