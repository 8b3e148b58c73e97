"""Finding one reservation's lines in the logs of a stack."""

import json
from pathlib import Path

from local.logs import lines_about


def line(second: int, message: str, **fields: object) -> str:
    timestamp = f"2030-01-01 08:00:{second:02},250+0000"
    return json.dumps({"message": message, "timestamp": timestamp, "service": "reserve", **fields})


def test_the_lines_of_a_key_and_of_its_calls_are_found_by_time(tmp_path: Path) -> None:
    gateway = [
        line(3, "answered", pre_deduct_key="k", correlation_id="c"),
        line(1, "database lost", correlation_id="c"),
        line(2, "a call of somebody else", correlation_id="d"),
        line(4, "the same call, another reservation", pre_deduct_key="other", correlation_id="c"),
        line(5, "k is only mentioned"),
    ]
    poller = [line(6, "landed", pre_deduct_key="k", correlation_id=None)]
    (tmp_path / "gateway.log").write_text("\n".join(gateway))
    (tmp_path / "poller.log").write_text("\n".join(poller))
    found = [(found.at.second, found.fields["message"]) for found in lines_about(tmp_path, "k")]
    assert found == [(1, "database lost"), (3, "answered"), (6, "landed")]


def test_a_key_nobody_logged_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "gateway.log").write_text(line(1, "answered", pre_deduct_key="k", correlation_id="c"))
    assert lines_about(tmp_path, "unknown") == []


def test_lines_of_another_form_are_left_out(tmp_path: Path) -> None:
    others = [
        "2030-01-01 08:00:00,000 local.poller 17 1 of 1 messages failed: k",
        '["k"]',
        '{"pre_deduct_key": "k"}',
        '{"pre_deduct_key": "k", "timestamp": "yesterday", "service": "reserve"}',
        '{"pre_deduct_key": "k", "timest',
    ]
    (tmp_path / "gateway.log").write_text("\n".join([*others, line(1, "answered", pre_deduct_key="k")]))
    assert [found.fields["message"] for found in lines_about(tmp_path, "k")] == ["answered"]
