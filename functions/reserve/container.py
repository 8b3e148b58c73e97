"""What one container keeps between calls: its connections, and reserve with its memory of failed abandons."""

from collections.abc import Callable
from dataclasses import dataclass

from functions.reserve.settings import Settings
from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis
from seckill.adapters.sqs import Queues
from seckill.domain.deadline import Deadline
from seckill.protocol.reserve import CALL_SECONDS, Reserve


@dataclass(frozen=True, slots=True)
class Container:
    """Connections are made on first use: only winners need MySQL and SQS."""

    redis: Redis
    database: Database
    reserve: Reserve

    def new_read(self) -> None:
        """Begin a call that only reads."""
        deadline = Deadline(CALL_SECONDS)
        self.redis.deadline = deadline
        self.database.new_call(deadline)


def make_container(settings: Settings, count: Callable[[str], None]) -> Container:
    """A container; one that is started ahead of requests also builds the SQS client, while nobody waits."""
    redis, database = Redis(settings.redis_url), Database(settings.database_url)
    queues = Queues(settings.landing_queue_url, settings.reconcile_queue_url)
    if settings.aws_lambda_initialization_type != "on-demand":
        queues.warm()
    return Container(redis, database, Reserve(redis, database, queues, count))
