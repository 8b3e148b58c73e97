"""ElastiCache, and the user who may run the sale's scripts and nothing else."""

import re
from pathlib import Path
from typing import Any

from infra.redis import CLIENT_COMMANDS, SALE_COMMANDS
from tests.infra.deployment import Deployment, text

SHARED = Path(__file__).parents[2] / "layers" / "seckill" / "python" / "seckill"


def test_a_replica_in_another_zone_takes_over_by_itself(deployment: Deployment) -> None:
    config, group = (
        deployment.environment.redis,
        deployment.one("AWS::ElastiCache::ReplicationGroup").properties,
    )
    assert group["AutomaticFailoverEnabled"] is True
    assert group["MultiAZEnabled"] is True
    if config.cluster_mode:
        assert (group["NumNodeGroups"], group["ReplicasPerNodeGroup"]) == (config.shards, 1)
    else:
        assert group["NumCacheClusters"] == 2
    assert group["Engine"] == config.engine
    assert group["SnapshotRetentionLimit"] == config.snapshot_days


def test_everything_is_encrypted_and_tls_is_required(deployment: Deployment) -> None:
    group = deployment.one("AWS::ElastiCache::ReplicationGroup").properties
    assert group["TransitEncryptionEnabled"] is True
    assert group["TransitEncryptionMode"] == "required"
    assert group["AtRestEncryptionEnabled"] is True


def test_nothing_is_ever_evicted(deployment: Deployment) -> None:
    group = deployment.one("AWS::ElastiCache::ParameterGroup").properties
    assert group["Properties"]["maxmemory-policy"] == "noeviction"
    assert (
        group["CacheParameterGroupFamily"]
        == {"valkey": "valkey8", "redis": "redis7"}[deployment.environment.redis.engine]
    )
    assert group["Properties"].get("cluster-enabled") == ("yes" if deployment.environment.redis.cluster_mode else None)


def test_the_user_is_authenticated_by_iam_and_confined_to_the_sales_keys(deployment: Deployment) -> None:
    users = deployment.resources("AWS::ElastiCache::User")
    [app] = [user.properties for user in users if user.properties["UserName"] != "default"]
    assert app["AuthenticationMode"] == {"Type": "iam"}
    assert app["UserId"] == app["UserName"]  # IAM insists
    words = app["AccessString"].split()
    assert words[:4] == ["on", "~seckill:*", "resetchannels", "-@all"]
    assert not [word for word in words if "@" in word and word != "-@all"], "commands by name, not by category"
    dangerous = {
        "+flushall",
        "+flushdb",
        "+keys",
        "+config",
        "+debug",
        "+shutdown",
        "+acl",
        "+script",
        "+incrby",
    }
    assert not dangerous & set(words)


def test_the_default_user_is_dead(deployment: Deployment) -> None:
    users = deployment.resources("AWS::ElastiCache::User")
    default = [user.properties for user in users if user.properties["UserName"] == "default"]
    if deployment.environment.redis.engine == "valkey":
        assert default == []  # a Valkey group without a default user admits none
    else:
        assert [user["AccessString"] for user in default] == ["off -@all"]
    members = deployment.one("AWS::ElastiCache::UserGroup").properties["UserIds"]
    assert len(members) == len(users)


def test_the_url_follows_the_cluster(deployment: Deployment) -> None:
    url = text(_environment(deployment)["REDIS_URL"])
    clustered = deployment.environment.redis.cluster_mode
    user = next(
        user.properties["UserName"]
        for user in deployment.resources("AWS::ElastiCache::User")
        if user.properties["UserName"] != "default"
    )
    assert url.startswith(f"rediss://{user}@<")  # TLS is required, so the client uses it
    endpoint = "ConfigurationEndPoint" if clustered else "PrimaryEndPoint"
    assert f"{endpoint}Address" in url
    assert ":6379/0?auth=iam&cache=<" in url
    assert url.endswith("&cluster=true") is clustered


def test_the_user_may_call_what_the_code_calls_and_nothing_else() -> None:
    scripts = "".join(script.read_text() for script in sorted((SHARED / "lua").glob("*.lua")))
    adapter = (SHARED / "adapters" / "redis.py").read_text()
    called = re.findall(r"""redis\.p?call\(\s*['"](\w+)['"]""", scripts)
    called += re.findall(r"""_command\(\s*['"](\w+)['"]""", adapter)
    assert {name.lower() for name in called} - set(CLIENT_COMMANDS) == set(SALE_COMMANDS)


def _environment(deployment: Deployment) -> dict[str, Any]:
    found: dict[str, Any] = deployment.function("reserve").properties["Environment"]["Variables"]
    return found
