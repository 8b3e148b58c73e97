"""The server, its parameters and the proxy, for each engine."""

from typing import Any

from infra.database import APP_USER, MASTER_USER
from tests.infra.deployment import Deployment, text


def _server(deployment: Deployment) -> dict[str, Any]:
    aurora = deployment.environment.database.engine == "aurora"
    return deployment.one("AWS::RDS::DBCluster" if aurora else "AWS::RDS::DBInstance").properties


def _parameters(deployment: Deployment) -> dict[str, str]:
    aurora = deployment.environment.database.engine == "aurora"
    kind = "AWS::RDS::DBClusterParameterGroup" if aurora else "AWS::RDS::DBParameterGroup"
    found: dict[str, str] = deployment.one(kind).properties["Parameters"]
    return found


def test_the_server_is_encrypted_backed_up_watched_and_private(deployment: Deployment) -> None:
    config, server = deployment.environment.database, _server(deployment)
    assert server["StorageEncrypted"] is True
    assert server["BackupRetentionPeriod"] == config.backup_days
    assert server["DatabaseInsightsMode"] == config.insights
    assert server["EnableCloudwatchLogsExports"] == ["slowquery"]
    assert server["EnableIAMDatabaseAuthentication"] is True
    assert server["DeletionProtection"] is deployment.environment.keep_data
    for instance in deployment.resources("AWS::RDS::DBInstance"):
        assert not instance.properties.get("PubliclyAccessible", False)


def test_rds_keeps_the_master_password(deployment: Deployment) -> None:
    server = _server(deployment)
    assert server["ManageMasterUserPassword"] is True
    assert server["MasterUsername"] == MASTER_USER
    assert "MasterUserPassword" not in server
    assert deployment.resources("AWS::SecretsManager::Secret") == []


def test_the_engine_is_the_configured_one(deployment: Deployment) -> None:
    engine, version = {
        "mysql": ("mysql", "8.4."),
        "mariadb": ("mariadb", "10.11."),
        "aurora": ("aurora-mysql", "8.0."),
    }[deployment.environment.database.engine]
    server = _server(deployment)
    assert server["Engine"] == engine
    assert server["EngineVersion"].startswith(version)


def test_prod_has_a_standby_in_another_zone(prod: Deployment, deployments: Any) -> None:
    assert _server(prod)["MultiAZ"] is True
    aurora = deployments("prod-aurora-cluster-x86")
    assert len(aurora.resources("AWS::RDS::DBInstance")) == 2


def test_the_server_has_what_no_request_may_set(deployment: Deployment) -> None:
    parameters = _parameters(deployment)
    engine = deployment.environment.database.engine
    isolation = "tx_isolation" if engine == "mariadb" else "transaction_isolation"
    expected = {
        isolation: "READ-COMMITTED",
        "time_zone": "UTC",
        "innodb_lock_wait_timeout": "1",
        "slow_query_log": "1",
        "log_output": "FILE",
        "require_secure_transport": "1",
        "max_connections": str(deployment.environment.database.max_connections),
    }
    on_disk = {"innodb_flush_log_at_trx_commit": "1", "sync_binlog": "1"}
    if engine == "aurora":  # whose storage makes commits durable: these add nothing, and it may refuse them
        assert not on_disk.keys() & parameters.keys()
    else:
        expected |= on_disk
    assert expected.items() <= parameters.items()


def test_the_proxy_wants_tls_and_iam_from_end_to_end(deployment: Deployment) -> None:
    proxy = deployment.one("AWS::RDS::DBProxy").properties
    assert proxy["EngineFamily"] == "MYSQL"
    assert proxy["RequireTLS"] is True
    assert proxy["DefaultAuthScheme"] == "IAM_AUTH"
    # The master user alone logs in to the server by a secret, and to the proxy by IAM like everybody else.
    [master] = proxy["Auth"]
    assert master["AuthScheme"] == "SECRETS"
    assert master["IAMAuth"] == "REQUIRED"
    assert text(master["SecretArn"]).endswith("MasterUserSecret.SecretArn>")


def test_nobody_waits_longer_than_a_second_for_a_connection(deployment: Deployment) -> None:
    pool = deployment.one("AWS::RDS::DBProxyTargetGroup").properties["ConnectionPoolConfigurationInfo"]
    assert pool["ConnectionBorrowTimeout"] == 1
    assert "InitQuery" not in pool  # it would pin every connection


def test_the_connection_budget_is_what_the_templates_say(deployment: Deployment) -> None:
    pool = deployment.one("AWS::RDS::DBProxyTargetGroup").properties["ConnectionPoolConfigurationInfo"]
    server = int(_parameters(deployment)["max_connections"])
    proxy = server * pool["MaxConnectionsPercent"] // 100
    holds = {"reserve": 1, "land_order": 1, "reconcile": 2, "sale_admin": 2}
    if deployment.environment.functions.limit_concurrency:
        functions = sum(
            each * deployment.function(name).properties["ReservedConcurrentExecutions"] for name, each in holds.items()
        )
    else:
        functions = max(holds.values()) * deployment.environment.functions.account_concurrency
    assert functions <= proxy < server


def test_the_proxy_may_be_only_the_application_user_at_the_server(deployment: Deployment) -> None:
    role = deployment.one("AWS::RDS::DBProxy").properties["RoleArn"]["Fn::GetAtt"][0]
    connects = [s for s in deployment.statements(role) if s["Action"] == "rds-db:connect"]
    assert [text(s["Resource"]).rpartition("/")[2] for s in connects] == [APP_USER]
    secrets = [s for s in deployment.statements(role) if "secretsmanager:GetSecretValue" in s["Action"]]
    assert [text(s["Resource"]).endswith("MasterUserSecret.SecretArn>") for s in secrets] == [True]


def test_the_stack_owns_the_log_groups_that_rds_would_make(deployment: Deployment) -> None:
    names = {group.properties.get("LogGroupName") for group in deployment.resources("AWS::Logs::LogGroup")}
    server = _server(deployment)
    kind = "cluster" if "DBClusterIdentifier" in server else "instance"
    identifier = server.get("DBClusterIdentifier") or server["DBInstanceIdentifier"]
    proxy = deployment.one("AWS::RDS::DBProxy").properties["DBProxyName"]
    assert {f"/aws/rds/{kind}/{identifier}/slowquery", f"/aws/rds/proxy/{proxy}"} <= names
