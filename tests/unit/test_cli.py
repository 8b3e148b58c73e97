"""What the `seckill` command asks for, and what its exit status says."""

import pytest

from cli.exit_code import ExitCode
from cli.main import build_parser
from cli.sale import event_for, exit_code_for


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("sale list", {"action": "list_sales"}),
        ("sale status 1001", {"action": "status", "skuId": 1001}),
        ("sale open 1001 --total 100", {"action": "open_sale", "skuId": 1001, "total": 100}),
        (
            "sale open 7 --total 4 --quantity 2 --opens-at 2030-01-01T08:00:00+08:00 --closes-at 2030-01-02T00:00:00Z",
            {
                "action": "open_sale",
                "skuId": 7,
                "total": 4,
                "quantity": 2,
                "opensAt": "2030-01-01T08:00:00+08:00",
                "closesAt": "2030-01-02T00:00:00Z",
            },
        ),
    ],
)
def test_a_command_asks_sale_admin_for_its_action(line: str, event: dict[str, object]) -> None:
    assert event_for(build_parser().parse_args(line.split())) == event


@pytest.mark.parametrize(
    "line",
    [
        "",
        "sale",
        "sale open",
        "sale open 1001",
        "sale open x --total 1",
        "sale status",
        "local --workers 0",
        "nonsense",
    ],
)
def test_wrong_use_exits_with_2(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        build_parser().parse_args(line.split())
    assert exit_info.value.code == ExitCode.WRONG_USE
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"ok": True}, ExitCode.ALL_WELL),
        ({"ok": True, "loaded": True}, ExitCode.ALL_WELL),
        ({"ok": True, "loaded": False}, ExitCode.NO_VERDICT),
        ({"ok": False, "error": "ALREADY_OPEN"}, ExitCode.WRONG_USE),
        ({"ok": False, "error": "NO_SUCH_SALE"}, ExitCode.WRONG_USE),
        ({"ok": False, "error": "UNAVAILABLE"}, ExitCode.UNREACHABLE),
    ],
)
def test_the_exit_status_tells_what_became_of_it(answer: dict[str, object], code: ExitCode) -> None:
    assert exit_code_for(answer) is code
