"""The HTTP API: routes, who may call them, throttling, logs, CORS."""

import json
from typing import Any

from tests.infra.deployment import Deployment, text

STATUS = "GET /api/seckill/{skuId}"
ROUTES = {
    "POST /api/seckill/{skuId}",
    STATUS,
    "GET /api/seckill/reservations",
    "GET /api/seckill/reservations/{preDeductKey}",
}


def _routes(deployment: Deployment) -> dict[str, dict[str, Any]]:
    return {
        route.properties["RouteKey"]: route.properties for route in deployment.resources("AWS::ApiGatewayV2::Route")
    }


def test_the_routes_are_those_of_the_contract(deployment: Deployment) -> None:
    assert set(_routes(deployment)) == ROUTES


def test_every_route_has_the_authorizer_except_by_configuration_the_sale_status(
    deployment: Deployment,
) -> None:
    authorizer = {"Ref": deployment.one("AWS::ApiGatewayV2::Authorizer").id}
    for key, route in _routes(deployment).items():
        if key == STATUS and deployment.environment.api.public_status:
            assert route["AuthorizationType"] == "NONE"
        else:
            assert route["AuthorizationType"] == "JWT", key
            assert route["AuthorizerId"] == authorizer


def test_the_authorizer_believes_the_configured_issuer_or_our_own_user_pool(deployment: Deployment) -> None:
    authorizer = deployment.one("AWS::ApiGatewayV2::Authorizer").properties
    config, jwt = deployment.environment.api, authorizer["JwtConfiguration"]
    assert authorizer["AuthorizerType"] == "JWT"
    assert authorizer["IdentitySource"] == ["$request.header.Authorization"]
    if config.issuer:
        assert (jwt["Issuer"], jwt["Audience"]) == (config.issuer, list(config.audience))
        assert deployment.resources("AWS::Cognito::UserPool") == []
    else:
        client = deployment.one("AWS::Cognito::UserPoolClient")
        assert jwt["Audience"] == [{"Ref": client.id}]
        assert deployment.one("AWS::Cognito::UserPool").id in text(jwt["Issuer"])
        # README's first request uses a password.
        assert "ALLOW_USER_PASSWORD_AUTH" in client.properties["ExplicitAuthFlows"]


def test_requests_are_throttled_as_configured(deployment: Deployment) -> None:
    stage = deployment.one("AWS::ApiGatewayV2::Stage").properties
    config = deployment.environment.api
    assert stage["StageName"] == "$default"
    assert stage["DefaultRouteSettings"]["ThrottlingRateLimit"] == config.requests_per_second
    assert stage["DefaultRouteSettings"]["ThrottlingBurstLimit"] == config.burst


def test_access_logs_are_json_and_name_no_user(deployment: Deployment) -> None:
    settings = deployment.one("AWS::ApiGatewayV2::Stage").properties["AccessLogSettings"]
    line = json.loads(settings["Format"])
    assert {"time", "request_id", "route", "status", "latency_ms"} <= set(line)
    for private in ("identity", "authorizer.claims", "authorizer.principalId", "Authorization"):
        assert private not in settings["Format"]
    group = deployment.by_id(settings["DestinationArn"]["Fn::GetAtt"][0])
    assert group.properties["RetentionInDays"] == deployment.environment.log_days


def test_every_route_calls_the_alias_that_is_kept_warm(deployment: Deployment) -> None:
    alias = deployment.one("AWS::Lambda::Alias")
    integration = deployment.one("AWS::ApiGatewayV2::Integration").properties
    assert integration["IntegrationUri"] == {"Ref": alias.id}
    assert integration["PayloadFormatVersion"] == "2.0"
    assert alias.properties["FunctionName"] == {"Ref": deployment.function("reserve").id}


def test_cors_names_the_configured_origins_or_is_off(deployment: Deployment) -> None:
    api, origins = (
        deployment.one("AWS::ApiGatewayV2::Api").properties,
        deployment.environment.api.cors_origins,
    )
    if origins:
        assert api["CorsConfiguration"]["AllowOrigins"] == list(origins)
        assert "Authorization" in api["CorsConfiguration"]["AllowHeaders"]
    else:
        assert "CorsConfiguration" not in api
