"""The Lambda functions: what they run on, what they are told, what wakes them, what they may."""

import dataclasses
import importlib
from typing import Any

import pytest

from infra.database import APP_USER, MASTER_USER
from tests.infra.deployment import Deployment, Resource, text

SET_BY_LAMBDA = {"AWS_LAMBDA_INITIALIZATION_TYPE"}
NAMES = ("reserve", "land_order", "reconcile", "sale_admin")
TIMEOUTS_SECONDS = {"reserve": 5, "land_order": 10, "reconcile": 60, "sale_admin": 300}


@pytest.mark.parametrize("name", NAMES)
def test_a_function_runs_python_3_13_on_the_configured_architecture(deployment: Deployment, name: str) -> None:
    function = deployment.function(name).properties
    assert function["Runtime"] == "python3.13"
    assert function["Architectures"] == [deployment.environment.functions.architecture]
    assert function["Timeout"] == TIMEOUTS_SECONDS[name]
    assert len(function["Layers"]) == 2


@pytest.mark.parametrize("name", NAMES)
def test_a_function_is_traced_and_logs_json_with_retention(deployment: Deployment, name: str) -> None:
    function = deployment.function(name).properties
    assert function["TracingConfig"] == {"Mode": "Active"}
    assert function["LoggingConfig"]["LogFormat"] == "JSON"
    group = deployment.by_id(function["LoggingConfig"]["LogGroup"]["Ref"])
    assert group.properties["RetentionInDays"] == deployment.environment.log_days


@pytest.mark.parametrize("name", NAMES)
def test_a_function_lives_in_the_isolated_subnets(deployment: Deployment, name: str) -> None:
    network = deployment.function(name).properties["VpcConfig"]
    assert len(network["SubnetIds"]) == 2
    assert len(network["SecurityGroupIds"]) == 1


@pytest.mark.parametrize("name", NAMES)
def test_the_environment_is_exactly_the_fields_of_the_settings(dev: Deployment, name: str) -> None:
    settings = importlib.import_module(f"functions.{name}.settings").Settings
    fields = {field.name.upper() for field in dataclasses.fields(settings)}
    assert set(_variables(dev, name)) == fields - SET_BY_LAMBDA


def test_no_secret_is_in_any_environment(deployment: Deployment) -> None:
    for function in deployment.resources("AWS::Lambda::Function"):
        for name, value in function.properties.get("Environment", {}).get("Variables", {}).items():
            assert "SecretArn" not in text(value), (function.id, name)
            assert "resolve:secretsmanager" not in text(value), (function.id, name)


def test_every_function_is_the_application_user_and_sale_admin_alone_the_master(
    deployment: Deployment,
) -> None:
    for name in NAMES:
        variables = _variables(deployment, name)
        url = text(variables["DATABASE_URL"])
        assert url.startswith(f"mysql://{APP_USER}@<")
        assert url.endswith(":3306/seckill?tls=true&auth=iam")
        users = {
            text(statement["Resource"]).rpartition("/")[2]
            for statement in _statements(deployment, name)
            if statement["Action"] == "rds-db:connect"
            for statement in [{"Resource": resource} for resource in _list(statement["Resource"])]
        }
        assert users == ({APP_USER, MASTER_USER} if name == "sale_admin" else {APP_USER})
        assert ("MIGRATION_DATABASE_URL" in variables) is (name == "sale_admin")


def test_the_stale_age_is_above_twice_what_a_reservation_can_take(deployment: Deployment) -> None:
    stale_seconds = int(_variables(deployment, "reconcile")["STALE_AFTER_SECONDS"])
    statement_seconds = 1
    assert stale_seconds > 2 * (TIMEOUTS_SECONDS["reserve"] + statement_seconds)
    assert _variables(deployment, "reconcile")["LANDING_ATTEMPTS"] == "3"


