"""RDS Proxy: containers come by the hundred, the server's connections do not."""

from aws_cdk import Duration
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_rds as rds
from constructs import Construct

from infra.config import Environment
from infra.database import APP_USER, MASTER_USER, SCHEMA, DatabaseServer
from infra.log_groups import log_group
from infra.network import MYSQL, Network


class Proxy(Construct):
    """The only way to the database: TLS, IAM from end to end, and no password in any function.

    `seckill_app` is authenticated by IAM at the proxy and by the proxy at the server. The master user,
    whose password RDS
    keeps, is authenticated by IAM at the proxy too; the proxy alone reads the secret.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: Environment,
        network: Network,
        server: DatabaseServer,
        name: str,
    ) -> None:
        super().__init__(scope, construct_id)
        # The proxy writes to a group of this name and would make it without retention: hence the name.
        logs = log_group(self, "Log", environment=environment, name=f"/aws/rds/proxy/{name}")
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("rds.amazonaws.com"))
        server.grant_connect(role, APP_USER)
        self._proxy = rds.DatabaseProxy(
            self,
            "Proxy",
            db_proxy_name=name,
            proxy_target=server.proxy_target,
            role=role,
            secrets=[server.master_secret],
            iam_auth=True,
            default_auth_scheme=rds.DefaultAuthScheme.IAM_AUTH,
            require_tls=True,
            max_connections_percent=environment.database.proxy_percent,
            # A caller waits at most a second for the database (docs/protocol.md 4), so the proxy does not
            # make it wait longer.
            borrow_timeout=Duration.seconds(1),
            vpc=network.vpc,
            vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED),
            security_groups=[network.proxy],
        )
        self._proxy.node.add_dependency(logs)
        self.dimensions = {"ProxyName": name}

    def url(self, user: str = APP_USER) -> str:
        """DATABASE_URL for this user: no password, since the client signs a token with its role."""
        return f"mysql://{user}@{self._proxy.endpoint}:{MYSQL}/{SCHEMA}?tls=true&auth=iam"

    def grant_app(self, grantee: iam.IGrantable) -> None:
        self._proxy.grant_connect(grantee, APP_USER)

    def grant_master(self, grantee: iam.IGrantable) -> None:
        self._proxy.grant_connect(grantee, MASTER_USER)
