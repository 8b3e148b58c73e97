"""What every function carries: the locked dependencies and the shared code."""

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra import bundling
from infra.config import Environment

RUNTIME = lambda_.Runtime.PYTHON_3_13
OLDER_RUNTIME = (
    "AwsSolutions-L1",
    "Lambda supports python3.13 until 2029; wheels and byte code are built for it and tested "
    "on it, so a newer one is a decision.",
)


def architecture(environment: Environment) -> lambda_.Architecture:
    arm = environment.functions.architecture == "arm64"
    return lambda_.Architecture.ARM_64 if arm else lambda_.Architecture.X86_64


class Layers(Construct):
    """Two layers, so that a change of the code does not upload the wheels again."""

    def __init__(self, scope: Construct, construct_id: str, *, environment: Environment) -> None:
        super().__init__(scope, construct_id)
        self.all = [
            lambda_.LayerVersion(
                self,
                name,
                code=code,
                compatible_runtimes=[RUNTIME],
                compatible_architectures=[architecture(environment)],
                description=description,
            )
            for name, code, description in (
                (
                    "Dependencies",
                    bundling.dependencies(environment.functions.architecture),
                    "Locked wheels; boto3 is the runtime's",
                ),
                ("Shared", bundling.shared_code(), "seckill: domain, adapters, protocol, lua, sql"),
            )
        ]
