"""What may be chosen about a local stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """How a stack is laid out. Times are in seconds."""

    workers: int = 4
    """Containers of reserve behind the gateway, each serving one call at a time."""
    port: int | None = None
    """The gateway's; None takes a free one."""
    poller_concurrency: int = 2
    """Containers of land_order."""
    batch_size: int = 100
    batch_window_seconds: float = 0.2
    visibility_seconds: int = 30
    """Of the landing queue. A failed message comes back that long after it was received."""
    max_receive_count: int = 5
    """A message that was received so often without being deleted moves to the dead-letter queue."""
    reconcile: bool = True
    """Whether reconcile runs: its passes by the schedule, and the rebuilds that reserve asks for."""
    reconcile_seconds: float = 30.0
    """From one pass of reconcile to the next; the first begins with the stack."""
    stale_after_seconds: int = 120
    """The age from which reconcile looks after reservations; whole seconds."""
    landing_attempts: int = 3
    """Landings that a row's own data make fail before it is rolled back."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Laid over the environment of all functions."""
    reserve_environment: Mapping[str, str] = field(default_factory=dict)
    """Laid over reserve's, last."""
    land_order_environment: Mapping[str, str] = field(default_factory=dict)
    """Laid over land_order's, last."""
    reserve_handler: str = "functions.reserve.handler.lambda_handler"
    land_order_handler: str = "functions.land_order.handler.lambda_handler"
    migrate: bool = True
    """Whether sale_admin brings the database's schema up to date before anything else starts."""
