"""The custom resource's handler: runs sale_admin's `migrate` on create and update, and fails the
deployment if it fails.

It runs on Lambda with the runtime's own boto3, outside the VPC: the Lambda API needs no endpoint from there.
"""

import json
import os
from typing import Any

import boto3
from botocore.config import Config

# As long as this function may run: a migration must not be started twice because a reply was slow.
_CONFIG = Config(read_timeout=840, retries={"total_max_attempts": 1})


def handler(event: dict[str, Any], _context: object) -> dict[str, str]:
    if event["RequestType"] == "Delete":
        return {}  # the tables go, or stay, with the database
    answer = boto3.client("lambda", config=_CONFIG).invoke(
        FunctionName=os.environ["SALE_ADMIN"], Payload=json.dumps({"action": "migrate"})
    )
    body = json.loads(answer["Payload"].read())
    if answer.get("FunctionError") or body.get("ok") is not True:
        raise RuntimeError(f"migrate failed: {json.dumps(body)[:1000]}")
    return {"PhysicalResourceId": "seckill-schema"}
