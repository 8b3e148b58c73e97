"""Passwords that AWS takes instead of a secret: signed with the function's own role, valid for 15 minutes.

Only botocore's signer is used, and imported on first use. A session, a client or the loader of service models would
cost a cold start some 300 ms, and reserve needs Redis's token before it knows whether this user has won anything.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

# What RDS and ElastiCache accept at most. A connection once made outlives its token.
LIFETIME_SECONDS = 900
# A token is not used in its last minute: the connection must be made, and the clocks may differ.
RENEW_BEFORE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Role:
    """The credentials of the function's role, from the environment variables that Lambda sets (upper case)."""

    aws_access_key_id: str
    aws_secret_access_key: str
    aws_region: str
    aws_session_token: str = ""


class _Credentials(NamedTuple):
    """What the signer reads; botocore's own class would load its credential providers."""

    access_key: str
    secret_key: str
    token: str | None


def database_token(role: Role, *, host: str, port: int, user: str) -> str:
    """The password of a database user who is authenticated by IAM, at this host (RDS Proxy or a server)."""
    return _presigned(role, "rds-db", f"https://{host}:{port}/", {"Action": "connect", "DBUser": user})


def redis_token(role: Role, *, replication_group: str, user: str) -> str:
    """The password of an ElastiCache user; it opens this replication group (an id in lower case) and no other."""
    return _presigned(role, "elasticache", f"http://{replication_group}/", {"Action": "connect", "User": user})


def _presigned(role: Role, service: str, url: str, query: dict[str, str]) -> str:
    """A presigned GET of `url`, without its scheme: the form both services expect."""
    from botocore.auth import SigV4QueryAuth  # noqa: PLC0415
    from botocore.awsrequest import AWSRequest  # noqa: PLC0415

    credentials = _Credentials(role.aws_access_key_id, role.aws_secret_access_key, role.aws_session_token or None)
    request = AWSRequest("GET", url, params=query)
    signer = SigV4QueryAuth(credentials, service, role.aws_region, expires=LIFETIME_SECONDS)  # type: ignore[arg-type]
    signer.add_auth(request)
    return str(request.url).partition("://")[2]


class Token:
    """A password that renews itself shortly before it expires. `clock` in seconds, monotonic."""

    def __init__(self, sign: Callable[[], str], clock: Callable[[], float] = time.monotonic) -> None:
        self._sign, self._clock = sign, clock
        self._text = ""
        self._renew_at = 0.0

    def text(self) -> str:
        """The password to connect with now."""
        if not self._text or self._clock() >= self._renew_at:
            self._text = self._sign()
            self._renew_at = self._clock() + LIFETIME_SECONDS - RENEW_BEFORE_SECONDS
        return self._text

    def refused(self) -> None:
        """The server did not take it: the next one is signed afresh."""
        self._text = ""
