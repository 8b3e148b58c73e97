"""build/drill/report.json and build/drill/report.html."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from drill.page import html_page
from drill.run import Outcome
from drill.summary import account_json


def report_json(outcomes: list[Outcome], parameters: dict[str, Any], versions: dict[str, str]) -> dict[str, Any]:
    accounts: dict[str, Any] = {"before": None, "after": None}
    accounts |= {outcome.design.column: account_json(outcome) for outcome in outcomes}
    return {**accounts, "parameters": parameters, "versions": versions}


def write_reports(directory: Path, outcomes: list[Outcome], report: dict[str, Any]) -> Path:
    """Writes both files and returns the path of the one for people."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    page = directory / "report.html"
    page.write_text(html_page(outcomes, report), encoding="utf-8")
    return page
