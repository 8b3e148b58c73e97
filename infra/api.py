"""The HTTP API: four routes to one function, each behind the JWT authorizer."""

import json

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_lambda as lambda_
from aws_cdk.aws_apigatewayv2_authorizers import HttpJwtAuthorizer
from aws_cdk.aws_apigatewayv2_integrations import HttpLambdaIntegration
from constructs import Construct

from infra.acknowledge import acknowledge
from infra.config import Environment
from infra.identity import Identity
from infra.log_groups import log_group

STATUS = (apigateway.HttpMethod.GET, "/api/seckill/{skuId}")
ROUTES = (
    (apigateway.HttpMethod.POST, "/api/seckill/{skuId}"),
    STATUS,
    (apigateway.HttpMethod.GET, "/api/seckill/reservations"),
    (apigateway.HttpMethod.GET, "/api/seckill/reservations/{preDeductKey}"),
)
# One JSON line per request: no user, no token, no address.
_ACCESS_LOG = {
    "time": "requestTime",
    "request_id": "requestId",
    "route": "routeKey",
    "status": "status",
    "latency_ms": "responseLatency",
    "integration_latency_ms": "integrationLatency",
    "integration_error": "integrationErrorMessage",
    "authorizer_error": "authorizer.error",
    "gateway_error": "error.responseType",
}
# Answers come within 3 s (deadline 2.5 s); a cold start may come on top.
_INTEGRATION_TIMEOUT_SECONDS = 10


class Api(Construct):
    """Throttled, logged, and authenticated on every route but, by configuration, the sale status."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: Environment,
        identity: Identity,
        handler: lambda_.IFunction,
    ) -> None:
        super().__init__(scope, construct_id)
        config = environment.api
        self.api = apigateway.HttpApi(
            self,
            "Api",
            description="Seckill",
            create_default_stage=False,
            cors_preflight=_cors(config.cors_origins),
        )
        self.stage = apigateway.HttpStage(
            self,
            "Stage",
            http_api=self.api,
            stage_name="$default",
            auto_deploy=True,
            throttle=apigateway.ThrottleSettings(rate_limit=config.requests_per_second, burst_limit=config.burst),
        )
        self._log_accesses(environment)
        authorizer = HttpJwtAuthorizer(
            "Jwt",
            identity.issuer,
            jwt_audience=identity.audience,
            identity_source=["$request.header.Authorization"],
        )
        integration = HttpLambdaIntegration("Reserve", handler, timeout=Duration.seconds(_INTEGRATION_TIMEOUT_SECONDS))
        for method, path in ROUTES:
            public = config.public_status and (method, path) == STATUS
            routes = self.api.add_routes(
                path=path,
                methods=[method],
                integration=integration,
                authorizer=apigateway.HttpNoneAuthorizer() if public else authorizer,
            )
            if public:
                acknowledge(
                    routes[0],
                    (
                        "AwsSolutions-APIG4",
                        "A sale's state and stock are public; api.public_status=false closes this route too.",
                    ),
                )
        CfnOutput(Stack.of(self), "Endpoint", value=self.api.api_endpoint)

    def _log_accesses(self, environment: Environment) -> None:
        stage = self.stage.node.default_child
        assert isinstance(stage, apigateway.CfnStage)  # noqa: S101 - what an HttpStage is made of
        stage.access_log_settings = apigateway.CfnStage.AccessLogSettingsProperty(
            destination_arn=log_group(self, "AccessLog", environment=environment).log_group_arn,
            format=json.dumps({name: f"$context.{value}" for name, value in _ACCESS_LOG.items()}),
        )


def _cors(origins: tuple[str, ...]) -> apigateway.CorsPreflightOptions | None:
    if not origins:
        return None
    return apigateway.CorsPreflightOptions(
        allow_origins=list(origins),
        allow_methods=[apigateway.CorsHttpMethod.GET, apigateway.CorsHttpMethod.POST],
        allow_headers=["Authorization", "Content-Type", "X-Correlation-Id"],
        expose_headers=["Location", "Retry-After", "X-Correlation-Id"],
        max_age=Duration.hours(1),
    )
