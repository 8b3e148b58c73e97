"""Wrong values are refused at synth with a sentence; the connection budget holds in every configuration."""

import pytest

from infra.config import DEV, PROD, ConfigurationError, environment_from_context


@pytest.mark.parametrize(
    ("context", "sentence"),
    [
        ({"env": "staging"}, "env=staging is not known: say dev or prod."),
        (
            {"database.engine": "postgres"},
            "database.engine=postgres is not known: say mysql or aurora or mariadb.",
        ),
        ({"database.size": "3"}, "database.size is not a setting."),
        ({"database.max_connections": "many"}, "database.max_connections=many must be a number."),
        ({"redis.cluster_mode": "yes"}, "redis.cluster_mode=yes must be true or false."),
        ({"redis.shards": "2"}, "redis.shards above 1 needs redis.cluster_mode"),
        ({"database.instance_class": "t4g.small"}, "has no Performance Insights"),
        ({"api.issuer": "https://login.example"}, "api.issuer and api.audience belong together"),
        ({"api.issuer": "http://login.example", "api.audience": "a"}, "must be an https URL"),
        ({"api.cors_origins": "*"}, "must name origins"),
        ({"api.requests_per_second": "20000"}, "must be between 1 and 10000"),
        ({"alarm_email": "nobody"}, "must be an e-mail address"),
        ({"alarm_email": "@"}, "must be an e-mail address"),
        ({"datbase.engine": "aurora"}, "datbase.engine is not a setting."),
        ({"log_day": "3"}, "log_day is not a setting."),
        ({"name": "prod"}, "name is not a setting."),
        ({"redis.node_type": "banana.big"}, "redis.node_type must look like"),
        ({"database.instance_class": "x.y"}, "database.instance_class must look like"),
        ({"api.issuer": "https://", "api.audience": "a"}, "must be an https URL"),
        ({"api.cors_origins": "shop.example"}, "api.cors_origins must look like"),
        ({"log_days": "8"}, "log_days must be one of"),
        ({"functions.land_order_concurrency": "1"}, "what an SQS event source allows"),
        (
            {"env": "prod", "functions.reserve_concurrency": "890"},
            "Lambda lets an account with 1000 reserve at most 900",
        ),
        ({"env": "prod", "functions.reserve_concurrency": "700"}, "can hold 724 database connections"),
    ],
)
def test_a_wrong_value_is_refused_with_a_sentence(context: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        environment_from_context(context)
    assert sentence in str(refused.value)


def test_the_cdks_own_context_is_none_of_our_settings() -> None:
    keys = (
        "aws:cdk:bundling-stacks",
        "@aws-cdk/aws-iam:minimizePolicies",
        "cli-telemetry",
        "availability-zones:eu-west-1",
    )
    assert environment_from_context(dict.fromkeys(keys, "x")) == DEV


def test_single_values_are_put_over_the_environment() -> None:
    environment = environment_from_context(
        {
            "env": "prod",
            "database.engine": "aurora",
            "api.cors_origins": "https://a.example, https://b.example",
        }
    )
    assert environment.database.engine == "aurora"
    assert environment.api.cors_origins == ("https://a.example", "https://b.example")
    assert environment.redis == PROD.redis


@pytest.mark.parametrize("environment", [DEV, PROD], ids=lambda environment: environment.name)
def test_functions_hold_no_more_connections_than_the_proxy_and_the_proxy_fewer_than_the_server(
    environment: object,
) -> None:
    assert isinstance(environment, type(DEV))
    wanted = environment.functions.database_connections
    assert wanted <= environment.database.proxy_connections < environment.database.max_connections


def test_without_limits_every_container_of_the_account_may_hold_two_connections() -> None:
    assert DEV.functions.limit_concurrency is False
    assert DEV.functions.database_connections == 2 * DEV.functions.account_concurrency


def test_prod_holds_one_connection_for_each_container_and_a_second_where_a_rebuild_runs() -> None:
    # 500 reserve + 10 land_order + 2 x (5 reconcile + 2 sale_admin)
    assert PROD.functions.database_connections == 524
