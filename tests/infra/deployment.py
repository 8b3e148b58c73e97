"""The templates of one configuration, read as facts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONFIGURATIONS: dict[str, dict[str, str]] = {
    "dev": {"env": "dev"},
    "prod": {"env": "prod", "alarm_email": "on-call@shop.example", "functions.reserve_provisioned": "20"},
    "prod-aurora-cluster-x86": {
        "env": "prod",
        "database.engine": "aurora",
        "redis.cluster_mode": "true",
        "redis.shards": "2",
        "functions.architecture": "x86_64",
    },
    "dev-mariadb-redis": {"env": "dev", "database.engine": "mariadb", "redis.engine": "redis"},
    "dev-aurora-own-issuer": {
        "env": "dev",
        "database.engine": "aurora",
        "api.issuer": "https://login.shop.example/",
        "api.audience": "shop",
        "api.public_status": "false",
        "api.cors_origins": "https://shop.example",
    },
}


@dataclass(frozen=True)
class Resource:
    """One resource of a template. `id` is the CDK's logical id: only ever used to follow references."""

    id: str
    type: str
    properties: dict[str, Any]
    body: dict[str, Any]


class Deployment:
    """The templates of one configuration, and the configuration."""

    def __init__(self, name: str, folder: Path) -> None:
        from aws_cdk import App  # noqa: PLC0415 - loading the CDK takes seconds, so only where it is used

        from infra.app import FLAGS, build  # noqa: PLC0415
        from infra.config import environment_from_context  # noqa: PLC0415

        self.name, self.folder = name, folder
        self.environment = environment_from_context(CONFIGURATIONS[name])
        app = App(context={**FLAGS, "aws:cdk:bundling-stacks": []}, outdir=str(folder))
        build(app, self.environment)
        app.synth()
        stack = f"seckill-{self.environment.name}"
        self.data = json.loads((folder / f"{stack}-data.template.json").read_text())
        self.service = json.loads((folder / f"{stack}.template.json").read_text())

    def resources(self, kind: str) -> list[Resource]:
        return [resource for resource in self._all() if resource.type == kind]

    def one(self, kind: str) -> Resource:
        found = self.resources(kind)
        assert len(found) == 1, f"{len(found)} resources of {kind}"
        return found[0]

    def by_id(self, logical_id: str) -> Resource:
        return next(resource for resource in self._all() if resource.id == logical_id)

    def function(self, name: str) -> Resource:
        """The Lambda function whose code is functions/<name>."""
        return next(
            resource
            for resource in self.resources("AWS::Lambda::Function")
            if resource.properties["Handler"] == f"functions.{name}.handler.lambda_handler"
        )

    def statements(self, role_id: str) -> list[dict[str, Any]]:
        """Every statement of every policy of this role."""
        return [
            statement
            for policy in self.resources("AWS::IAM::Policy")
            if {"Ref": role_id} in policy.properties["Roles"]
            for statement in policy.properties["PolicyDocument"]["Statement"]
        ]

    def role_of(self, function: Resource) -> str:
        return str(function.properties["Role"]["Fn::GetAtt"][0])

    def resolved(self, value: Any) -> str:
        """As `text`, with imports followed to what the other stack exports."""
        found = text(value)
        for output in self.data["Outputs"].values():
            if "Export" in output:
                found = found.replace(f"<{output['Export']['Name']}>", text(output["Value"]))
        return found

    def queues(self) -> dict[str, str]:
        """Logical ids by what the queues are for, found by what refers to them."""
        told = self.function("reserve").properties["Environment"]["Variables"]
        [beat] = [
            target["Arn"]["Fn::GetAtt"][0]
            for rule in self.resources("AWS::Events::Rule")
            for target in rule.properties["Targets"]
            if json.loads(target.get("Input", "{}")) == {"job": "beat"}
        ]
        [failures] = {
            config.properties["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0]
            for config in self.resources("AWS::Lambda::EventInvokeConfig")
        }
        work = {
            "landing": told["LANDING_QUEUE_URL"]["Ref"],
            "reconcile": told["RECONCILE_QUEUE_URL"]["Ref"],
            "beat": beat,
        }
        dead = {
            f"dead {name}": self.by_id(queue).properties["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"][0]
            for name, queue in work.items()
        }
        return work | dead | {"failures": failures}

    def _all(self) -> Iterator[Resource]:
        for template in (self.data, self.service):
            for logical_id, body in template["Resources"].items():
                yield Resource(logical_id, body["Type"], body.get("Properties", {}), body)


def text(value: Any) -> str:
    """A CloudFormation value as one string, references as <Id> or <Id.Attribute>, imports as <export name>."""
    if isinstance(value, str):
        return value
    [(name, argument)] = value.items()
    if name == "Ref":
        return f"<{argument}>"
    if name == "Fn::GetAtt":
        return f"<{'.'.join(argument)}>"
    if name == "Fn::ImportValue":
        return f"<{argument}>"
    if name == "Fn::Join":
        return str(argument[0]).join(text(part) for part in argument[1])
    return f"<{json.dumps(value)}>"  # a part of something else
