"""A run told on one screen."""

from collections import Counter

from tests.nemesis.play import Report

# The first problems tell enough.
MOST_PROBLEMS = 20


def told(report: Report) -> str:
    """What was done, what was seen, and what is wrong."""
    evils = Counter(event.what.partition(" for ")[0] for event in report.events)
    answers = Counter(f"{asked.status or 'no answer'} {asked.code}".strip() for asked in report.history)
    rows = Counter(row.status for ledger in report.ledgers for row in ledger.rows.values())
    orders = sum(len(ledger.orders) for ledger in report.ledgers)
    notices = sum(len(ledger.notices) for ledger in report.ledgers)
    units = sum(ledger.total for ledger in report.ledgers)
    lines = [
        *(f"  {number:4} x {what}" for what, number in sorted(evils.items())),
        f"{len(report.history)} requests: " + ", ".join(f"{number} {what}" for what, number in answers.most_common()),
        f"operator: {dict(Counter(report.operations))}",
        f"{len(report.ledgers)} sales of {units} units: {len(report.promised)} keys promised, {orders} orders,"
        f" {notices} notices, rows by status {dict(sorted(rows.items()))}",
        f"the books were looked at {report.looks} times while things broke",
        "all accounts closed after " + ", ".join(f"{seconds:.0f}" for seconds in report.peace_seconds) + " s of peace",
        f"{len(report.problems)} problems with seed {report.seed}",
        *(f"  {problem}" for problem in report.problems[:MOST_PROBLEMS]),
    ]
    return "\n".join(lines)
