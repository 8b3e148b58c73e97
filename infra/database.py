"""The MySQL-family server: RDS for MySQL, RDS for MariaDB, or Aurora MySQL Serverless v2."""

from aws_cdk import Duration, RemovalPolicies
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_rds as rds
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.acknowledge import acknowledge
from infra.config import Environment
from infra.keeping import removal_policy
from infra.log_groups import log_group
from infra.network import Network

SCHEMA = "seckill"
MASTER_USER = "seckill_admin"  # RDS keeps its password; only `migrate` logs in as it
APP_USER = "seckill_app"  # made by `migrate`: SELECT, INSERT, UPDATE on the tables, authenticated by IAM

# None of them may be set per request (that would pin the proxy), so the server has them.
_PARAMETERS = {
    "time_zone": "UTC",
    "innodb_lock_wait_timeout": "1",  # the default, 50 s, is longer than any caller waits
    "slow_query_log": "1",
    "long_query_time": "1",
    "log_output": "FILE",  # what RDS exports
    "require_secure_transport": "1",
}
# A promise is made only of what is on disk. Aurora's storage makes every commit durable, with no binlog and no log of
# InnoDB's to flush: it has no sync_binlog, and the other, whose default is 1, need not even be modifiable there.
_ON_DISK = {"innodb_flush_log_at_trx_commit": "1", "sync_binlog": "1"}


