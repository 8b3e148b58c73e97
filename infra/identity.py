"""Who the users are: our own Cognito user pool, or any issuer named in the configuration."""

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_cognito as cognito
from constructs import Construct

from infra.acknowledge import acknowledge
from infra.config import Environment
from infra.keeping import removal_policy


class Identity(Construct):
    """Issuer and audience for the API's authorizer; the user of the shop is the token's `sub`."""

    def __init__(self, scope: Construct, construct_id: str, *, environment: Environment) -> None:
        super().__init__(scope, construct_id)
        if environment.api.issuer:
            self.issuer, self.audience = environment.api.issuer, list(environment.api.audience)
            return
        pool = cognito.UserPool(
            self,
            "Users",
            self_sign_up_enabled=False,
            sign_in_aliases=cognito.SignInAliases(email=True),
            password_policy=cognito.PasswordPolicy(
                min_length=12,
                require_digits=True,
                require_lowercase=True,
                require_uppercase=True,
                require_symbols=True,
            ),
            account_recovery=cognito.AccountRecovery.EMAIL_ONLY,
            deletion_protection=environment.keep_data,
            removal_policy=removal_policy(environment),
        )
        client = pool.add_client(
            "Client",
            auth_flows=cognito.AuthFlow(user_password=True, user_srp=True),
            access_token_validity=Duration.hours(1),
            id_token_validity=Duration.hours(1),
            prevent_user_existence_errors=True,
            disable_o_auth=True,
        )
        self.issuer = pool.user_pool_provider_url
        self.audience = [client.user_pool_client_id]
        acknowledge(
            pool,
            (
                "AwsSolutions-COG2",
                "A buyer's account, not an operator's: a second factor would cost the shop its buyers.",
            ),
            (
                "AwsSolutions-COG8",
                "The Plus plan is paid per user and month for threat protection; a shop that needs it "
                "names its own issuer.",
            ),
        )
        CfnOutput(Stack.of(self), "UserPoolId", value=pool.user_pool_id)
        CfnOutput(Stack.of(self), "UserPoolClientId", value=client.user_pool_client_id)
