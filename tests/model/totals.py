"""Prints how much the model searched. A plugin: a run shared by processes reads no folder's conftest."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    said = [said for report in terminalreporter.getreports("passed") for said in report.user_properties]
    states = [value for name, value in said if name == "model states"]
    seconds = sum(value for name, value in said if name == "model seconds")
    killed = [value for name, value in said if name == "mutation killed"]
    if states:
        terminalreporter.write_line(
            f"model: {len(states)} scenarios, {sum(states):,} states, all visited in {seconds:.0f} s"
        )
    if killed:
        terminalreporter.write_line(f"model: {len(killed)} mutations killed")
