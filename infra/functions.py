"""The four functions: what each is told, what each may do, and what wakes it."""

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_destinations as destinations
from aws_cdk import aws_lambda_event_sources as sources
from constructs import Construct

from infra.config import Environment
from infra.data_stack import DataStack
from infra.database import MASTER_USER
from infra.function import Function
from infra.layers import Layers
from infra.queues import BATCH_WINDOW_SECONDS, Queues, WorkQueue
from infra.topics import Topics

RESERVE_TIMEOUT_SECONDS = 5  # its own deadline is 2.5 s, and every answer comes within 3 s
LAND_TIMEOUT_SECONDS = 10
RECONCILE_TIMEOUT_SECONDS = 60  # one pass is bounded; the next comes after half a minute whatever happens to this one
SALE_ADMIN_TIMEOUT_SECONDS = 300  # `migrate` on a big table
STALE_AFTER_SECONDS = 120  # far above twice reserve's time-out plus a statement's (docs/protocol.md 6)
LANDING_ATTEMPTS = 3
LANDING_BATCH = 100
_MEMORY_MIB = 512


class Functions(Construct):
    """reserve, land_order, reconcile, sale_admin."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: Environment,
        data: DataStack,
        layers: Layers,
        queues: Queues,
        topics: Topics,
    ) -> None:
        super().__init__(scope, construct_id)
        self._environment, self._data, self._layers = environment, data, layers
        self._queues, self._topics = queues, topics
        self.reserve = self._reserve()
        self.land_order = self._land_order()
        self.reconcile = self._reconcile()
        self.sale_admin = self._sale_admin()

    @property
    def all(self) -> dict[str, lambda_.Function]:
        return {
            "reserve": self.reserve,
            "land_order": self.land_order,
            "reconcile": self.reconcile,
            "sale_admin": self.sale_admin,
        }

    def _stores(self) -> dict[str, str]:
        return {"database_url": self._data.proxy.url(), "redis_url": self._data.redis.url}

    def _repairs(self) -> dict[str, str]:
        """What reconcile and sale_admin are told beside the stores."""
        return {
            "landing_queue_url": self._queues.landing.queue.queue_url,
            "landing_dlq_url": self._queues.landing.dead_letters.queue_url,
            "stale_after_seconds": str(STALE_AFTER_SECONDS),
        }

    def _make(
        self,
        construct_id: str,
        *,
        name: str,
        settings: dict[str, str],
        timeout_seconds: int,
        concurrency: int,
        memory_mib: int = _MEMORY_MIB,
    ) -> lambda_.Function:
        function = Function(
            self,
            construct_id,
            name=name,
            environment=self._environment,
            network=self._data.network,
            layers=self._layers,
            settings={**self._stores(), **settings},
            timeout_seconds=timeout_seconds,
            memory_mib=memory_mib,
            concurrency=concurrency,
        ).function
        self._data.proxy.grant_app(function)
        self._data.redis.grant_connect(function)
        return function

    def _reserve(self) -> lambda_.Function:
        config, queues = self._environment.functions, self._queues
        function = self._make(
            "Reserve",
            name="reserve",
            settings={
                "landing_queue_url": queues.landing.queue.queue_url,
                "reconcile_queue_url": queues.reconcile.queue.queue_url,
            },
            timeout_seconds=RESERVE_TIMEOUT_SECONDS,
            concurrency=config.reserve_concurrency,
            memory_mib=config.reserve_memory_mib,
        )
        queues.landing.queue.grant_send_messages(function)
        queues.reconcile.queue.grant_send_messages(function)
        # The API calls an alias, since only a version can be kept warm.
        self.reserve_live = lambda_.Alias(
            self,
            "Live",
            alias_name="live",
            version=function.current_version,
            provisioned_concurrent_executions=config.reserve_provisioned or None,
        )
        return function

    def _land_order(self) -> lambda_.Function:
        concurrency = self._environment.functions.land_order_concurrency
        function = self._make(
            "LandOrder",
            name="land_order",
            settings={},
            timeout_seconds=LAND_TIMEOUT_SECONDS,
            concurrency=concurrency,
        )
        function.add_event_source(
            sources.SqsEventSource(
                self._queues.landing.queue,
                batch_size=LANDING_BATCH,
                max_batching_window=Duration.seconds(BATCH_WINDOW_SECONDS),
                max_concurrency=concurrency,
                report_batch_item_failures=True,
            )
        )
        return function

    def _reconcile(self) -> lambda_.Function:
        function = self._make(
            "Reconcile",
            name="reconcile",
            settings={
                **self._repairs(),
                "landing_attempts": str(LANDING_ATTEMPTS),
                "notice_topic_arn": self._topics.notices.topic_arn,
            },
            timeout_seconds=RECONCILE_TIMEOUT_SECONDS,
            concurrency=self._environment.functions.reconcile_concurrency,
        )
        self._queues.landing.queue.grant(function, "sqs:GetQueueAttributes")  # its depth is one of the accounts
        self._queues.landing.dead_letters.grant_consume_messages(function)
        self._topics.grant_notify(function)
        for work in (self._queues.reconcile, self._queues.beat):
            self._wake(function, work)
        # A failed tick is not worth repeating: the next is half a minute away. But it leaves a trace.
        function.configure_async_invoke(
            max_event_age=Duration.minutes(1),
            retry_attempts=0,
            on_failure=destinations.SqsDestination(self._queues.failures),
        )
        return function

    def _sale_admin(self) -> lambda_.Function:
        function = self._make(
            "SaleAdmin",
            name="sale_admin",
            settings={
                **self._repairs(),
                "migration_database_url": self._data.proxy.url(MASTER_USER),
            },
            timeout_seconds=SALE_ADMIN_TIMEOUT_SECONDS,
            concurrency=self._environment.functions.sale_admin_concurrency,
        )
        self._data.proxy.grant_master(function)  # the only function that may be the master user
        self._queues.landing.queue.grant(function, "sqs:GetQueueAttributes")
        self._queues.landing.dead_letters.grant_consume_messages(function)
        function.configure_async_invoke(retry_attempts=0, on_failure=destinations.SqsDestination(self._queues.failures))
        return function

    @staticmethod
    def _wake(function: lambda_.Function, work: WorkQueue) -> None:
        """One message at a time; two pollers at most, the least there can be."""
        function.add_event_source(
            sources.SqsEventSource(work.queue, batch_size=1, max_concurrency=2, report_batch_item_failures=True)
        )
