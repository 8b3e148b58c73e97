"""What reconcile needs to be told."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Filled from the environment variables of the same names in upper case."""

    database_url: str
    redis_url: str
    landing_queue_url: str
    landing_dlq_url: str
    # Age in seconds from which rows and holds are looked after; above twice (reserve's + a statement's time-out).
    stale_after_seconds: int = 120
    # Failures that name a row, alone in its transaction, before it is rolled back.
    landing_attempts: int = 3
    notice_topic_arn: str = ""
