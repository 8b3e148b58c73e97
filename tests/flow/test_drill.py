"""A small drill from end to end, as `seckill drill` runs it."""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import psutil
import pytest

from drill import command, run
from drill.accounts import connect_redis
from drill.answers import read_answers
from drill.designs import incident_design
from local.servers import Servers, wait_until
from local.stack import StackOptions
from local.state import CHECKOUT
from tests.books import connect

pytestmark = pytest.mark.timeout(300)

ACCOUNT_NAMES = {
    "redisStock", "promised", "orders", "databaseStock", "queueDepth", "deadLetters", "ledger", "gap", "oversold",
    "promisedWithoutOrder", "requestsPerSecond", "latencyMs",
}  # fmt: skip


def drill(directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    """Run the command with its reports in `directory`; its exit status and the report it printed."""
    monkeypatch.setattr(command, "REPORTS", directory)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    small = ["--users", "200", "--units", "20", "--ramp", "1", "--seconds", "3", "--json"]
    status = command.run(parser.parse_args([*small, *options]))
    return status, json.loads(capsys.readouterr().out)


class Page(HTMLParser):
    """Checks that every element is closed, and collects what the page would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [value for name, value in attrs if name in ("src", "href", "xlink:href") and value]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Opened and closed at once."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_faults_cost_the_incident_design_units_and_this_product_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, report = drill(tmp_path, monkeypatch, capsys)
    before, after = report["before"], report["after"]
    assert status == 0

    assert before["promised"] == after["promised"] == 20
    assert all(before["lostTo"][fault] > 0 for fault in "ABC"), before["lostTo"]
    assert before["gap"] == before["lost"] == 20 - before["orders"] == before["databaseStock"]
    assert len(before["promisedWithoutOrder"]) == before["gap"]
    assert before["deadLetters"] >= before["lostTo"]["C"]
    assert before["ledger"] is None

    assert after["lost"] == after["oversold"] == after["deadLetters"] == after["queueDepth"] == 0
    assert after["findings"] == []
    assert after["gap"] == after["pending"] == after["ledger"]["reserved"] == after["databaseStock"] == 0
    assert after["orders"] == after["ledger"]["landed"] == 20

    for account in (before, after):
        assert account.keys() >= ACCOUNT_NAMES
        assert account["requestsPerSecond"] > 0
        assert account["connectionsOpenAtOnce"] >= 200
        for kind in ("won", "soldOut"):
            assert 0 < account["latencyMs"][kind]["p50"] <= account["latencyMs"][kind]["p99"]
    assert before["sendsHit"] == after["sendsHit"], "the same faults hit both designs"
    assert report["parameters"]["seed"] == 1
    assert {"python", "database"} <= report["versions"].keys()

    assert json.loads((tmp_path / "report.json").read_text()) == report
    html = (tmp_path / "report.html").read_text()
    page = Page(html)
    assert page.open == []
    assert page.fetched == [], "the report is one file"
    assert "<script" not in html
    assert html.count("<svg") == 5  # accounts of both, the ledger, latency of won and sold out
    for column in ("before", "after"):
        answers = read_answers(tmp_path / f"{column}.answers.jsonl")
        assert len({answer.user for answer in answers}) == 200
        assert sum(report[column]["answers"].values()) == len(answers)


def test_with_no_fault_injected_the_incident_design_balances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, report = drill(tmp_path, monkeypatch, capsys, "--faults", "none", "--design", "before")
    before = report["before"]
    assert status == 0
    assert report["after"] is None
    assert (before["redisStock"], before["promised"], before["orders"], before["databaseStock"]) == (0, 20, 20, 0)
    assert (before["gap"], before["deadLetters"], before["queueDepth"]) == (0, 0, 0)


def test_a_product_that_sells_nothing_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_redis(**options: Any) -> StackOptions:
        nowhere = {"REDIS_URL": "redis://127.0.0.1:1/0"}
        return StackOptions(**options | {"reserve_environment": options["reserve_environment"] | nowhere})

    monkeypatch.setattr(run, "StackOptions", without_redis)
    few = ["--users", "30", "--units", "5", "--seconds", "2", "--faults", "none", "--design", "after"]
    status, report = drill(tmp_path, monkeypatch, capsys, *few)
    assert (report["after"]["promised"], report["after"]["redisStock"]) == (0, 5)
    assert report["after"]["findings"] == ["5 of 5 units unsold, 30 shoppers asked in vain: UNAVAILABLE"]
    assert status == 1


def left_on(servers: Servers, process_id: int) -> list[str]:
    """What a drill of the incident's design has made on these servers and not taken away again."""
    with connect(servers.database_url) as session, session.cursor() as cursor:
        databases = cursor.execute("SHOW DATABASES LIKE %s", (f"seckill_drill_incident_{process_id}",))
    with contextlib.closing(connect_redis(servers.redis_url)) as client:
        keys = client.exists(incident_design(1001).redis_stock_key)
    return ["database"] * databases + ["Redis key"] * keys


@contextlib.contextmanager
def drill_in_mid_storm(directory: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A drill of its own process, whose shoppers are being answered."""
    code = f"import sys, pathlib; from drill import command; command.REPORTS = pathlib.Path({str(directory)!r});" + (
        "from cli.main import main; sys.exit(main(['drill', '--users', '50', '--units', '5', '--seconds', '60']))"
    )
    drill_process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=CHECKOUT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        log = directory / "before.answers.jsonl"
        assert wait_until(lambda: log.exists() and log.stat().st_size > 0, 60), "no answer was recorded"
        yield drill_process
    finally:
        drill_process.kill()
        drill_process.wait()


def assert_ends_with_its_processes(drill_process: subprocess.Popen[str], ending: signal.Signals) -> None:
    started = psutil.Process(drill_process.pid).children(recursive=True)
    assert len(started) > 5
    os.kill(drill_process.pid, ending)
    _, errors = drill_process.communicate(timeout=60)
    assert drill_process.returncode == 130
    assert "Traceback" not in errors
    _, alive = psutil.wait_procs(started, timeout=10)
    assert alive == []


def test_ctrl_c_in_mid_storm_ends_the_drill_and_all_its_processes(tmp_path: Path) -> None:
    with drill_in_mid_storm(tmp_path) as drill_process:
        assert_ends_with_its_processes(drill_process, signal.SIGINT)


def test_sigterm_in_mid_storm_leaves_nothing_on_servers_of_ones_own(servers: Servers, tmp_path: Path) -> None:
    own = {"SECKILL_TEST_DATABASE_URL": servers.database_url, "SECKILL_TEST_REDIS_URL": servers.redis_url}
    with drill_in_mid_storm(tmp_path, **own) as drill_process:
        assert left_on(servers, drill_process.pid) == ["database", "Redis key"]
        assert_ends_with_its_processes(drill_process, signal.SIGTERM)
        assert left_on(servers, drill_process.pid) == []
