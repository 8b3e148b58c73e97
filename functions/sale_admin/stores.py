"""What one container of sale_admin keeps between calls."""

from dataclasses import dataclass

from functions.sale_admin.settings import Settings
from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis
from seckill.adapters.sqs import DeadLetters
from seckill.domain.deadline import Deadline


@dataclass(frozen=True, slots=True)
class Stores:
    """The connections, made on first use."""

    database: Database
    redis: Redis
    letters: DeadLetters
    stale_seconds: int

    def new_call(self, deadline: Deadline) -> None:
        """Begin a call."""
        self.redis.deadline = deadline
        self.database.new_call(deadline)


def make_stores(settings: Settings) -> Stores:
    """The stores that the settings name."""
    return Stores(
        Database(settings.database_url),
        Redis(settings.redis_url),
        DeadLetters(settings.landing_queue_url, settings.landing_dlq_url),
        settings.stale_after_seconds,
    )
