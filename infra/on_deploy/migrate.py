"""The custom resource's handler: runs sale_admin's `migrate` on create and update; if it fails, the deployment does.

It runs on Lambda with the runtime's own boto3, outside the VPC: the Lambda API needs no endpoint from there.
"""

import json
import os
import time
from typing import Any

import boto3
from botocore.config import Config

# Longer than sale_admin may run: a migration must not be started twice because a reply was slow.
_CONFIG = Config(read_timeout=330, retries={"total_max_attempts": 1})
# A new proxy is there some minutes before it has found its database: 20 tries, 20 s apart, are within our 15 minutes.
_TRIES, _PAUSE_SECONDS = 20, 20
# UNAVAILABLE's detail begins with the error's number. Below 1000 it is the system's (nobody answers, no address yet),
# 2000 to 2999 are the client's. The following are those of a server that cannot be had yet, or no longer: 1045 is a
# grant on its way, 9501 the proxy that has found no server. 1205 and 1213 say that somebody held a lock. Any other
# number means the migration itself, which would fail again.
_NO_CONNECTION = {1040, 1045, 1053, 1152, 1153, 1158, 1159, 1160, 1161, 1203, 1290, 1792, 1836, 1927, 9501}
_LOCKED = {1205, 1213}


def _is_not_yet(answer: dict[str, Any]) -> bool:
    if answer.get("error") != "UNAVAILABLE":
        return answer.get("error") == "MIGRATION_RUNNING"
    number, _, _ = str(answer.get("detail", "")).partition(":")
    code = int(number) if number.removeprefix("-").isdecimal() else 0
    return code < 1000 or 2000 <= code <= 2999 or code in _NO_CONNECTION | _LOCKED


def handler(event: dict[str, Any], _context: object) -> dict[str, str]:
    if event["RequestType"] == "Delete":
        return {}  # the tables go, or stay, with the database
    for left in reversed(range(_TRIES)):
        answer = boto3.client("lambda", config=_CONFIG).invoke(
            FunctionName=os.environ["SALE_ADMIN"], Payload=json.dumps({"action": "migrate"})
        )
        body = json.loads(answer["Payload"].read())
        if not answer.get("FunctionError") and body.get("ok") is True:
            return {"PhysicalResourceId": "seckill-schema"}
        if answer.get("FunctionError") or not _is_not_yet(body) or not left:
            raise RuntimeError(f"migrate failed: {json.dumps(body)[:1000]}")
        time.sleep(_PAUSE_SECONDS)
    raise AssertionError("the last try returns or raises")
