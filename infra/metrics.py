"""Every number that is watched, defined once for the dashboard and the alarms."""

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.api import Api
from infra.data_stack import DataStack
from infra.functions import Functions
from infra.queues import Queues

NAMESPACE = "Seckill"
MINUTE = Duration.minutes(1)


class Metrics(Construct):
    """The books (the functions' own metrics), the chain, the stores."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        data: DataStack,
        api: Api,
        functions: Functions,
        queues: Queues,
    ) -> None:
        super().__init__(scope, construct_id)
        self.api, self.functions, self.queues, self._data = api.api, functions, queues, data
        # RDS has no such metric: every entry of the slow log starts with this line.
        self._slow_queries = logs.MetricFilter(
            self,
            "SlowQueries",
            log_group=data.server.slow_log,
            filter_pattern=logs.FilterPattern.literal('"# Query_time:"'),
            metric_namespace=NAMESPACE,
            metric_name="SlowQueries",
            metric_value="1",
            default_value=0,
        )

    def count(self, name: str, service: str, period: Duration = MINUTE) -> cloudwatch.Metric:
        """One of the counts of the functions, by service."""
        return _metric(NAMESPACE, name, "Sum", {"service": service}, period)

    def gauge(self, name: str) -> cloudwatch.Metric:
        """One of reconcile's gauges, the worst over all sales."""
        return _metric(NAMESPACE, name, "Maximum", {"service": "reconcile"})

    def gauge_by_sale(self, name: str) -> cloudwatch.MathExpression:
        return cloudwatch.MathExpression(
            expression=f"SEARCH('{{{NAMESPACE},service,sku}} MetricName=\"{name}\"', 'Maximum', 60)",
            label="",
            using_metrics={},
            period=MINUTE,
        )

    def http(self, name: str, statistic: str = "Sum") -> cloudwatch.Metric:
        return self.api.metric(name, statistic=statistic, period=MINUTE)

    def server_error_percent(self) -> cloudwatch.MathExpression:
        return cloudwatch.MathExpression(
            expression="100 * errors / MAX([requests, 1])",
            label="5xx, % of requests",
            using_metrics={"errors": self.http("5xx"), "requests": self.http("Count")},
            period=MINUTE,
        )

    def throttles(self) -> cloudwatch.MathExpression:
        using = {name: function.metric_throttles(period=MINUTE) for name, function in self.functions.all.items()}
        return _sum(using, "throttled invocations")

    def dead_letters_arriving(self, queue: sqs.IQueue) -> cloudwatch.MathExpression:
        """Received or waiting: a redrive does not count as sent, and a reader may empty the queue between
        two samples."""
        return _sum(
            {
                "received": queue.metric_number_of_messages_received(period=MINUTE, statistic="Sum"),
                "waiting": queue.metric_approximate_number_of_messages_visible(period=MINUTE, statistic="Maximum"),
            },
            "dead letters received or waiting",
        )

    def redis(self, name: str, statistic: str = "Maximum") -> list[cloudwatch.Metric]:
        return [
            _metric("AWS/ElastiCache", name, statistic, {"CacheClusterId": node}, label=f"{name} [{index}]")
            for index, node in enumerate(self._data.redis.node_ids, 1)
        ]

    def redis_sum(self, *names: str, label: str, per_second: bool = False) -> cloudwatch.MathExpression:
        metrics = [metric for name in names for metric in self.redis(name, "Sum")]
        using = {f"m{index}": metric for index, metric in enumerate(metrics)}
        return _sum(using, label, divisor=60 if per_second else 1)

    def database(self, name: str, statistic: str = "Maximum") -> cloudwatch.Metric:
        return _metric("AWS/RDS", name, statistic, self._data.server.dimensions)

    def proxy(self, name: str, statistic: str = "Sum") -> cloudwatch.Metric:
        """RDS publishes one number a minute for each instance behind the proxy: their sum is the proxy's count."""
        return _metric("AWS/RDS", name, statistic, self._data.proxy.dimensions)

    def slow_queries(self) -> cloudwatch.Metric:
        return self._slow_queries.metric(statistic="Sum", period=MINUTE)

    def lock_waits(self) -> cloudwatch.IMetric:
        """Aurora counts them; RDS's come from Performance Insights."""
        resource_id = self._data.server.resource_id
        if resource_id is None:
            return self.database("BlockedTransactions")
        return cloudwatch.MathExpression(
            expression=f"DB_PERF_INSIGHTS('RDS', '{resource_id}', 'db.Locks.innodb_row_lock_waits.avg')",
            label="row lock waits/s",
            using_metrics={},
            period=MINUTE,
        )


def _metric(
    namespace: str,
    name: str,
    statistic: str,
    dimensions: Mapping[str, str],
    period: Duration = MINUTE,
    label: str | None = None,
) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=namespace,
        metric_name=name,
        statistic=statistic,
        dimensions_map=dimensions,
        period=period,
        label=label,
    )


def _sum(using: Mapping[str, cloudwatch.IMetric], label: str, divisor: int = 1) -> cloudwatch.MathExpression:
    total = " + ".join(f"FILL({name}, 0)" for name in using)
    return cloudwatch.MathExpression(
        expression=total if divisor == 1 else f"({total}) / {divisor}",
        label=label,
        using_metrics=using,
        period=MINUTE,
    )
