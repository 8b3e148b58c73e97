"""What the `seckill` command asks for, what it shows, and what its exit status says."""

from datetime import UTC, datetime
from typing import Any

import pytest

from cli import audit, dead_letters, reconcile, sale
from cli.answers import exit_code_for
from cli.audit import verdict_on
from cli.exit_code import ExitCode
from cli.main import build_parser
from cli.timeline import timeline
from local.logs import LogLine


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("sale list", {"action": "list_sales"}),
        ("sale status 1001", {"action": "status", "skuId": 1001}),
        ("sale open 1001 --total 100", {"action": "open_sale", "skuId": 1001, "total": 100}),
        ("sale open 1001 --total 0", {"action": "open_sale", "skuId": 1001, "total": 0}),
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
        (
            "sale top-up 7 20 --operation-id second-delivery",
            {"action": "top_up", "skuId": 7, "units": 20, "operationId": "second-delivery"},
        ),
        ("sale close 7", {"action": "close_sale", "skuId": 7}),
        ("sale reopen 7", {"action": "reopen_sale", "skuId": 7}),
        (
            "sale reopen 7 --closes-at 2030-01-02T00:00:00Z",
            {"action": "reopen_sale", "skuId": 7, "closesAt": "2030-01-02T00:00:00Z"},
        ),
        ("sale archive 7", {"action": "archive_sale", "skuId": 7}),
        ("sale rebuild 7", {"action": "rebuild", "skuId": 7}),
    ],
)
def test_a_sale_command_asks_sale_admin_for_its_action(line: str, event: dict[str, object]) -> None:
    assert sale.event_for(build_parser().parse_args(line.split())) == event


def test_the_audit_is_asked_for_one_sale_or_all() -> None:
    assert audit.event_for(build_parser().parse_args(["audit"])) == {"action": "audit"}
    assert audit.event_for(build_parser().parse_args(["audit", "7"])) == {"action": "audit", "skuId": 7}


@pytest.mark.parametrize(("decision", "asked"), [("land", "land"), ("roll-back", "roll_back"), ("discard", "discard")])
def test_a_decision_is_passed_on_with_its_reason(decision: str, asked: str) -> None:
    arguments = build_parser().parse_args(["resolve", "k", "--decision", decision, "--reason", "lost parcel"])
    event = {"action": "resolve", "preDeductKey": "k", "decision": asked, "reason": "lost parcel"}
    assert dead_letters.event_for(arguments) == event


@pytest.mark.parametrize(
    "line",
    [
        "",
        "sale",
        "sale open",
        "sale open 1001",
        "sale open x --total 1",
        "sale status",
        "sale top-up 7 20",
        "sale top-up 7 --operation-id o",
        "sale close",
        "audit x",
        "timeline",
        "--stack= audit",
        "audit --stack=",
        "resolve k --decision land",
        "resolve k --decision destroy --reason r",
        "local --workers 0",
        "local --workers 1_0",
        "local --pollers +1",
        "local --port 99999",
        "local --port -1",
        "local --port 8_080",
        "token alice --valid-seconds 1_0",
        "sale status 1_003",
        "sale status +7",
        "sale status ٧",
        "sale status 99999999999999999999",
        "sale open 7 --total 1_0",
        "sale open 7 --total -1",
        "sale open 7 --total 4 --quantity 1_0",
        "sale top-up 7 1_0 --operation-id o",
        "audit 1_003",
        "drill --users 1_0",
        "drill --units ٧",
        "drill --seed 1_0",
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
        ({"ok": False, "error": "BOOKS_BROKEN"}, ExitCode.FINDINGS),
        ({"ok": False, "error": "NOT_LANDED"}, ExitCode.FINDINGS),
        ({"ok": False, "error": "NOT_ROLLED_BACK"}, ExitCode.FINDINGS),
    ],
)
def test_the_exit_status_tells_what_became_of_it(answer: dict[str, object], code: ExitCode) -> None:
    assert exit_code_for(answer) is code


GOOD, BROKEN, GAP, UNKNOWN = (
    {"ok": True, "gap": 0},
    {"ok": False, "gap": 0},
    {"ok": True, "gap": 3},
    {"ok": None, "gap": 0},
)


