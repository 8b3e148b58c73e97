"""What people rely on when something is wrong: the runbook, the command's way in, and numbers of the whole proxy."""

import re
from pathlib import Path
from typing import Any

from cli.deployment import OUTPUTS
from tests.infra.deployment import Deployment

ROOT = Path(__file__).parents[2]
RUNBOOK = ROOT / "docs" / "runbook.md"


def sections(title: str) -> dict[str, str]:
    """The runbook's subsections of the section `title`, by heading."""
    section = RUNBOOK.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    _, *parts = re.split(r"^### (.+)$", section, flags=re.MULTILINE)
    return dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))


def test_every_alarm_has_a_section_of_the_runbook_and_no_section_is_of_an_alarm_that_is_gone(
    deployment: Deployment,
) -> None:
    # An alarm's name, which the mail shows, begins with its logical id.
    alarms = {
        re.sub(r"^Alarms(.+)[0-9A-F]{8}$", r"\1", alarm.id) for alarm in deployment.resources("AWS::CloudWatch::Alarm")
    }
    assert {re.sub("[-_]", "", heading) for heading in sections("Alarms")} == alarms
    assert all(sections("Alarms").values()), "a section without a word"


def test_what_the_runbook_refers_to_is_in_it() -> None:
    anchors = {heading.lower().replace(" ", "-") for heading in (*sections("Alarms"), *sections("Mending"))}
    referred = set(re.findall(r"\]\(#([^)]+)\)", RUNBOOK.read_text()))
    assert referred
    assert referred <= anchors


def test_the_command_finds_the_functions_by_the_stacks_outputs(deployment: Deployment) -> None:
    outputs: dict[str, Any] = deployment.service["Outputs"]
    for handler, output in OUTPUTS.items():
        name = handler.split(".")[1]
        assert outputs[output]["Value"] == {"Ref": deployment.function(name).id}


def test_the_readmes_way_from_zero_to_a_request_names_what_there_is(dev: Deployment) -> None:
    section = (ROOT / "README.md").read_text().partition("\n## Deploy\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("    ")]
    assert len(lines) <= 10
    text = "\n".join(lines)
    outputs = dict(re.findall(r"\b([A-Z]+)=\$\(output (\w+)\)", text))
    assert set(outputs.values()) <= dev.service["Outputs"].keys()
    used = set(re.findall(r"\$([A-Z]+)", text))
    assert used <= outputs.keys() | {"TOKEN"}, "a variable that no line sets"
    targets = set(re.findall(r"^    make (\S+)", text, flags=re.MULTILINE))
    assert targets <= set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def test_the_proxys_connections_are_added_up_over_its_nodes(deployment: Deployment) -> None:
    # RDS publishes the count of each of the proxy's instances: the largest of them is not the proxy's.
    statistics = {
        alarm.properties["MetricName"]: alarm.properties["Statistic"]
        for alarm in deployment.resources("AWS::CloudWatch::Alarm")
        if {"ProxyName"} == {dimension["Name"] for dimension in alarm.properties.get("Dimensions", [])}
    }
    assert statistics == {"DatabaseConnections": "Sum", "DatabaseConnectionsCurrentlySessionPinned": "Sum"}
