"""Which sends are hit by which fault: drawn once from the seed, the same for both designs.

The counts are the incident's: two units lost to A, three to B, two to C. What is lost is measured, never assumed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

SENDS_LOST = 2
SENDS_DELIVERED_ALL_THE_SAME = 2
SENDS_LATE = 3
SENDS_TO_THE_HELD_ROW = 2


class Fault(StrEnum):
    """The letters of docs/decisions.md and of the report."""

    A = "A"  # the send times out: before delivery (lost) or after it (delivered, but the sender cannot know)
    B = "B"  # the message comes late, when Redis stock is 0
    C = "C"  # the hot stock row is held while the message is landed


class Hit(StrEnum):
    """What happens to one send."""

    LOST = "lost"
    DELIVERED = "delivered all the same"
    LATE = "late"
    HELD_ROW = "into the held row"

    @property
    def fault(self) -> Fault:
        return {Hit.LATE: Fault.B, Hit.HELD_ROW: Fault.C}.get(self, Fault.A)


@dataclass(frozen=True)
class FaultPlan:
    """Hits by the ordinal of a reservation's first send, counted from 0 in the order in which the queue sees them."""

    hits: dict[int, Hit]

    @property
    def faults(self) -> frozenset[Fault]:
        return frozenset(hit.fault for hit in self.hits.values())

    def count(self, hit: Hit) -> int:
        return sum(1 for each in self.hits.values() if each is hit)


def plan_faults(seed: int, units: int, faults: frozenset[Fault]) -> FaultPlan:
    """The plan for a sale of so many units. A small sale gets fewer hits, never more than one a send.

    C draws from the last third, so that its messages are still young when the row is held: the incident's design treats
    a message that waited long in another way, which is fault B. The very last tenth is left out: on a busy machine a
    container may answer without having had the time to send, and both designs shall meet the same faults. The draws do
    not depend on `faults`: the same send is hit by A whether or not B is on.
    """
    draw = random.Random(seed)
    end = units - units // 10
    late_ones = range(2 * units // 3, end)
    to_the_held_row = draw.sample(late_ones, min(SENDS_TO_THE_HELD_ROW, len(late_ones)))
    others = [ordinal for ordinal in range(end) if ordinal not in to_the_held_row]
    kinds = [Hit.LOST] * SENDS_LOST + [Hit.LATE] * SENDS_LATE + [Hit.DELIVERED] * SENDS_DELIVERED_ALL_THE_SAME
    drawn = draw.sample(others, min(len(kinds), len(others)))
    hits = dict(zip(drawn, kinds, strict=False)) | dict.fromkeys(to_the_held_row, Hit.HELD_ROW)
    return FaultPlan({ordinal: hit for ordinal, hit in sorted(hits.items()) if hit.fault in faults})
