"""What wakes a person."""

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sns as sns
from aws_cdk.aws_cloudwatch_actions import SnsAction
from constructs import Construct

from infra.config import Environment
from infra.metrics import Metrics

_MORE = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
_LESS = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD


class Alarms(Construct):
    """Each to one topic. Silence is good news except from reconcile, which must be heard."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: Environment,
        metrics: Metrics,
        topic: sns.ITopic,
    ) -> None:
        super().__init__(scope, construct_id)
        self._action, self._metrics, self._environment = SnsAction(topic), metrics, environment
        self._books()
        self._chain()
        self._stores()

    def _books(self) -> None:
        metrics = self._metrics
        self._above("Gap", metrics.gauge("AccountGap"), 0, "Units that were promised and are not in the books")
        self._above("Drift", metrics.gauge("AccountDrift"), 0, "Redis and MySQL disagree, in two passes", minutes=2)
        for name, service, text in (
            (
                "InvariantBroken",
                "reconcile",
                "A hard equation of the books is false: nothing is rebuilt by itself",
            ),
            ("InvariantBroken", "land_order", "An order was found whose reservation was not landed"),
            (
                "StuckReservation",
                "reconcile",
                "A reservation can neither land nor be rolled back: see the runbook",
            ),
            ("DeadLetterUnknown", "reconcile", "A dead letter without a ledger row waits for `resolve`"),
        ):
            self._above(f"{name}-{service}", metrics.count(name, service), 0, text)
        self._alarm(
            "NoReconcilePass",
            metrics.count("ReconcilePass", "reconcile", Duration.minutes(5)),
            1,
            "No pass of reconcile in 5 minutes: nothing repairs anything",
            comparison=_LESS,
            missing=cloudwatch.TreatMissingData.BREACHING,
        )

    def _chain(self) -> None:
        metrics, queues = self._metrics, self._metrics.queues
        for name, queue in (
            ("Landing", queues.landing.dead_letters),
            ("Reconcile", queues.reconcile.dead_letters),
            ("Beat", queues.beat.dead_letters),
            ("Failures", queues.failures),
        ):
            self._above(f"DeadLetters-{name}", metrics.dead_letters_arriving(queue), 0, f"Dead letters: {name}")
        self._above(
            "QueueAge",
            queues.landing.queue.metric_approximate_age_of_oldest_message(
                period=Duration.minutes(1), statistic="Maximum"
            ),
            60,  # half of the stale age: reconcile would start to land what the queue should
            "The oldest landing message waits for more than a minute",
        )
        self._above("ServerErrors", metrics.server_error_percent(), 1, "More than 1 % of answers are 5xx", minutes=3)
        self._above("Throttles", metrics.throttles(), 0, "Lambda throttles a function", minutes=3)

    def _stores(self) -> None:
        metrics, allowed = self._metrics, self._environment.database.proxy_connections
        self._above(
            "ProxyConnections",
            metrics.proxy("DatabaseConnections"),
            allowed * 80 // 100,
            f"The proxy uses more than 80 % of the {allowed} connections it may open",
            minutes=3,
        )
        self._above(
            "PinnedConnections",
            metrics.proxy("DatabaseConnectionsCurrentlySessionPinned"),
            0,
            "A statement pins the proxy's connections: they are no longer shared",
            minutes=5,  # a migration, whose DDL may pin, is over by then
        )
        self._above(
            "Evictions",
            metrics.redis_sum("Evictions", label="evictions"),
            0,
            "Redis evicts: a sale can vanish",
        )

    def _above(self, name: str, metric: cloudwatch.IMetric, limit: float, text: str, minutes: int = 1) -> None:
        self._alarm(
            name,
            metric,
            limit,
            text,
            comparison=_MORE,
            missing=cloudwatch.TreatMissingData.NOT_BREACHING,
            periods=minutes,
        )

    def _alarm(
        self,
        name: str,
        metric: cloudwatch.IMetric,
        limit: float,
        text: str,
        *,
        comparison: cloudwatch.ComparisonOperator,
        missing: cloudwatch.TreatMissingData,
        periods: int = 1,
    ) -> None:
        cloudwatch.Alarm(
            self,
            name,
            metric=metric,
            threshold=limit,
            evaluation_periods=periods,
            comparison_operator=comparison,
            treat_missing_data=missing,
            alarm_description=text,
        ).add_alarm_action(self._action)
