"""One Lambda function, in the VPC, with a role of its own and a log group of its own."""

from collections.abc import Mapping

from aws_cdk import Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra import bundling
from infra.acknowledge import acknowledge
from infra.config import Environment
from infra.layers import OLDER_RUNTIME, RUNTIME, Layers, architecture
from infra.log_groups import log_group
from infra.network import Network


class Function(Construct):
    """functions/<name>: `settings` is its whole environment, one entry for each field of its Settings class."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        environment: Environment,
        network: Network,
        layers: Layers,
        settings: Mapping[str, str],
        timeout_seconds: int,
        memory_mib: int,
        concurrency: int,
    ) -> None:
        super().__init__(scope, construct_id)
        self.timeout_seconds = timeout_seconds
        logs = log_group(self, "Log", environment=environment)
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        logs.grant_write(role)
        self._allow_network_interfaces(role)
        self.function = lambda_.Function(
            self,
            "Function",
            description=f"functions/{name}",
            runtime=RUNTIME,
            architecture=architecture(environment),
            code=bundling.function_code(name),
            handler=f"functions.{name}.handler.lambda_handler",
            layers=layers.all,
            environment={field.upper(): value for field, value in settings.items()},
            timeout=Duration.seconds(timeout_seconds),
            memory_size=memory_mib,
            reserved_concurrent_executions=concurrency if environment.functions.limit_concurrency else None,
            role=role,
            vpc=network.vpc,
            vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED),
            security_groups=[network.functions],
            tracing=lambda_.Tracing.ACTIVE,
            logging_format=lambda_.LoggingFormat.JSON,
            log_group=logs,
        )
        acknowledge(self.function, OLDER_RUNTIME)
        acknowledge(
            role,
            (
                "AwsSolutions-IAM5[Resource::*]",
                "X-Ray's writes and EC2's Describe* know no resources: AWS accepts only * for them.",
            ),
            (
                "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>:*/*]",
                "Lambda makes the network interface, whose id nobody knows before; its documentation asks "
                "for this very pattern.",
            ),
        )

    def _allow_network_interfaces(self, role: iam.Role) -> None:
        # What AWSLambdaVPCAccessExecutionRole grants on "*", as narrow as Lambda's VPC documentation allows.
        everything = Stack.of(self).format_arn(service="ec2", resource="*", resource_name="*")
        for resource, actions in (
            ("*", ("DescribeNetworkInterfaces", "DescribeSubnets")),
            (
                everything,
                (
                    "CreateNetworkInterface",
                    "DeleteNetworkInterface",
                    "AssignPrivateIpAddresses",
                    "UnassignPrivateIpAddresses",
                ),
            ),
        ):
            role.add_to_policy(
                iam.PolicyStatement(actions=[f"ec2:{action}" for action in actions], resources=[resource])
            )
