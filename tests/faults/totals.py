"""Prints how much was enumerated. A plugin of its own: a run that is shared by processes reads no folder's conftest."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    said = [(name, value) for report in reports for name, value in report.user_properties]
    points = {point for name, value in said if name == "fault points" for point in value}
    runs = sum(int(value) for name, value in said if name == "fault runs")
    seeds = sorted({str(value) for name, value in said if name == "fault seed"})
    if runs:
        terminalreporter.write_line(f"{runs} fault runs at {len(points)} fault points, FAULTS_SEED={' '.join(seeds)}")
