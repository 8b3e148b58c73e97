"""The stack that runs: API, functions, queues, clock, and the eyes on them."""

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from infra.alarms import Alarms
from infra.api import Api
from infra.config import Environment
from infra.dashboard import Dashboard
from infra.data_stack import DataStack
from infra.functions import LAND_TIMEOUT_SECONDS, RECONCILE_TIMEOUT_SECONDS, Functions
from infra.identity import Identity
from infra.layers import Layers
from infra.metrics import Metrics
from infra.migration import Migration
from infra.queues import Queues
from infra.saved_queries import SavedQueries
from infra.schedule import Schedule
from infra.topics import Topics


class ServiceStack(Stack):
    """Everything that a new version of the code may replace."""

    def __init__(self, scope: Construct, construct_id: str, *, environment: Environment, data: DataStack) -> None:
        super().__init__(
            scope,
            construct_id,
            description="Seckill: API, functions, queues, dashboard",
            # It goes first when both are destroyed: a protection of the data alone would come too late for it.
            termination_protection=environment.keep_data,
        )
        topics = Topics(self, "Topics", environment=environment)
        queues = Queues(
            self,
            "Queues",
            land_timeout_seconds=LAND_TIMEOUT_SECONDS,
            reconcile_timeout_seconds=RECONCILE_TIMEOUT_SECONDS,
        )
        functions = Functions(
            self,
            "Functions",
            environment=environment,
            data=data,
            layers=Layers(self, "Layers", environment=environment),
            queues=queues,
            topics=topics,
        )
        api = Api(
            self,
            "Api",
            environment=environment,
            identity=Identity(self, "Identity", environment=environment),
            handler=functions.reserve_live,
        )
        Schedule(self, "Schedule", reconcile=functions.reconcile, beat=queues.beat.queue)
        migration = Migration(self, "Migration", environment=environment, sale_admin=functions.sale_admin)
        for function in (functions.reserve, functions.land_order, functions.reconcile):
            function.node.add_dependency(migration.resource)  # first the schema, then the code that needs it
        metrics = Metrics(self, "Metrics", data=data, api=api, functions=functions, queues=queues)
        Alarms(self, "Alarms", environment=environment, metrics=metrics, topic=topics.alarms)
        Dashboard(self, "Dashboard", metrics=metrics, name=construct_id)
        SavedQueries(self, "SavedQueries", functions=functions, name=construct_id)
        for name, function in (("SaleAdmin", functions.sale_admin), ("Reconcile", functions.reconcile)):
            CfnOutput(self, f"{name}Function", value=function.function_name)
