"""Prints how much of its time share each part of the tests used, so that one part's growth is seen before it hurts."""

from collections import defaultdict

import pytest

# Seconds on 2 cores; all of them together stay far below what a person waits for.
SHARES_SECONDS = {
    "unit and races": 300,
    "faults": 300,
    "model and mutations": 180,
    "nemesis and soak": 60,
    "infra and artefacts": 300,
}
PART_OF_FOLDER = {
    "faults": "faults",
    "model": "model and mutations",
    "mutations": "model and mutations",
    "nemesis": "nemesis and soak",
    "infra": "infra and artefacts",
}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """One line a part: seconds of its tests, divided by the processes that shared them."""
    spent: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                folder = report.nodeid.split("/")[1] if report.nodeid.startswith("tests/") else ""
                spent[PART_OF_FOLDER.get(folder, "unit and races")] += report.duration
    processes = getattr(config.option, "numprocesses", None) or 1
    terminalreporter.section("time shares")
    for part, seconds in spent.items():
        terminalreporter.line(f"{part}: {seconds / processes:.0f} s of {SHARES_SECONDS[part]} s")
