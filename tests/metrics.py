"""What a function counted: its CloudWatch metrics in the embedded format, read from standard output."""

import json
from collections import Counter

import pytest


def counted(captured: pytest.CaptureFixture[str]) -> Counter[str]:
    """Counts by name since the last look, all in namespace `Seckill` with the one dimension `service`."""
    counts: Counter[str] = Counter()
    for line in captured.readouterr().out.splitlines():
        if '"_aws"' not in line:
            continue
        document = json.loads(line)
        for directive in document["_aws"]["CloudWatchMetrics"]:
            assert directive["Namespace"] == "Seckill"
            assert directive["Dimensions"] == [["service"]]
            for metric in directive["Metrics"]:
                counts[metric["Name"]] += int(sum(document[metric["Name"]]))
    return counts


def uncounted(name: str) -> None:
    """For a test that does not look at the metrics."""
