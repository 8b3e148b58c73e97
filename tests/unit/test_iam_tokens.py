"""Tokens signed with the function's role: fixed vectors, and what signing may load."""

import datetime
import hashlib
import hmac
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import boto3
import botocore.auth
import pytest

from seckill.adapters.iam_tokens import LIFETIME_SECONDS, Role, Token, database_token, redis_token

ROLE = Role(
    aws_access_key_id="AKIDEXAMPLE",
    aws_secret_access_key="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    aws_region="eu-west-1",
    aws_session_token="FwoGZXIvYXdzEXAMPLE+token/==",
)
PROXY = "proxy.example.eu-west-1.rds.amazonaws.com"


@pytest.fixture(autouse=True)
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = datetime.datetime(2026, 11, 29, 12, 0, 0)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_, **__: moment)


def test_a_database_token_is_this() -> None:
    assert database_token(ROLE, host=PROXY, port=3306, user="seckill_app") == (
        "proxy.example.eu-west-1.rds.amazonaws.com:3306/?Action=connect&DBUser=seckill_app"
        "&X-Amz-Algorithm=AWS4-HMAC-SHA256"
        "&X-Amz-Credential=AKIDEXAMPLE%2F20261129%2Feu-west-1%2Frds-db%2Faws4_request"
        "&X-Amz-Date=20261129T120000Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host"
        "&X-Amz-Security-Token=FwoGZXIvYXdzEXAMPLE%2Btoken%2F%3D%3D"
        "&X-Amz-Signature=3a6a35e61a8f1c9538ff309cf32e259b6432b0285e6e6326cb0fb95286934a54"
    )


def test_a_redis_token_is_this_and_bound_to_the_replication_group() -> None:
    assert redis_token(ROLE, replication_group="seckill-dev", user="seckill-dev-app") == (
        "seckill-dev/?Action=connect&User=seckill-dev-app"
        "&X-Amz-Algorithm=AWS4-HMAC-SHA256"
        "&X-Amz-Credential=AKIDEXAMPLE%2F20261129%2Feu-west-1%2Felasticache%2Faws4_request"
        "&X-Amz-Date=20261129T120000Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host"
        "&X-Amz-Security-Token=FwoGZXIvYXdzEXAMPLE%2Btoken%2F%3D%3D"
        "&X-Amz-Signature=392a60927a4f4669c1b8d2eb58487b80eb7e5c8d2db6063021fb3f9a6ad2e2d6"
    )


def test_a_database_token_is_the_one_that_boto3_makes() -> None:
    client = boto3.client(
        "rds",
        region_name=ROLE.aws_region,
        aws_access_key_id=ROLE.aws_access_key_id,
        aws_secret_access_key=ROLE.aws_secret_access_key,
        aws_session_token=ROLE.aws_session_token,
    )
    theirs = client.generate_db_auth_token(PROXY, 3306, "seckill_app")
    assert database_token(ROLE, host=PROXY, port=3306, user="seckill_app") == theirs


@pytest.mark.parametrize("service", ["rds-db", "elasticache"])
def test_the_signature_is_that_of_signature_version_4(service: str) -> None:
    token = (
        database_token(ROLE, host=PROXY, port=3306, user="seckill_app")
        if service == "rds-db"
        else redis_token(ROLE, replication_group="seckill-dev", user="seckill-dev-app")
    )
    parts = urlsplit("//" + token)
    query, _, signature = parts.query.rpartition("&X-Amz-Signature=")
    canonical_query = "&".join(sorted(query.split("&")))
    canonical = f"GET\n/\n{canonical_query}\nhost:{parts.netloc}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
    scope = dict(parse_qsl(query))["X-Amz-Credential"].partition("/")[2]
    to_sign = f"AWS4-HMAC-SHA256\n20261129T120000Z\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = ("AWS4" + ROLE.aws_secret_access_key).encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    assert hmac.digest(key, to_sign.encode(), "sha256").hex() == signature


def test_without_a_session_token_none_is_signed() -> None:
    role = Role("AKIDEXAMPLE", "secret", "eu-west-1")
    assert "Security-Token" not in redis_token(role, replication_group="g", user="u")


def test_signing_loads_neither_session_nor_client_nor_loader() -> None:
    script = (
        "import sys\n"
        "from seckill.adapters.iam_tokens import Role, database_token\n"
        "assert not [name for name in sys.modules if name.startswith('boto')]\n"
        "database_token(Role('a', 'b', 'eu-west-1'), host='h', port=1, user='u')\n"
        "loaded = {'boto3', 'botocore.session', 'botocore.client', 'botocore.loaders', 'botocore.credentials'}\n"
        "print(sorted(loaded & set(sys.modules)))\n"
    )
    shared = Path(__file__).parents[2] / "layers" / "seckill" / "python"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=shared, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


class Clock:
    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def test_a_token_is_signed_once_and_again_shortly_before_it_expires() -> None:
    clock, signed = Clock(), iter(["first", "second"])
    token = Token(lambda: next(signed), clock)
    assert token.text() == "first"
    clock.seconds += LIFETIME_SECONDS - 61
    assert token.text() == "first"
    clock.seconds += 1
    assert token.text() == "second"


def test_a_refused_token_is_signed_again() -> None:
    signed = iter(["first", "second"])
    token = Token(lambda: next(signed))
    assert token.text() == "first"
    token.refused()
    assert token.text() == "second"
