"""How much time a call has left."""

import time
from dataclasses import dataclass, field

# No single wait on a store may eat the whole call (docs/protocol.md 4).
LONGEST_WAIT_SECONDS = 1.0
# A socket needs some positive time-out; what starts after the deadline fails after this.
SHORTEST_WAIT_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class Deadline:
    """A fixed moment by which a call must be answered."""

    seconds: float
    longest_wait: float = LONGEST_WAIT_SECONDS
    started: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Seconds until the deadline, never negative."""
        return max(0.0, self.started + self.seconds - time.monotonic())

    def wait(self) -> float:
        """The time-out in seconds of the next wait on a store: the longest single wait or what is left."""
        return max(SHORTEST_WAIT_SECONDS, min(self.longest_wait, self.left()))