@pytest.mark.parametrize(
    ("audits", "code"),
    [
        ([], ExitCode.ALL_WELL),
        ([GOOD, GOOD], ExitCode.ALL_WELL),
        ([GOOD, BROKEN], ExitCode.FINDINGS),
        ([GAP, GOOD], ExitCode.FINDINGS),
        ([GOOD, UNKNOWN], ExitCode.NO_VERDICT),
        ([UNKNOWN, BROKEN], ExitCode.FINDINGS),
        ([{"ok": None, "gap": 1}], ExitCode.FINDINGS),
    ],
)
def test_the_worst_sale_is_the_verdict(audits: list[dict[str, object]], code: ExitCode) -> None:
    assert verdict_on(audits) is code


def audit_of(**different: Any) -> dict[str, Any]:
    """The audit of a healthy sale, as sale_admin answers it."""
    return {
        "skuId": 7,
        "ok": True,
        "findings": [],
        "state": "open",
        "redis": {"stock": 6, "ticket": 4, "epoch": 2, "holds": 1},
        "ledger": {"reserved": 1, "landed": 3, "rolledBack": 0},
        "orders": 3,
        "databaseStock": 7,
        "total": 10,
        "cap": 10,
        "epoch": 2,
        "oldestPendingSeconds": 5,
        "noticesPending": 0,
        "gap": 0,
        "gapTerms": "stale 0 + difference in I3 0",
        "drift": 0,
        "driftConfirmed": False,
        "equations": ["I2: remaining 7 + ordered 3 = total: 10 = 10", "I4: cap 10 - ticket 4 = stock 6: 6 = 6"],
    } | different


def test_an_audit_shows_the_accounts_and_the_arithmetic(capsys: pytest.CaptureFixture[str]) -> None:
    audit.show_audits([audit_of()])
    assert capsys.readouterr().out.splitlines() == [
        "SKU 7, open, 10 units: ok",
        "  Redis     stock 6, ticket 4, epoch 2, holds 1",
        "  ledger    reserved 1, landed 3, rolled back 0, the oldest reserved 5 s ago",
        "  orders    3",
        "  database  stock 7, cap 10, epoch 2",
        "  notices   0 not sent yet",
        "  I2: remaining 7 + ordered 3 = total: 10 = 10",
        "  I4: cap 10 - ticket 4 = stock 6: 6 = 6",
        "  gap: stale 0 + difference in I3 0 = 0",
        "",
    ]


def test_an_audit_marks_what_is_off(capsys: pytest.CaptureFixture[str]) -> None:
    off = "I4: cap 10 - ticket 4 = stock 13: 6 <> 13"
    findings = {"ok": False, "findings": [off], "equations": [off], "drift": 7}
    audit.show_audits([audit_of(**findings)])
    shown = capsys.readouterr().out
    assert shown.startswith("SKU 7, open, 10 units: drift 7, an equation is off\n")
    assert f"\n! {off}\n" in shown
    assert shown.count(off) == 1