def test_concurrency_is_reserved_in_prod_and_can_be_switched_off(prod: Deployment, dev: Deployment) -> None:
    reserved = {name: prod.function(name).properties["ReservedConcurrentExecutions"] for name in NAMES}
    assert reserved == {"reserve": 500, "land_order": 10, "reconcile": 5, "sale_admin": 2}
    assert not any("ReservedConcurrentExecutions" in dev.function(name).properties for name in NAMES)


def test_reserve_is_kept_warm_where_configured(prod: Deployment, dev: Deployment) -> None:
    config = {"ProvisionedConcurrentExecutions": 20}
    assert prod.one("AWS::Lambda::Alias").properties["ProvisionedConcurrencyConfig"] == config
    assert "ProvisionedConcurrencyConfig" not in dev.one("AWS::Lambda::Alias").properties


def test_landings_come_in_batches_of_100_within_a_second_and_bounded_by_the_database(
    deployment: Deployment,
) -> None:
    [source] = _sources(deployment, "land_order")
    assert source["BatchSize"] == 100
    assert source["MaximumBatchingWindowInSeconds"] == 1
    assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    config = deployment.environment.functions
    assert source["ScalingConfig"] == {"MaximumConcurrency": config.land_order_concurrency}


def test_reconcile_is_woken_by_its_two_queues_one_message_at_a_time(deployment: Deployment) -> None:
    sources = _sources(deployment, "reconcile")
    assert len(sources) == 2
    for source in sources:
        assert source["BatchSize"] == 1
        assert source["ScalingConfig"] == {"MaximumConcurrency": 2}
        assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    reserved = deployment.function("reconcile").properties.get("ReservedConcurrentExecutions", 10)
    assert reserved >= 2 * len(sources) + 1  # the schedule's own


@pytest.mark.parametrize("name", ["reconcile", "sale_admin"])
def test_an_asynchronous_failure_leaves_a_trace(deployment: Deployment, name: str) -> None:
    function = deployment.function(name)
    [config] = [
        config.properties
        for config in deployment.resources("AWS::Lambda::EventInvokeConfig")
        if config.properties["FunctionName"] == {"Ref": function.id}
    ]
    assert config["MaximumRetryAttempts"] == 0
    queue = config["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0]
    assert deployment.by_id(queue).properties["MessageRetentionPeriod"] == 14 * 24 * 3600


def test_new_code_waits_for_its_schema_and_sale_admin_does_not_wait_for_itself(
    deployment: Deployment,
) -> None:
    schema = deployment.one("Custom::SeckillSchema")
    for name in ("reserve", "land_order", "reconcile"):
        assert schema.id in deployment.function(name).body["DependsOn"]
    assert schema.id not in deployment.function("sale_admin").body["DependsOn"]


def test_the_schema_resource_changes_with_the_migrations(deployment: Deployment, tmp_path: Any) -> None:
    from infra.migration import MIGRATIONS, migrations_hash  # noqa: PLC0415

    hashed = deployment.one("Custom::SeckillSchema").properties["Migrations"]
    assert hashed == migrations_hash(MIGRATIONS)
    (tmp_path / "1.sql").write_text("CREATE TABLE a (id INT)")
    before = migrations_hash(tmp_path)
    (tmp_path / "2.sql").write_text("CREATE TABLE b (id INT)")
    assert migrations_hash(tmp_path) != before


def _variables(deployment: Deployment, name: str) -> dict[str, Any]:
    found: dict[str, Any] = deployment.function(name).properties["Environment"]["Variables"]
    return found


def _statements(deployment: Deployment, name: str) -> list[dict[str, Any]]:
    return deployment.statements(deployment.role_of(deployment.function(name)))


def _sources(deployment: Deployment, name: str) -> list[dict[str, Any]]:
    function: Resource = deployment.function(name)
    return [
        source.properties
        for source in deployment.resources("AWS::Lambda::EventSourceMapping")
        if source.properties["FunctionName"] == {"Ref": function.id}
    ]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
