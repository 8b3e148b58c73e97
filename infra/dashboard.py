"""Three rows: the books, the chain, the stores."""

from collections.abc import Sequence

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.metrics import Metrics

_WIDTH = 24  # of a dashboard's grid
_HEIGHT = 6


class Dashboard(Construct):
    """The five things the incident watched (Redis QPS, slow queries, connections, queue lag, workers), and the one it
    did not: whether the books balance."""

    def __init__(self, scope: Construct, construct_id: str, *, metrics: Metrics, name: str) -> None:
        super().__init__(scope, construct_id)
        self._metrics = metrics
        dashboard = cloudwatch.Dashboard(self, "Dashboard", dashboard_name=name)
        for title, graphs in (
            ("The books", self._books()),
            ("The chain", self._chain()),
            ("The stores", self._stores()),
        ):
            dashboard.add_widgets(cloudwatch.TextWidget(markdown=f"## {title}", width=_WIDTH, height=1))
            dashboard.add_widgets(*_graphs(graphs))

    def _books(self) -> list[tuple[str, Sequence[cloudwatch.IMetric]]]:
        metrics = self._metrics
        return [
            (
                "Promised and landed",
                [metrics.count("ReservationWon", "reserve"), metrics.count("OrderLanded", "land_order")],
            ),
            (
                "Ledger",
                [metrics.gauge(f"Ledger{status}") for status in ("Pending", "Landed", "RolledBack")],
            ),
            ("Gap and drift", [metrics.gauge("AccountGap"), metrics.gauge("AccountDrift")]),
            ("Redis stock by sale", [metrics.gauge_by_sale("RedisStock")]),
        ]

    def _chain(self) -> list[tuple[str, Sequence[cloudwatch.IMetric]]]:
        metrics, queues, functions = self._metrics, self._metrics.queues, self._metrics.functions
        landing = queues.landing.queue
        return [
            ("API: 4xx, 5xx", [metrics.http(name) for name in ("Count", "4xx", "5xx")]),
            ("API: latency, ms", [metrics.http("Latency", statistic) for statistic in ("p50", "p99")]),
            (
                "reserve: containers, cold starts",
                [
                    functions.reserve.metric("ConcurrentExecutions", statistic="Maximum"),
                    metrics.count("ColdStart", "reserve"),
                ],
            ),
            (
                "Landing queue: depth, age",
                [
                    landing.metric_approximate_number_of_messages_visible(statistic="Maximum"),
                    landing.metric_approximate_age_of_oldest_message(statistic="Maximum"),
                ],
            ),
            (
                "Landing: time of a batch, workers",
                [
                    functions.land_order.metric_duration(statistic="p99"),
                    functions.land_order.metric("ConcurrentExecutions", statistic="Maximum"),
                ],
            ),
            (
                "Dead letters",
                [
                    queue.metric_approximate_number_of_messages_visible(statistic="Maximum")
                    for queue in (
                        queues.landing.dead_letters,
                        queues.reconcile.dead_letters,
                        queues.beat.dead_letters,
                        queues.failures,
                    )
                ],
            ),
        ]

    def _stores(self) -> list[tuple[str, Sequence[cloudwatch.IMetric]]]:
        metrics = self._metrics
        commands = ("EvalBasedCmds", "HashBasedCmds", "SetBasedCmds", "KeyBasedCmds")
        return [
            ("Redis: commands/s", [metrics.redis_sum(*commands, label="commands/s", per_second=True)]),
            (
                "Redis: CPU, memory, %",
                [*metrics.redis("EngineCPUUtilization"), *metrics.redis("DatabaseMemoryUsagePercentage")],
            ),
            (
                "Redis: evictions, replication lag",
                [*metrics.redis("Evictions", "Sum"), *metrics.redis("ReplicationLag")],
            ),
            (
                "Database: connections, CPU",
                [metrics.database("DatabaseConnections"), metrics.database("CPUUtilization")],
            ),
            ("Database: slow queries, lock waits", [metrics.slow_queries(), metrics.lock_waits()]),
            (
                "Proxy: borrow latency in µs, pinned sessions",
                [
                    metrics.proxy("DatabaseConnectionsBorrowLatency", "Average"),
                    metrics.proxy("DatabaseConnectionsCurrentlySessionPinned"),
                ],
            ),
        ]


def _graphs(graphs: list[tuple[str, Sequence[cloudwatch.IMetric]]]) -> list[cloudwatch.IWidget]:
    """One line of the grid."""
    return [
        cloudwatch.GraphWidget(title=title, left=list(lines), width=_WIDTH // len(graphs), height=_HEIGHT)
        for title, lines in graphs
    ]
