"""The environment of the functions' processes: what is configured, nothing that the shell happens to hold."""

from __future__ import annotations

import os
from collections.abc import Mapping

from local.queues import Queues

# moto serves every region alike; this is the one its own documentation uses.
REGION = "us-east-1"

# What an interpreter needs from outside. All else stays out: a forgotten AWS_PROFILE or AWS_ENDPOINT_URL_SQS
# would send the functions to a real account, and HTTP_PROXY would look like a request header to a WSGI
# program.
INHERITED = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "PYTHONPATH")


def function_environment(
    *,
    database_url: str,
    redis_url: str,
    aws_endpoint_url: str,
    queues: Queues,
    stale_after_seconds: int,
    landing_attempts: int,
) -> dict[str, str]:
    """What a function finds in its environment: the names it has on AWS, and credentials that are none."""
    return {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "LANDING_QUEUE_URL": queues.landing_url,
        "LANDING_DLQ_URL": queues.landing_dlq_url,
        "RECONCILE_QUEUE_URL": queues.reconcile_url,
        "STALE_AFTER_SECONDS": str(stale_after_seconds),
        "LANDING_ATTEMPTS": str(landing_attempts),
        "AWS_ENDPOINT_URL": aws_endpoint_url,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        # Nobody looks for other credentials in files or on the network.
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def process_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a process that runs a function with `environment`."""
    return {name: os.environ[name] for name in INHERITED if name in os.environ} | dict(environment)
