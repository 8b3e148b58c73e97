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
_NOT_YET = {"UNAVAILABLE", "MIGRATION_RUNNING"}


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
        if answer.get("FunctionError") or body.get("error") not in _NOT_YET or not left:
            raise RuntimeError(f"migrate failed: {json.dumps(body)[:1000]}")
        time.sleep(_PAUSE_SECONDS)
    raise AssertionError("the last try returns or raises")
