"""What land_order needs to be told."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Filled from the environment variables of the same names in upper case."""

    database_url: str
    redis_url: str
