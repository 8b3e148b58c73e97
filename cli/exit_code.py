"""What the program's exit status says."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The same for every command."""

    ALL_WELL = 0
    FINDINGS = 1
    """A gap, drift, a broken invariant."""
    WRONG_USE = 2
    UNREACHABLE = 3
    NO_VERDICT = 4
    """Not known yet; ask again."""
