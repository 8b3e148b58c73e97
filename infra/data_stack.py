"""The stack that holds data: network, database, proxy, Redis."""

from aws_cdk import Stack
from constructs import Construct

from infra.config import Environment
from infra.database import DatabaseServer
from infra.log_groups import log_group
from infra.network import Network
from infra.proxy import Proxy
from infra.redis import RedisCopy


class DataStack(Stack):
    """What must outlive every version of the code."""

    def __init__(self, scope: Construct, construct_id: str, *, environment: Environment) -> None:
        super().__init__(
            scope,
            construct_id,
            description="Seckill: network, database and Redis",
            termination_protection=environment.keep_data,
        )
        name = f"seckill-{environment.name}"
        flow_logs = log_group(self, "FlowLog", environment=environment)
        self.network = Network(self, "Network", flow_logs=flow_logs)
        self.server = DatabaseServer(
            self, "Database", environment=environment, network=self.network, name=f"{name}-database"
        )
        self.proxy = Proxy(
            self,
            "Proxy",
            environment=environment,
            network=self.network,
            server=self.server,
            name=f"{name}-proxy",
        )
        self.redis = RedisCopy(self, "Redis", environment=environment, network=self.network, user=f"{name}-app")
