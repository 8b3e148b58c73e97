"""`migrate` on every deployment that changes the schema: its failure fails the deployment."""

import hashlib
from pathlib import Path

from aws_cdk import CfnElement, CustomResource, Duration, Stack, custom_resources
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.acknowledge import acknowledge
from infra.bundling import SHARED
from infra.config import Environment
from infra.layers import OLDER_RUNTIME, RUNTIME
from infra.log_groups import log_group

_HANDLER = Path(__file__).parent / "on_deploy" / "migrate.py"
MIGRATIONS = SHARED / "seckill" / "sql"


class Migration(Construct):
    """A custom resource whose property is the hash of the migrations."""

    def __init__(
        self, scope: Construct, construct_id: str, *, environment: Environment, sale_admin: lambda_.Function
    ) -> None:
        super().__init__(scope, construct_id)
        logs = log_group(self, "Log", environment=environment)
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        logs.grant_write(role)
        handler = lambda_.Function(
            self,
            "Handler",
            description="Runs sale_admin's migrate during a deployment",
            runtime=RUNTIME,
            code=lambda_.Code.from_inline(_HANDLER.read_text()),
            handler="index.handler",
            environment={"SALE_ADMIN": sale_admin.function_name},
            timeout=Duration.minutes(15),
            role=role,
            log_group=logs,
            logging_format=lambda_.LoggingFormat.JSON,
        )
        role.add_to_policy(iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[sale_admin.function_arn]))
        framework_logs = log_group(self, "FrameworkLog", environment=environment)
        provider = custom_resources.Provider(self, "Provider", on_event_handler=handler, log_group=framework_logs)
        self.resource = CustomResource(
            self,
            "Schema",
            service_token=provider.service_token,
            resource_type="Custom::SeckillSchema",
            properties={"Migrations": migrations_hash(MIGRATIONS)},
        )
        inner = handler.node.default_child
        assert isinstance(inner, CfnElement)  # noqa: S101 - what a Function is made of
        acknowledge(handler, OLDER_RUNTIME)
        acknowledge(
            provider,
            (
                "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole]",
                "The CDK's provider framework makes this role for itself; it writes the framework's log.",
            ),
            (
                f"AwsSolutions-IAM5[Resource::<{Stack.of(self).get_logical_id(inner)}.Arn>:*]",
                "The CDK's provider framework invokes the handler above, by any version, and nothing else.",
            ),
        )


def migrations_hash(folder: Path) -> str:
    """Changes when a migration, or the grants made with it, change."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.sql")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
