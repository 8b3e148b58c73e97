"""ElastiCache: the fast, forgetful copy of the sale."""

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticache as elasticache
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.acknowledge import acknowledge
from infra.config import Environment
from infra.keeping import removal_policy
from infra.network import REDIS, Network

# What the Lua scripts and the adapter call: tests/infra reads both and holds this list to them.
SALE_COMMANDS = (
    *("del", "expire", "hdel", "hget", "hgetall", "hlen", "hmget", "hscan", "hset", "persist", "rename"),
    *("sadd", "smismember", "srem", "time"),
)
# What the client calls around them: the handshake, the scripts themselves, and the cluster's map.
CLIENT_COMMANDS = ("auth", "ping", "select", "eval", "evalsha", "cluster|slots", "command")
ACCESS = " ".join(
    (
        "on",
        "~seckill:*",
        "resetchannels",
        "-@all",
        *(f"+{name}" for name in (*CLIENT_COMMANDS, *SALE_COMMANDS)),
    )
)
_VERSION = {"valkey": ("8.1", "valkey8"), "redis": ("7.1", "redis7")}


class RedisCopy(Construct):
    """A primary and a replica in another zone, TLS, one user authenticated by IAM who may only run the
    sale's scripts."""

    def __init__(
        self, scope: Construct, construct_id: str, *, environment: Environment, network: Network, user: str
    ) -> None:
        super().__init__(scope, construct_id)
        self._config, self.user = environment.redis, user
        subnets = elasticache.CfnSubnetGroup(
            self,
            "Subnets",
            description="The isolated subnets",
            subnet_ids=network.vpc.select_subnets(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED).subnet_ids,
        )
        self._group = elasticache.CfnReplicationGroup(
            self,
            "Group",
            replication_group_description="The Redis copy of the sales on offer",
            engine=self._config.engine,
            engine_version=_VERSION[self._config.engine][0],
            cache_node_type=f"cache.{self._config.node_type}",
            cache_parameter_group_name=self._parameters().ref,
            cache_subnet_group_name=subnets.ref,
            security_group_ids=[network.redis.security_group_id],
            port=REDIS,
            automatic_failover_enabled=True,
            multi_az_enabled=True,
            # One replica either way.
            num_cache_clusters=None if self._config.cluster_mode else 2,
            num_node_groups=self._config.shards if self._config.cluster_mode else None,
            replicas_per_node_group=1 if self._config.cluster_mode else None,
            at_rest_encryption_enabled=True,
            transit_encryption_enabled=True,
            transit_encryption_mode="required",
            user_group_ids=[self._users().ref],
            snapshot_retention_limit=self._config.snapshot_days,
        )
        # Never "Snapshot": MySQL is the truth and a rebuild loads Redis from it, so a last snapshot would only cost.
        self._group.apply_removal_policy(removal_policy(environment))
        acknowledge(
            self._group,
            (
                "AwsSolutions-AEC5",
                "REDIS_URL names 6379; only the functions' security group reaches it, by TLS and IAM.",
            ),
            (
                "AwsSolutions-AEC6",
                "Users are authenticated by IAM (a user group), which excludes the older AUTH token.",
            ),
        )

    @property
    def url(self) -> str:
        """REDIS_URL: the client signs a token with its role, bound to the replication group's id."""
        group = self._group
        host = (
            group.attr_configuration_end_point_address
            if self._config.cluster_mode
            else group.attr_primary_end_point_address
        )
        cluster = "&cluster=true" if self._config.cluster_mode else ""
        return f"rediss://{self.user}@{host}:{REDIS}/0?auth=iam&cache={group.ref}{cluster}"

    @property
    def node_ids(self) -> tuple[str, ...]:
        """CacheClusterId of every node: ElastiCache has metrics by node, not by group."""
        shards = [f"-{shard:04d}" for shard in range(1, self._config.shards + 1)] if self._config.cluster_mode else [""]
        return tuple(f"{self._group.ref}{shard}-{node:03d}" for shard in shards for node in (1, 2))

    def grant_connect(self, grantee: iam.IGrantable) -> None:
        stack = Stack.of(self)
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["elasticache:Connect"],
            resource_arns=[
                stack.format_arn(
                    service="elasticache",
                    resource=kind,
                    resource_name=name,
                    arn_format=ArnFormat.COLON_RESOURCE_NAME,
                )
                for kind, name in (("replicationgroup", self._group.ref), ("user", self.user))
            ],
        )

    def _parameters(self) -> elasticache.CfnParameterGroup:
        return elasticache.CfnParameterGroup(
            self,
            "Parameters",
            cache_parameter_group_family=_VERSION[self._config.engine][1],
            description="Out of memory is an error that is seen; an evicted sale would be a lie that is not",
            properties={
                "maxmemory-policy": "noeviction",
                **({"cluster-enabled": "yes"} if self._config.cluster_mode else {}),
            },
        )

    def _users(self) -> elasticache.CfnUserGroup:
        # For IAM the name must equal the id, so the id is ours.
        members = [
            elasticache.CfnUser(
                self,
                "User",
                engine=self._config.engine,
                user_id=self.user,
                user_name=self.user,
                access_string=ACCESS,
                authentication_mode={"Type": "iam"},
            )
        ]
        # A Valkey group needs no default user and then admits none; a Redis OSS group must have one, so it
        # gets a dead one.
        if self._config.engine == "redis":
            members.append(
                elasticache.CfnUser(
                    self,
                    "Default",
                    engine="redis",
                    user_id=f"{self.user}-default",
                    user_name="default",
                    access_string="off -@all",
                    authentication_mode={"Type": "no-password-required"},
                )
            )
        return elasticache.CfnUserGroup(
            self,
            "Users",
            engine=self._config.engine,
            user_group_id=f"{self.user}-users",
            user_ids=[member.ref for member in members],
        )
