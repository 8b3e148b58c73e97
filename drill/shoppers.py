"""Who comes to the sale and how each shopper behaves: planned before the storm, the same for the same seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

TRIES = 3  # a shopper who was not told "reserved" tries twice more, then gives up
RETRY_GAP_SECONDS = (0.2, 0.8)
DOUBLE_CLICK_SHARE = 0.1
# The last first click comes this long before the end, so that its three tries still fit into the storm.
LAST_CLICK_MARGIN_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Shopper:
    """All times in seconds: `arrives_at` since the ramp began, `first_click_at` since the sale opened."""

    user: str
    arrives_at: float
    first_click_at: float
    retry_gaps: tuple[float, ...]
    double_clicks: bool


def plan_shoppers(users: int, ramp_seconds: float, storm_seconds: float, seed: int) -> list[Shopper]:
    """Arrivals are spread evenly over the ramp. First clicks are a rush: `u ** 3` over the storm, that is 44 in
    100 shoppers within the first second of fifteen, and ever fewer until the end.
    """
    rush_seconds = max(storm_seconds - LAST_CLICK_MARGIN_SECONDS, storm_seconds / 2)
    draw = random.Random(seed)
    return [
        Shopper(
            user=f"shopper-{number:05d}",
            arrives_at=ramp_seconds * number / users,
            first_click_at=rush_seconds * draw.random() ** 3,
            retry_gaps=tuple(draw.uniform(*RETRY_GAP_SECONDS) for _ in range(TRIES - 1)),
            double_clicks=draw.random() < DOUBLE_CLICK_SHARE,
        )
        for number in range(users)
    ]
