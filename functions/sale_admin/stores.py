"""What one container of sale_admin keeps between calls."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from functions.sale_admin.settings import Settings
from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis
from seckill.adapters.sqs import DeadLetters
from seckill.domain.deadline import Deadline


@dataclass(frozen=True, slots=True)
class Stores:
    """The connections, made on first use."""

    database: Database
    migrator: Database
    # Whom `migrate` lets use the tables; none where the one user may do everything.
    app_user: str
    redis: Redis
    letters: DeadLetters
    stale_seconds: int

    def new_call(self, deadline: Deadline) -> None:
        """Begin a call."""
        self.redis.deadline = deadline
        self.database.new_call(deadline)
        self.migrator.new_call(deadline)


def make_stores(settings: Settings) -> Stores:
    """The stores that the settings name."""
    database = Database(settings.database_url)
    return Stores(
        database,
        Database(settings.migration_database_url) if settings.migration_database_url else database,
        (urlsplit(settings.database_url).username or "") if settings.migration_database_url else "",
        Redis(settings.redis_url),
        DeadLetters(settings.landing_queue_url, settings.landing_dlq_url),
        settings.stale_after_seconds,
    )
