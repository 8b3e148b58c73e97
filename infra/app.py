"""The CDK app: context -> environment -> two stacks. The only place that reads the context."""

import sys

from aws_cdk import App, Tags, Validations
from cdk_nag import AwsSolutionsChecks

from infra.bundling import find_python
from infra.config import ConfigurationError, Environment, environment_from_context
from infra.data_stack import DataStack
from infra.service_stack import ServiceStack

# Recommended behaviour that the CDK keeps behind a flag for older apps. Here rather than in cdk.json, so
# that a synth without the CDK's command line gives the same template.
FLAGS = {
    "@aws-cdk/aws-iam:minimizePolicies": True,
    "@aws-cdk/core:checkSecretUsage": True,
    # The data stack may not drop what the service stack still uses.
    "@aws-cdk/core:defaultCrossStackReferences": "strong",
    "@aws-cdk/core:target-partitions": ["aws", "aws-cn"],
    "@aws-cdk/aws-ec2:uniqueImdsv2TemplateName": True,
    "@aws-cdk/aws-lambda:recognizeLayerVersion": True,
    "@aws-cdk/aws-rds:databaseProxyUniqueResourceName": True,
    "@aws-cdk/aws-iam:importedRoleStackSafeDefaultPolicyName": True,
    "@aws-cdk/custom-resources:logApiResponseDataPropertyTrueDefault": False,
}


def build(app: App, environment: Environment) -> None:
    """Both stacks of one environment, in the app, with the AWS Solutions rules over them."""
    data = DataStack(app, f"seckill-{environment.name}-data", environment=environment)
    ServiceStack(app, f"seckill-{environment.name}", environment=environment, data=data)
    for key, value in (("project", "seckill"), ("environment", environment.name)):
        # CloudFormation's target group takes no tags, though the CDK would put them there.
        Tags.of(app).add(key, value, exclude_resource_types=["AWS::RDS::DBProxyTargetGroup"])
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))


def main() -> int:
    app = App(context=FLAGS)
    try:
        context = app.node.get_all_context()
        # Empty for commands that need no code, such as `cdk destroy`.
        if context.get("aws:cdk:bundling-stacks") != []:
            find_python()
        build(app, environment_from_context(context))
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    app.synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
