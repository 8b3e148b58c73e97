"""The report's plots, from what was measured: accounts over time with the faults above them, and latency."""

from __future__ import annotations

from itertools import pairwise

from drill.answers import Answer, percentile
from drill.charts import Axis, Chart, Lane, Line, Mark
from drill.faults.plan import Fault, Hit
from drill.run import Outcome

# The plots begin a little before the sale opens, so that the full stock can be seen.
SECONDS_BEFORE_OPENING = 1.0


def account_chart(outcome: Outcome) -> str:
    lines = [
        Line("Redis stock", "stock", _series(outcome, "redis_stock")),
        Line("orders", "orders", _series(outcome, "orders")),
        Line("queue", "queue", _series(outcome, "queue_depth")),
        Line("dead letters", "dead", _series(outcome, "dead_letters")),
    ]
    title = f"Accounts over time, {outcome.design.title}"
    return Chart(
        title, _time_axis(outcome), _unit_axis(outcome), lines, _fault_lanes(outcome), named_with_value=True
    ).svg()


def ledger_chart(outcome: Outcome) -> str:
    lines = [
        Line("orders", "orders", _series(outcome, "orders")),
        Line("2 landed", "queue", _series(outcome, "landed"), dashed=True),
        Line("1 reserved", "pending", _series(outcome, "reserved")),
        Line("3 rolled back", "rolled", _series(outcome, "rolled_back")),
    ]
    title = f"Ledger rows by status, {outcome.design.title}"
    return Chart(
        title, _time_axis(outcome), _unit_axis(outcome), lines, _fault_lanes(outcome), named_with_value=True
    ).svg()


def latency_chart(outcomes: list[Outcome], won: bool, words: str) -> str:
    lines = []
    highest = 100.0
    for outcome in outcomes:
        values = sorted(answer.latency * 1000 for answer in outcome.answers if _is_kind(answer, won))
        points = [(max(percentile(values, share), 0.1), float(share)) for share in range(1, 101)] if values else []
        lines.append(Line(outcome.design.column, outcome.design.column, points, stepped=False))
        highest = max([highest, *values[-1:]])
    x = Axis(0.3, highest * 1.1, "milliseconds", logarithmic=True)
    return Chart(f"{words}: share within a time", x, Axis(0, 100), lines, height=180).svg()


def _series(outcome: Outcome, name: str) -> list[tuple[float, float]]:
    """One account over time, without the readings in which nothing changed (but for the last)."""
    readings = [
        (at, float(getattr(accounts, name))) for at, accounts in outcome.samples if at >= -SECONDS_BEFORE_OPENING
    ]
    kept = readings[:1] + [right for left, right in pairwise(readings) if left[1] != right[1]]
    return kept if not readings or kept[-1] == readings[-1] else [*kept, readings[-1]]


def _time_axis(outcome: Outcome) -> Axis:
    end = max(5.0, outcome.samples[-1][0])
    return Axis(-SECONDS_BEFORE_OPENING, end, "seconds since the sale opened")


def _unit_axis(outcome: Outcome) -> Axis:
    highest = max(max(each.redis_stock, each.orders, each.queue_depth, 1) for _, each in outcome.samples)
    return Axis(0, highest)


def _fault_lanes(outcome: Outcome) -> list[Lane]:
    timed_out = [
        Mark(send.at, f"{send.at:.1f} s: send timed out, {send.hit}: {send.key}")
        for send in outcome.hit_sends
        if send.hit.fault is Fault.A
    ]
    late = [
        Mark(send.at, f"{send.key}: sent at {send.at:.1f} s, delivered at {delivered:.1f} s", delivered)
        for send in outcome.hit_sends
        if send.hit is Hit.LATE and (delivered := _delivered_at(outcome, send.key)) is not None
    ]
    held = [moment.at for moment in outcome.moments if moment.what == "hot row held"]
    released = [moment.at for moment in outcome.moments if moment.what == "hot row released"]
    row_held = [
        Mark(since, f"hot row held from {since:.1f} s to {until:.1f} s", until, shaded=True)
        for since, until in zip(held, released, strict=False)
    ]
    lanes = [Lane("A", "a", timed_out), Lane("B", "b", late), Lane("C", "c", row_held)]
    return [lane for lane in lanes if lane.marks]


def _delivered_at(outcome: Outcome, key: str) -> float | None:
    return next((moment.at for moment in outcome.moments if moment.key == key), None)


def _is_kind(answer: Answer, won: bool) -> bool:
    return answer.won if won else answer.sold_out