class DatabaseServer(Construct):
    """One server, whatever its engine, with the master secret and the slow-query log it brings."""

    def __init__(
        self, scope: Construct, construct_id: str, *, environment: Environment, network: Network, name: str
    ) -> None:
        super().__init__(scope, construct_id)
        self._environment, self._network, self.name = environment, network, name
        aurora = environment.database.engine == "aurora"
        # RDS writes its log to a group of this name and would make one without retention, outside the
        # stack. That is why the server has a name of its own.
        self.slow_log = log_group(
            self,
            "SlowLog",
            environment=environment,
            name=f"/aws/rds/{'cluster' if aurora else 'instance'}/{name}/slowquery",
        )
        self._server: rds.DatabaseInstance | rds.DatabaseCluster = self._cluster() if aurora else self._instance()
        self._server.node.add_dependency(self.slow_log)
        # Under any policy but RETAIN itself the CDK deletes these two, and a kept database needs both.
        RemovalPolicies.of(self._server).apply(
            removal_policy(environment), apply_to_resource_types=["AWS::RDS::DBInstance", "AWS::RDS::DBSubnetGroup"]
        )
        assert self._server.secret is not None, "manage_master_user_password makes one"  # noqa: S101
        self.master_secret: secretsmanager.ISecret = self._server.secret
        self.dimensions = {"DBClusterIdentifier" if aurora else "DBInstanceIdentifier": name}
        self._acknowledge()

    @property
    def resource_id(self) -> str | None:
        """The instance's immutable id, which Performance Insights goes by; an Aurora cluster has several, so None."""
        return None if isinstance(self._server, rds.DatabaseCluster) else self._server.instance_resource_id

    @property
    def proxy_target(self) -> rds.ProxyTarget:
        if isinstance(self._server, rds.DatabaseCluster):
            return rds.ProxyTarget.from_cluster(self._server)
        return rds.ProxyTarget.from_instance(self._server)

    def grant_connect(self, grantee: iam.IGrantable, user: str) -> None:
        self._server.grant_connect(grantee, user)

    def _instance(self) -> rds.DatabaseInstance:
        database, keep = self._environment.database, self._environment.keep_data
        return rds.DatabaseInstance(
            self,
            "Instance",
            instance_identifier=self.name,
            engine=_instance_engine(database.engine),
            instance_type=ec2.InstanceType(database.instance_class),
            multi_az=database.multi_az,
            allocated_storage=database.storage_gib,
            max_allocated_storage=database.storage_gib * 5,
            storage_type=rds.StorageType.GP3,
            storage_encrypted=True,
            parameter_group=self._instance_parameters(),
            database_name=SCHEMA,
            credentials=rds.Credentials.from_username(MASTER_USER),
            manage_master_user_password=True,
            iam_authentication=True,
            vpc=self._network.vpc,
            vpc_subnets=_ISOLATED,
            security_groups=[self._network.database],
            publicly_accessible=False,
            backup_retention=Duration.days(database.backup_days),
            delete_automated_backups=not keep,
            deletion_protection=keep,
            removal_policy=removal_policy(self._environment),
            database_insights_mode=_INSIGHTS[database.insights],
            enable_performance_insights=True,
            performance_insight_retention=_INSIGHTS_RETENTION[database.insights],
            cloudwatch_logs_exports=["slowquery"],
            monitoring_interval=Duration.minutes(1),
        )

    def _cluster(self) -> rds.DatabaseCluster:
        database, keep = self._environment.database, self._environment.keep_data
        return rds.DatabaseCluster(
            self,
            "Cluster",
            cluster_identifier=self.name,
            engine=_AURORA,
            writer=rds.ClusterInstance.serverless_v2("Writer", publicly_accessible=False),
            readers=[rds.ClusterInstance.serverless_v2("Standby", scale_with_writer=True)] if database.multi_az else [],
            serverless_v2_min_capacity=database.min_capacity_acu,
            serverless_v2_max_capacity=database.max_capacity_acu,
            storage_encrypted=True,
            parameter_group=self._cluster_parameters(),
            default_database_name=SCHEMA,
            credentials=rds.Credentials.from_username(MASTER_USER),
            manage_master_user_password=True,
            iam_authentication=True,
            vpc=self._network.vpc,
            vpc_subnets=_ISOLATED,
            security_groups=[self._network.database],
            backup=rds.BackupProps(retention=Duration.days(database.backup_days)),
            delete_automated_backups=not keep,
            deletion_protection=keep,
            removal_policy=removal_policy(self._environment),
            database_insights_mode=_INSIGHTS[database.insights],
            enable_performance_insights=True,
            performance_insight_retention=_INSIGHTS_RETENTION[database.insights],
            cloudwatch_logs_exports=["slowquery"],
            monitoring_interval=Duration.minutes(1),
        )

    def _instance_parameters(self) -> rds.ParameterGroup:
        # MariaDB learnt MySQL's name for the isolation only in 11.1.
        isolation = "tx_isolation" if self._environment.database.engine == "mariadb" else "transaction_isolation"
        return rds.ParameterGroup(
            self,
            "Parameters",
            engine=_instance_engine(self._environment.database.engine),
            description="What the protocol needs of the server (docs/protocol.md 3)",
            parameters={
                **_PARAMETERS,
                isolation: "READ-COMMITTED",
                **_ON_DISK,
                "max_connections": str(self._environment.database.max_connections),
            },
        )

    def _cluster_parameters(self) -> rds.ParameterGroup:
        return rds.ParameterGroup(
            self,
            "Parameters",
            engine=_AURORA,
            description="What the protocol needs of the server (docs/protocol.md 3)",
            parameters={
                **_PARAMETERS,
                "transaction_isolation": "READ-COMMITTED",
                "max_connections": str(self._environment.database.max_connections),
            },
        )

    def _acknowledge(self) -> None:
        rules = [
            (
                "AwsSolutions-RDS11",
                "Only the proxy's security group reaches the server, from isolated subnets: a port nobody "
                "guesses adds nothing.",
            )
        ]
        if self._environment.database.engine == "aurora":
            rules.append(
                (
                    "AwsSolutions-RDS14",
                    "A backtrack would take back orders that users were told of; a restore goes to a new "
                    "cluster instead.",
                )
            )
        if not self._environment.keep_data:
            rules.append(("AwsSolutions-RDS10", "dev: the database is meant to go with the stack, data and all."))
        if not self._environment.database.multi_az:
            rules.append(("AwsSolutions-RDS3", "dev: one zone halves the price; a lost zone loses test data."))
        acknowledge(self._server, *rules)
        acknowledge(
            self._server,
            (
                "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/AmazonRDSEnhancedMonitoringRole]",
                "RDS asks for this policy by name: it lets RDS write the server's own metrics and nothing else.",
            ),
        )


_ISOLATED = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)
_AURORA = rds.DatabaseClusterEngine.aurora_mysql(version=rds.AuroraMysqlEngineVersion.VER_3_12_0)
_INSIGHTS = {"standard": rds.DatabaseInsightsMode.STANDARD, "advanced": rds.DatabaseInsightsMode.ADVANCED}
# Standard is free for seven days; advanced is sold with fifteen months, and RDS refuses anything else.
_INSIGHTS_RETENTION = {
    "standard": rds.PerformanceInsightRetention.DEFAULT,
    "advanced": rds.PerformanceInsightRetention.MONTHS_15,
}


def _instance_engine(engine: str) -> rds.IInstanceEngine:
    if engine == "mariadb":
        # The line that the tests run against, and one with IAM authentication (10.11 and later).
        return rds.DatabaseInstanceEngine.maria_db(version=rds.MariaDbEngineVersion.VER_10_11_16)
    return rds.DatabaseInstanceEngine.mysql(version=rds.MysqlEngineVersion.VER_8_4_8)
