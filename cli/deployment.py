"""The functions of a deployed stack, invoked directly: sale_admin and reconcile are not reachable over HTTP.

Account, region and credentials are those that AWS's own tools would use (AWS_PROFILE, AWS_REGION and so on).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from local.stack import RECONCILE, SALE_ADMIN

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

# The outputs of the stack in which infra/service_stack.py names the functions.
OUTPUTS = {SALE_ADMIN: "SaleAdminFunction", RECONCILE: "ReconcileFunction"}
# Longer than the longest time-out of the two functions (sale_admin's `migrate`, 300 s).
ANSWER_SECONDS = 310
CONNECT_SECONDS = 5


class DeploymentError(Exception):
    """AWS or the function cannot be reached, or the function failed; the message is one line."""


def invoke_deployed(stack: str, handler: str, event: Mapping[str, Any]) -> Any:
    """The answer of the stack's `handler` to `event`. Raises DeploymentError."""
    # An invocation that brought no answer may have run: whether to ask again is for a person to say.
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=ANSWER_SECONDS,
        retries={"total_max_attempts": 1},
        tcp_keepalive=True,
    )
    try:
        name = _function_name(stack, OUTPUTS[handler], config)
        client: LambdaClient = boto3.client("lambda", config=config)
        answer = client.invoke(FunctionName=name, Payload=json.dumps(event))
        payload = json.load(answer["Payload"])
    except (BotoCoreError, ClientError) as error:
        raise DeploymentError(_one_line(f"{stack}: {error}")) from error
    except ValueError as error:  # what answered is no Lambda
        raise DeploymentError(f"{stack}: {name} answered what is not JSON") from error
    if "FunctionError" in answer:
        what = payload.get("errorMessage") or payload.get("errorType") or "no reason given"
        raise DeploymentError(_one_line(f"{stack}: {name} failed: {what}"))
    return payload


def _function_name(stack: str, output: str, config: Config) -> str:
    found = boto3.client("cloudformation", config=config).describe_stacks(StackName=stack)["Stacks"]
    names = [each["OutputValue"] for each in found[0].get("Outputs", []) if each["OutputKey"] == output]
    if not names:
        raise DeploymentError(f"{stack}: this stack has no output {output}; is it the one with the functions?")
    return str(names[0])


def _one_line(text: str) -> str:
    return " ".join(text.split())
