"""Where people are told: operators of alarms, the shop of rolled-back reservations."""

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.config import Environment
from infra.keeping import removal_policy


class Topics(Construct):
    """Both take messages over TLS only and are encrypted with a key that CloudWatch may use (the account's
    own it may not)."""

    def __init__(self, scope: Construct, construct_id: str, *, environment: Environment) -> None:
        super().__init__(scope, construct_id)
        key = kms.Key(
            self,
            "Key",
            description="Alarms and roll-back notices",
            enable_key_rotation=True,
            removal_policy=removal_policy(environment),
        )
        key.grant_encrypt_decrypt(iam.ServicePrincipal("cloudwatch.amazonaws.com"))
        self._key = key
        self.alarms = sns.Topic(self, "Alarms", master_key=key, enforce_ssl=True)
        # A topic policy replaces the default one, so CloudWatch must be named: its alarms, of this account only.
        self.alarms.add_to_resource_policy(
            iam.PolicyStatement(
                actions=["sns:Publish"],
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                resources=[self.alarms.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            )
        )
        self.notices = sns.Topic(self, "Notices", master_key=key, enforce_ssl=True)
        if environment.alarm_email:
            self.alarms.add_subscription(subscriptions.EmailSubscription(environment.alarm_email))

    def grant_notify(self, grantee: iam.IGrantable) -> None:
        """May publish notices, and use the key for that alone (the CDK's own grant says kms:GenerateDataKey*)."""
        for actions, resource in (
            (["sns:Publish"], self.notices.topic_arn),
            (["kms:GenerateDataKey", "kms:Decrypt"], self._key.key_arn),
        ):
            iam.Grant.add_to_principal(grantee=grantee, actions=actions, resource_arns=[resource])
