"""Tokens of the local stack: JWTs signed with a secret that is made anew for every stack.

API Gateway's JWT authorizer accepts RSA signatures only and fetches the keys from the issuer; here both
ends know the secret, so HS256 does. What it checks and what it hands on are the same: issuer, audience,
expiry; then all claims, as strings (AWS API Gateway developer guide, "Control access to HTTP APIs with JWT
authorizers").
"""

from __future__ import annotations

import time

import jwt

ISSUER = "seckill-local"
AUDIENCE = "seckill"
ALGORITHM = "HS256"


class InvalidTokenError(Exception):
    """The token is not one of this stack's, or no longer."""


def mint_token(secret: str, user: str, *, valid_seconds: int) -> str:
    """A token whose `sub` is `user`, valid from now for `valid_seconds`."""
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "iat": now, "exp": now + valid_seconds}
    return jwt.encode(claims, secret, algorithm=ALGORITHM)


def claims_of(secret: str, authorization: str) -> dict[str, str]:
    """The claims of the token in an Authorization header's value, as strings.

    The token may stand alone or after "Bearer ", as for API Gateway. Raises InvalidTokenError.
    """
    scheme, _, rest = authorization.partition(" ")
    token = rest.strip() if scheme.lower() == "bearer" else authorization
    try:
        claims = jwt.decode(
            token,
            secret,
            algorithms=[ALGORITHM],
            issuer=ISSUER,
            audience=AUDIENCE,
            options={"require": ["exp"]},
        )
    except jwt.InvalidTokenError as error:
        raise InvalidTokenError(str(error)) from error
    return {name: str(value) for name, value in claims.items()}
