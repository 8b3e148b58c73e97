"""A pass and its audits as JSON."""

from typing import Any

from seckill.protocol.reconcile import Pass


def summary_of(done: Pass) -> dict[str, Any]:
    """The numbers of one pass; `failed` names what could not be done this time."""
    return {
        "staleFound": done.stale.found,
        "landed": done.stale.landed,
        "rolledBack": done.stale.rolled_back,
        "holdsReleased": sum(holds.released for holds in done.holds),
        "holdsSettled": sum(holds.settled for holds in done.holds),
        "deadLettersRescued": done.rescue.rescued,
        "deadLettersUnknown": len(done.rescue.unknown),
        "queueDepth": done.landing_depth and done.landing_depth.as_json(),
        "deadLetters": done.dead_letter_depth and done.dead_letter_depth.as_json(),
        "rebuilt": done.rebuilt,
        "closed": done.closed,
        "failed": [*done.failed, *(f"stale row {key}" for key in done.stale.failed)],
        "audits": [audit.as_json() for audit in done.audits],
    }
