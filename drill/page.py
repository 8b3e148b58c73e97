"""The report for people: one HTML file, no network, no script."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from drill.answers import requests_per_second
from drill.faults.plan import Fault, Hit
from drill.plots import account_chart, latency_chart, ledger_chart
from drill.run import Outcome
from drill.summary import FAULT_WORDS, account_json, account_rows, by_fault, sends_hit

CSS = Path(__file__).parent / "report.css"
COLUMN_TITLES = {"before": "before: the incident's own design", "after": "after: this product"}


def html_page(outcomes: list[Outcome], report: dict[str, Any]) -> str:
    parameters = report["parameters"]
    title = f"{parameters['users']:,} shoppers, {parameters['units']} units"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title} - seckill drill</title>",
            f"<style>{CSS.read_text(encoding='utf-8')}</style></head><body>",
            f"<h1>{title}: do the books balance?</h1>",
            f"<p class=soft>{_lead(parameters)}</p>",
            _figures(outcomes),
            _accounts(outcomes),
            _faults(outcomes),
            _plots(outcomes),
            _latency(outcomes),
            _findings(outcomes),
            _settings(report),
            "</body></html>",
        ]
    )


def _lead(parameters: dict[str, Any]) -> str:
    sizes = f"{parameters['rampSeconds']:g} s of ramp, {parameters['stormSeconds']:g} s of storm"
    faults = ", ".join(parameters["faults"]) or "none"
    return (
        "Every shopper has a connection of his own, all open at once, and tries up to three times, 200 to 800 ms "
        f"apart; one in ten double-clicks. {sizes}, faults {faults}, seed {parameters['seed']}. Every answer was "
        "recorded by the shoppers' side; afterwards each key they were promised was looked up in the database."
    )


def _figures(outcomes: list[Outcome]) -> str:
    boxes = []
    for outcome in outcomes:
        verdict = outcome.verdict
        words = f"of {verdict.promised} promised units lost"
        if verdict.pending:
            words += f"; {len(verdict.pending)} more still pending at status 1"
        boxes.append(
            f'<div class="figure {outcome.design.column}"><b>{len(verdict.lost)}</b>{words}'
            f"<br><span class=soft>{COLUMN_TITLES[outcome.design.column]}</span></div>"
        )
    return f'<div class="figures">{"".join(boxes)}</div>'


def _table(head: list[str], rows: list[tuple[list[str], str]]) -> str:
    """Rows of cells, each row with its class; every column but the first holds numbers."""

    def cells(tag: str, texts: list[str]) -> str:
        first, rest = texts[0], texts[1:]
        return f"<{tag}>{first}</{tag}>" + "".join(f"<{tag} class=number>{text}</{tag}>" for text in rest)

    body = "".join(f'<tr class="{css}">{cells("td", texts)}</tr>' for texts, css in rows)
    return f'<div class="scroll"><table><tr>{cells("th", head)}</tr>{body}</table></div>'


def _accounts(outcomes: list[Outcome]) -> str:
    def marked(outcome: Outcome, cell: str) -> str:
        return f"<span class=wrong>{escape(cell)}</span>" if outcome.verdict.lost else escape(cell)

    rows = []
    for name, cells in account_rows(outcomes):
        is_gap = name == "gap"
        shown = (
            [marked(*pair) for pair in zip(outcomes, cells, strict=True)]
            if is_gap
            else [escape(cell) for cell in cells]
        )
        rows.append(([escape(name), *shown], "total" if is_gap else ""))
    head = ["account", *(outcome.design.column for outcome in outcomes)]
    return f"<h2>The accounts</h2>{_table(head, rows)}"


def _faults(outcomes: list[Outcome]) -> str:
    if not any(outcome.hit_sends for outcome in outcomes):
        return "<h2>The faults</h2><p>None was injected.</p>"
    rows = []
    for fault in Fault:
        cells = [f"<b>{fault}</b>&ensp;{FAULT_WORDS[fault]}"]
        for outcome in outcomes:
            cells += [_hits(outcome, fault), _cost(outcome, fault.value)]
        rows.append((cells, ""))
    if any(by_fault(outcome, outcome.verdict.lost)["none"] for outcome in outcomes):
        cells = ["hit by none of them"]
        for outcome in outcomes:
            cells += ["", _cost(outcome, "none")]
        rows.append((cells, ""))
    head = ["fault"]
    for outcome in outcomes:
        head += [f"{outcome.design.column}: sends hit", "units lost"]
    return (
        "<h2>What each fault did</h2><p>The same sends, by the order in which they reached the queue, are hit in both "
        "runs. A unit counts as lost when its promised key has neither an order nor a notice, and as pending when it "
        f"is still at status 1 at the end.</p>{_table(head, rows)}"
    )


def _hits(outcome: Outcome, fault: Fault) -> str:
    hits = [f"{count} {name}" for name, count in sends_hit(outcome).items() if Hit(name).fault is fault]
    return "<br>".join(hits) or "0"


def _cost(outcome: Outcome, name: str) -> str:
    lost = by_fault(outcome, outcome.verdict.lost)[name]
    pending = by_fault(outcome, outcome.verdict.pending)[name]
    return f"{lost} + {pending} pending" if pending else str(lost)


def _plots(outcomes: list[Outcome]) -> str:
    panels = [f"<div><h3>{COLUMN_TITLES[each.design.column]}</h3>{account_chart(each)}</div>" for each in outcomes]
    for outcome in outcomes:
        if outcome.design.has_ledger:
            panels.append(f"<div><h3>The ledger: {outcome.design.title}</h3>{ledger_chart(outcome)}</div>")
        else:
            panels.append(
                '<div class="note"><h3>The ledger: none</h3>In the incident\'s design nothing remembers a reservation '
                "between Redis and its order. What the queue or the consumer drops is gone, and all accounts look "
                "quiet.</div>"
            )
    return (
        "<h2>The accounts over time</h2><p class=soft>In units. Above each plot: the sends that timed out (A), "
        "messages from their send to their late delivery (B), and how long the hot row was held (C).</p>"
        f'<div class="charts">{"".join(panels)}</div>'
    )


def _latency(outcomes: list[Outcome]) -> str:
    rows = []
    for outcome in outcomes:
        account = account_json(outcome)
        for kind, words in (("won", "won (202)"), ("soldOut", "sold out (409)")):
            numbers = account["latencyMs"][kind]
            cells = [f"{outcome.design.column}: {words}", *(f"{numbers[name]:,.0f}" for name in numbers)]
            rows.append((cells, ""))
    head = ["milliseconds", "p50", "p90", "p95", "p99", "max"]
    rates = ", ".join(f"{each.design.column} {requests_per_second(each.answers):,.0f}" for each in outcomes)
    opened = ", ".join(f"{each.design.column} {each.most_connections:,}" for each in outcomes)
    charts = "".join(
        f"<div><h3>{words}</h3>{latency_chart(outcomes, won, words)}</div>"
        for won, words in ((True, "Answers that won a unit"), (False, "Answers that said sold out"))
    )
    return (
        "<h2>How long an answer took</h2><p class=soft>Load, servers and functions share this machine's cores, and "
        f"each container serves one call at a time, so most of this is waiting in line. Requests per second: {rates}. "
        f"Connections open at once: {opened}. "
        "The plots show how many answers in a hundred came within a time.</p>"
        f'<div class="charts">{charts}</div>{_table(head, rows)}'
    )


def _findings(outcomes: list[Outcome]) -> str:
    parts = []
    for outcome in outcomes:
        verdict = outcome.verdict
        for words, keys in (("promised and lost", verdict.lost), ("promised and pending at status 1", verdict.pending)):
            if keys:
                listed = "<br>".join(f"<code>{escape(key)}</code> {_hit_by(outcome, key)}" for key in sorted(keys))
                parts.append(f"<h3>{outcome.design.column}: {words}</h3><p>{listed}</p>")
        if verdict.findings:
            listed = "<br>".join(escape(finding) for finding in verdict.findings)
            parts.append(f"<h3>{outcome.design.column}: equations that do not hold</h3><p>{listed}</p>")
    return f"<h2>Keys without an order</h2>{''.join(parts)}" if parts else ""


def _hit_by(outcome: Outcome, key: str) -> str:
    return next((f"fault {send.hit.fault}" for send in outcome.hit_sends if send.key == key), "hit by no fault")


def _settings(report: dict[str, Any]) -> str:
    def listed(values: dict[str, Any]) -> str:
        return "".join(
            f"<dt>{escape(str(name))}</dt><dd>{escape(_plain(value))}</dd>" for name, value in values.items()
        )

    return (
        f"<div class=charts><div><h2>Parameters</h2><dl>{listed(report['parameters'])}</dl></div>"
        f"<div><h2>Versions</h2><dl>{listed(report['versions'])}</dl></div></div>"
        "<footer>Written by <code>seckill drill</code>. The same numbers are in report.json, every single answer in "
        "the *.answers.jsonl files beside it.</footer>"
    )


def _plain(value: object) -> str:
    return ", ".join(str(each) for each in value) or "none" if isinstance(value, list) else str(value)
