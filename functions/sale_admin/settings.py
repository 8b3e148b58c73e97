"""What sale_admin needs to be told."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Filled from the environment variables of the same names in upper case."""

    database_url: str
    redis_url: str
    landing_queue_url: str
    landing_dlq_url: str
    # Age in seconds from which a row at status 1 counts into the gap.
    stale_after_seconds: int = 120
    # Where `migrate` connects as the master user; on AWS alone, where the functions' user may not change tables.
    migration_database_url: str = ""