@pytest.mark.parametrize(
    ("different", "verdict"),
    [
        ({"gap": 2}, "gap 2"),
        ({"ok": False, "gap": 2}, "gap 2, an equation is off"),
        ({"ok": None, "redis": None, "findings": ["no verdict: Redis did not answer"]}, "no verdict"),
        ({"ok": None, "gap": 1}, "gap 1"),
    ],
)
def test_an_audit_never_says_ok_of_a_sale_that_is_not(
    different: dict[str, Any], verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    audit.show_audits([audit_of(**different)])
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == f"SKU 7, open, 10 units: {verdict}"
    assert all(f"! {finding}" in shown for finding in different.get("findings", []))


def summary_of(**different: Any) -> dict[str, Any]:
    """What reconcile answers of a pass that found nothing to do."""
    return {
        "staleFound": 0,
        "landed": 0,
        "rolledBack": 0,
        "holdsReleased": 0,
        "holdsSettled": 0,
        "deadLettersRescued": 0,
        "deadLettersUnknown": 0,
        "queueDepth": {"waiting": 0, "inFlight": 0},
        "deadLetters": {"waiting": 0, "inFlight": 0},
        "rebuilt": [],
        "closed": [],
        "failed": [],
        "audits": [audit_of()],
    } | different


@pytest.mark.parametrize(
    ("different", "code"),
    [
        ({}, ExitCode.ALL_WELL),
        ({"failed": ["dead letters: no answer"], "deadLetters": None}, ExitCode.FINDINGS),
        ({"audits": [audit_of(ok=False)]}, ExitCode.FINDINGS),
        ({"audits": [audit_of(ok=None)]}, ExitCode.NO_VERDICT),
    ],
)
def test_a_pass_is_judged_by_what_it_could_not_do_and_by_its_audits(
    different: dict[str, Any], code: ExitCode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reconcile, "ask", lambda arguments, handler, event: summary_of(**different))
    assert reconcile.run(build_parser().parse_args(["reconcile"])) == code
    shown = capsys.readouterr().out
    assert all(f"not done      {failure}" in shown for failure in different.get("failed", []))


def test_a_queue_that_is_away_is_shown_as_such(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    depths = {"queueDepth": None, "deadLetters": {"waiting": 2, "inFlight": 1}}
    monkeypatch.setattr(audit, "ask", lambda arguments, handler, event: {"ok": True, "audits": [audit_of()], **depths})
    assert audit.run(build_parser().parse_args(["audit"])) == ExitCode.ALL_WELL
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "landing queue not reachable",
        "dead letters  2 waiting, 1 in flight",
    ]


# The timeline


def at(second: int) -> str:
    return f"2030-01-01T08:00:{second:02}.500+00:00"


def line(second: int, service: str, message: str, **fields: Any) -> LogLine:
    moment = datetime(2030, 1, 1, 8, 0, second, 500_000, tzinfo=UTC)
    return LogLine(moment, service, {"level": "INFO", "service": service, "message": message, **fields})


def ledger(status: str, *, created: int, updated: int, **different: Any) -> dict[str, Any]:
    row = {"skuId": 7, "quantity": 1, "epoch": 2, "ticket": 4, "reason": None, "retryCount": 0}
    return {**row, "status": status, "createdAt": at(created), "updatedAt": at(updated), **different}


def told(answer: dict[str, Any], *lines: LogLine) -> list[tuple[int, str, str]]:
    """Seconds, source and words of each event."""
    return [(event.at.second, event.source, event.what) for event in timeline(answer, list(lines))]


def test_a_timeline_lays_books_and_logs_side_by_side() -> None:
    answer = {
        "ledger": ledger("LANDED", created=1, updated=4),
        "order": {"orderId": 12, "quantity": 1, "createdAt": at(3)},
        "notice": None,
    }
    lines = [
        line(5, "land_order", "landed", landing="LANDED", correlation_id=None),
        line(2, "reserve", "reserve answered", answer="RESERVED", sku_id=7, correlation_id="c"),
    ]
    assert told(answer, *lines) == [
        (1, "ledger", "RESERVED, SKU 7, 1 units, epoch 2, ticket 4"),
        (2, "reserve", "reserve answered answer=RESERVED correlation_id=c"),
        (3, "order", "order 12 of 1 units"),
        (4, "ledger", "LANDED"),
        (5, "land_order", "landed landing=LANDED"),
    ]


def test_a_timeline_tells_of_a_roll_back_and_its_notice() -> None:
    answer = {
        "ledger": ledger("ROLLED_BACK", created=1, updated=4, reason="lost parcel"),
        "order": None,
        "notice": {"reason": "lost parcel", "createdAt": at(4), "sentAt": at(9)},
    }
    assert told(answer) == [
        (1, "ledger", "RESERVED, SKU 7, 1 units, epoch 2, ticket 4"),
        (4, "ledger", "ROLLED_BACK: lost parcel"),
        (4, "notice", "to be sent: lost parcel"),
        (9, "notice", "sent"),
    ]


def test_a_timeline_never_calls_a_tombstone_a_promise() -> None:
    row = ledger("ROLLED_BACK", created=1, updated=1, reason="abandoned")
    answer = {"ledger": row, "order": None, "notice": None}
    assert told(answer) == [(1, "ledger", "ROLLED_BACK: abandoned, SKU 7, 1 units, epoch 2, ticket 4")]


def test_a_timeline_counts_failed_landings() -> None:
    answer = {"ledger": ledger("RESERVED", created=1, updated=8, retryCount=2), "order": None, "notice": None}
    assert told(answer)[1:] == [(8, "ledger", "failed landing 2")]
