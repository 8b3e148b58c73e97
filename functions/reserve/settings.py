"""What reserve needs to be told."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Filled from the environment variables of the same names in upper case."""

    database_url: str
    redis_url: str
    landing_queue_url: str
    reconcile_queue_url: str
    # Set by Lambda itself: `on-demand`, `provisioned-concurrency` or `snap-start`.
    aws_lambda_initialization_type: str = "on-demand"
