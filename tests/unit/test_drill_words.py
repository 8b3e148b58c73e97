"""What the drill shows: tables, progress, plots, options, exit status."""

import argparse
import io
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drill import command
from drill.charts import Axis, Chart, Lane, Line, Mark, spread
from drill.faults.plan import Fault
from drill.storm import Progress
from drill.terminal import ProgressBar, table


def parsed(*options: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(options)


def parameters(*options: str) -> Any:
    return command._parameters(parsed(*options), io.StringIO())


def test_the_default_is_the_incident_s_load_in_ci_s_time() -> None:
    default = parameters()
    assert (default.users, default.units, default.ramp_seconds, default.storm_seconds) == (5200, 100, 5, 15)
    assert default.faults == frozenset(Fault)


def test_full_is_the_incident_s_own_time_and_gives_way_to_what_is_said() -> None:
    assert (parameters("--full").ramp_seconds, parameters("--full").storm_seconds) == (20, 30)
    assert parameters("--full", "--seconds", "7").storm_seconds == 7


@pytest.mark.parametrize(("text", "letters"), [("all", "ABC"), ("none", ""), ("A,C", "AC"), ("b", "B"), ("abc", "ABC")])
def test_faults_are_named_by_letters(text: str, letters: str) -> None:
    assert parsed("--faults", text).faults == frozenset(Fault(letter) for letter in letters)


@pytest.mark.parametrize(
    "options",
    [
        ["--faults", "D"], ["--users", "0"], ["--users", "1000000"], ["--units", "-1"], ["--seconds", "0"],
        ["--seconds", "3600"], ["--ramp", "nan"], ["--design", "neither"],
    ],
)  # fmt: skip
def test_a_load_without_bounds_is_wrong_use(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        parsed(*options)
    assert refused.value.code == 2
    capsys.readouterr()


def test_fewer_open_files_mean_fewer_users_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "raise_open_files_limit", lambda wanted: min(wanted, 2700))
    said = io.StringIO()
    assert command._parameters(parsed(), said).users == 2000
    assert "2,000 users instead of 5,200" in said.getvalue()
    assert command._parameters(parsed("--users", "300"), io.StringIO()).users == 300


def outcome(column: str, *, balances: bool, queue_depth: int = 0) -> Any:
    return SimpleNamespace(
        design=SimpleNamespace(column=column),
        verdict=SimpleNamespace(balances=balances, accounts=SimpleNamespace(queue_depth=queue_depth)),
    )


def test_the_exit_status_is_this_product_s_alone() -> None:
    lost = outcome("before", balances=False)
    assert command._exit_code([lost]) == 0
    assert command._exit_code([lost, outcome("after", balances=True)]) == 0
    assert command._exit_code([lost, outcome("after", balances=False)]) == 1
    assert command._exit_code([lost, outcome("after", balances=True, queue_depth=1)]) == 4


def test_servers_that_cannot_be_had_are_one_line_and_exit_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "REPORTS", tmp_path)
    monkeypatch.setenv("SECKILL_TEST_DATABASE_URL", "mysql://root@127.0.0.1:1/nowhere")
    assert command.run(parsed("--users", "1")) == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_table_puts_numbers_under_their_heads() -> None:
    assert table(["account", "before", "after"], [("gap", ["7", "0"]), ("orders", ["93", "100"])]).splitlines() == [
        "  account   before   after",
        "  ------------------------",
        "  gap            7       0",
        "  orders        93     100",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_on_a_terminal_and_a_few_elsewhere() -> None:
    steps = [Progress("ramp", 2.5, 10)] * 20 + [Progress("storm", 7.5, 20, 5, 1, 4)] * 20 + [Progress("done", 15)]
    shown = {}
    for stream in (Terminal(), io.StringIO()):
        bar = ProgressBar(stream, "after", ramp_seconds=5, storm_seconds=15)
        for step in steps:
            bar(step)
        shown[stream.isatty()] = stream.getvalue()
    assert shown[True].count("\n") == 1
    assert "█" * 15 + "░" * 15 in shown[True]
    assert shown[False].count("\n") == 3
    assert "\r" not in shown[False]


def test_names_of_lines_are_moved_apart_and_stay_inside() -> None:
    assert spread([10, 100], gap=14, lowest=200) == [10, 100]
    assert spread([50, 50, 50], gap=14, lowest=200) == [50, 64, 78]
    assert spread([195, 196, 197], gap=14, lowest=200) == [172, 186, 200]


def test_a_plot_is_well_formed_and_inside_its_frame() -> None:
    lines = [Line("a & b", "orders", [(-1, 0), (3, 100), (10, 50)]), Line("nothing", "queue", [])]
    lanes = [Lane("A", "a", [Mark(2, "<one>")]), Lane("C", "c", [Mark(3, "held", 8, shaded=True)])]
    drawn = ET.fromstring(Chart('the "title"', Axis(-1, 10, "seconds"), Axis(0, 100), lines, lanes).svg())
    (path,) = drawn.iter("path")
    assert path.get("d") == "M40.0 272.0H188.4V42.0H448.0V157.0"
    assert [name.text for name in drawn.iter("text") if name.get("class") == "name orders"] == ["a & b"]


def test_a_logarithmic_axis_has_a_tick_at_each_power_of_ten() -> None:
    axis = Axis(0.3, 2000, "milliseconds", logarithmic=True)
    assert axis.ticks() == [1, 10, 100, 1000]
    assert axis.share(0.3) == 0
    assert axis.share(2000) == 1
