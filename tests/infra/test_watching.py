"""Dashboard, alarms, saved queries."""

import contextlib
import functools
import io
import json
from pathlib import Path
from typing import Any

import pytest

from functions.land_order import handler as land_order
from functions.reconcile import handler as reconcile
from functions.reserve import handler as reserve
from tests.infra.deployment import Deployment, text

ROOT = Path(__file__).parents[2]
EMITTERS = {"reserve": reserve.metrics, "land_order": land_order.metrics, "reconcile": reconcile.metrics}

# alarm's description starts so -> (comparison, threshold, periods)
ABOVE, BELOW = "GreaterThanThreshold", "LessThanThreshold"
ALARMS = {
    "Units that were promised": (ABOVE, 0, 1),
    "A hard equation": (ABOVE, 0, 1),
    "An order was found": (ABOVE, 0, 1),
    "Redis and MySQL disagree": (ABOVE, 0, 2),
    "A reservation can neither": (ABOVE, 0, 1),
    "A dead letter without": (ABOVE, 0, 1),
    "No pass of reconcile": (BELOW, 1, 1),
    "Dead letters: Landing": (ABOVE, 0, 1),
    "Dead letters: Reconcile": (ABOVE, 0, 1),
    "Dead letters: Beat": (ABOVE, 0, 1),
    "Dead letters: Failures": (ABOVE, 0, 1),
    "The oldest landing message": (ABOVE, 60, 1),
    "More than 1 % of answers": (ABOVE, 1, 3),
    "Lambda throttles": (ABOVE, 0, 3),
    "A statement pins": (ABOVE, 0, 5),
    "Redis evicts": (ABOVE, 0, 1),
}

SLOW_QUERIES = ("Seckill", "SlowQueries")  # made of the slow log by a metric filter

# namespace, name, dimensions
Metric = tuple[str, ...]
# ... of this statistic, over so many seconds
Watched = tuple[Metric, str, int]


def _alarms(deployment: Deployment) -> list[dict[str, Any]]:
    return [alarm.properties for alarm in deployment.resources("AWS::CloudWatch::Alarm")]


def _alarm(deployment: Deployment, start: str) -> dict[str, Any]:
    [found] = [alarm for alarm in _alarms(deployment) if alarm["AlarmDescription"].startswith(start)]
    return found


def _metrics(deployment: Deployment, alarm: dict[str, Any]) -> set[Watched]:
    if "MetricName" in alarm:
        return {(_metric(deployment, alarm), alarm["Statistic"], alarm["Period"])}
    return {
        (_metric(deployment, part["MetricStat"]["Metric"]), part["MetricStat"]["Stat"], part["MetricStat"]["Period"])
        for part in alarm["Metrics"]
        if "MetricStat" in part
    }


def _metric(deployment: Deployment, metric: dict[str, Any]) -> Metric:
    dimensions = sorted(f"{d['Name']}={deployment.resolved(d['Value'])}" for d in metric["Dimensions"])
    return metric["Namespace"], metric["MetricName"], *dimensions


class Known:
    """Metrics by what they are of: the product's own as its code writes them, AWS's by the resources."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._queues = deployment.queues()

    def queue(self, name: str, queue: str) -> Metric:
        return "AWS/SQS", name, f"QueueName=<{self._queues[queue]}.QueueName>"

    def function(self, name: str, function: str) -> Metric:
        return "AWS/Lambda", name, f"FunctionName=<{self._deployment.function(function).id}>"

    def api(self, name: str) -> Metric:
        return "AWS/ApiGateway", name, f"ApiId=<{self._deployment.one('AWS::ApiGatewayV2::Api').id}>"

    def proxy(self, name: str) -> Metric:
        return "AWS/RDS", name, f"ProxyName={self._deployment.one('AWS::RDS::DBProxy').properties['DBProxyName']}"

    def database(self, name: str) -> Metric:
        aurora = self._deployment.environment.database.engine == "aurora"
        kind, dimension = ("DBCluster", "DBClusterIdentifier") if aurora else ("DBInstance", "DBInstanceIdentifier")
        return "AWS/RDS", name, f"{dimension}={self._deployment.one(f'AWS::RDS::{kind}').properties[dimension]}"

    def redis(self, *names: str) -> set[Metric]:
        """Of every node."""
        group, config = (
            self._deployment.one("AWS::ElastiCache::ReplicationGroup").id,
            self._deployment.environment.redis,
        )
        shards = [f"-{shard:04}" for shard in range(1, config.shards + 1)] if config.cluster_mode else [""]
        nodes = [f"<{group}>{shard}-{node}" for shard in shards for node in ("001", "002")]
        return {("AWS/ElastiCache", name, f"CacheClusterId={node}") for name in names for node in nodes}

    def lock_waits(self) -> Metric:
        """Aurora counts them; else Performance Insights does, by the instance's id."""
        if self._deployment.environment.database.engine == "aurora":
            return self.database("BlockedTransactions")
        instance = self._deployment.one("AWS::RDS::DBInstance").id
        return (f"DB_PERF_INSIGHTS('RDS', '<{instance}.DbiResourceId>', 'db.Locks.innodb_row_lock_waits.avg')",)


@functools.cache
def _count(name: str, service: str) -> Metric:
    """A count as this function writes it at the end of an invocation."""
    metrics = EMITTERS[service]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "_cold", False)  # a cold start is for others to count
        namespace, dimensions = _written(lambda: _count_once(metrics, name))
    return namespace, name, *dimensions


def _count_once(metrics: Any, name: str) -> None:
    with metrics.invocation():
        metrics.count(name)


@functools.cache
def _gauge(name: str) -> Metric:
    """A gauge as reconcile writes it."""
    namespace, dimensions = _written(lambda: reconcile.metrics.gauge(name, 1))
    return namespace, name, *dimensions


@functools.cache
def _gauge_by_sale(name: str) -> Metric:
    """The search for a gauge of all sales, as reconcile writes it."""
    namespace, dimensions = _written(lambda: reconcile.metrics.gauge(name, 1, 7))
    schema = ",".join([namespace, *(dimension.partition("=")[0] for dimension in sorted(dimensions))])
    return (f"SEARCH('{{{schema}}} MetricName=\"{name}\"', 'Maximum', 60)",)


def _written(write: Any) -> tuple[str, list[str]]:
    """Namespace and dimensions of the one line that is written."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        write()
    line = json.loads(output.getvalue())
    [directive] = line["_aws"]["CloudWatchMetrics"]
    [dimensions] = directive["Dimensions"]
    return directive["Namespace"], sorted(f"{name}={line[name]}" for name in dimensions)


def _watched(deployment: Deployment) -> dict[str, set[Watched]]:
    known = Known(deployment)

    def dead_letters(queue: str) -> set[Watched]:
        return {
            (known.queue("NumberOfMessagesReceived", queue), "Sum", 60),
            (known.queue("ApproximateNumberOfMessagesVisible", queue), "Maximum", 60),
        }

    return {
        "Units that were promised": {(_gauge("AccountGap"), "Maximum", 60)},
        "A hard equation": {(_count("InvariantBroken", "reconcile"), "Sum", 60)},
        "An order was found": {(_count("InvariantBroken", "land_order"), "Sum", 60)},
        "Redis and MySQL disagree": {(_gauge("AccountDrift"), "Maximum", 60)},
        "A reservation can neither": {(_count("StuckReservation", "reconcile"), "Sum", 60)},
        "A dead letter without": {(_count("DeadLetterUnknown", "reconcile"), "Sum", 60)},
        "No pass of reconcile": {(_count("ReconcilePass", "reconcile"), "Sum", 300)},
        "Dead letters: Landing": dead_letters("dead landing"),
        "Dead letters: Reconcile": dead_letters("dead reconcile"),
        "Dead letters: Beat": dead_letters("dead beat"),
        "Dead letters: Failures": dead_letters("failures"),
        "The oldest landing message": {(known.queue("ApproximateAgeOfOldestMessage", "landing"), "Maximum", 60)},
        "More than 1 % of answers": {(known.api(name), "Sum", 60) for name in ("5xx", "Count")},
        "Lambda throttles": {
            (known.function("Throttles", name), "Sum", 60)
            for name in ("reserve", "land_order", "reconcile", "sale_admin")
        },
        # RDS counts by the proxy's instances: the largest is not the proxy's.
        "A statement pins": {(known.proxy("DatabaseConnectionsCurrentlySessionPinned"), "Sum", 60)},
        "The proxy uses more than 80 %": {(known.proxy("DatabaseConnections"), "Sum", 60)},
        "Redis evicts": {(metric, "Sum", 60) for metric in known.redis("Evictions")},
    }


@pytest.mark.parametrize("start", ALARMS)
def test_an_alarm_watches_this(deployment: Deployment, start: str) -> None:
    alarm, (comparison, threshold, periods) = _alarm(deployment, start), ALARMS[start]
    assert _metrics(deployment, alarm) == _watched(deployment)[start]
    assert alarm["ComparisonOperator"] == comparison
    assert (alarm["Threshold"], alarm["EvaluationPeriods"]) == (threshold, periods)


def test_the_proxys_connections_are_watched_against_its_share(deployment: Deployment) -> None:
    start = "The proxy uses more than 80 %"
    alarm = _alarm(deployment, start)
    assert _metrics(deployment, alarm) == _watched(deployment)[start]
    assert alarm["Threshold"] == deployment.environment.database.proxy_connections * 80 // 100


def test_every_alarm_tells_the_alarm_topic(deployment: Deployment) -> None:
    alarms = _alarms(deployment)
    assert len(alarms) == len(ALARMS) + 1
    topics = {text(action) for alarm in alarms for action in alarm["AlarmActions"]}
    assert len(topics) == 1
    assert all(len(alarm["AlarmActions"]) == 1 for alarm in alarms)
    topic = topics.pop().strip("<>")
    cloudwatch = [
        statement
        for policy in deployment.resources("AWS::SNS::TopicPolicy")
        if {"Ref": topic} in policy.properties["Topics"]
        for statement in policy.properties["PolicyDocument"]["Statement"]
        if statement["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    ]
    assert [statement["Action"] for statement in cloudwatch] == ["sns:Publish"]


def test_silence_alarms_only_where_reconcile_should_be_heard(deployment: Deployment) -> None:
    for alarm in _alarms(deployment):
        heard = alarm["AlarmDescription"].startswith("No pass of reconcile")
        assert alarm["TreatMissingData"] == ("breaching" if heard else "notBreaching")
    assert _alarm(deployment, "No pass of reconcile")["Period"] == 300


def test_an_e_mail_address_is_subscribed_if_configured(prod: Deployment, dev: Deployment) -> None:
    subscription = prod.one("AWS::SNS::Subscription").properties
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "on-call@shop.example")
    assert dev.resources("AWS::SNS::Subscription") == []


def test_topics_are_encrypted_with_a_key_that_cloudwatch_may_use_and_take_tls_only(
    deployment: Deployment,
) -> None:
    key = deployment.one("AWS::KMS::Key").properties
    assert key["EnableKeyRotation"] is True
    principals = [text(s["Principal"].get("Service", "")) for s in key["KeyPolicy"]["Statement"]]
    assert "cloudwatch.amazonaws.com" in principals
    for topic in deployment.resources("AWS::SNS::Topic"):
        assert "KmsMasterKeyId" in topic.properties
    for policy in deployment.resources("AWS::SNS::TopicPolicy"):
        effects = [s["Effect"] for s in policy.properties["PolicyDocument"]["Statement"]]
        assert "Deny" in effects


def test_the_dashboard_has_the_books_the_chain_and_the_stores_in_this_order(deployment: Deployment) -> None:
    body = _dashboard(deployment)
    assert [w["properties"]["markdown"] for w in body["widgets"] if w["type"] == "text"] == [
        "## The books",
        "## The chain",
        "## The stores",
    ]


def test_each_metric_stands_in_its_row_of_the_dashboard(deployment: Deployment) -> None:
    rows = _rows(deployment)
    for title, wanted in _dashboard_rows(deployment).items():
        assert rows[title] == wanted, title


def test_our_metrics_are_counted_somewhere(deployment: Deployment) -> None:
    sources = [path for folder in ("layers", "functions") for path in (ROOT / folder).rglob("*.py")]
    code = "\n".join(path.read_text() for path in sources)
    watched = {metric for metrics in _watched(deployment).values() for metric, *_ in metrics}
    ours = {metric[1] for metric in watched | _dashboard_rows(deployment)["The books"] if metric[0] == "Seckill"}
    assert len(ours) == 11
    assert {name for name in ours if f'"{name}"' not in code} == set()


def test_slow_queries_are_counted_from_the_slow_log(deployment: Deployment) -> None:
    metric_filter = deployment.one("AWS::Logs::MetricFilter").properties
    [transformation] = metric_filter["MetricTransformations"]
    assert (transformation["MetricNamespace"], transformation["MetricName"]) == SLOW_QUERIES
    assert metric_filter["FilterPattern"] == '"# Query_time:"'


def test_three_queries_are_saved_with_the_stack(deployment: Deployment) -> None:
    queries = {q.properties["Name"]: q.properties for q in deployment.resources("AWS::Logs::QueryDefinition")}
    assert {name.rpartition("/")[2] for name in queries} == {
        "One reservation's timeline",
        "Slowest landings",
        "Unknown outcomes",
    }
    timeline = next(q for name, q in queries.items() if name.endswith("timeline"))
    assert len(timeline["LogGroupNames"]) == 4
    assert "pre_deduct_key" in timeline["QueryString"]


def _dashboard_rows(deployment: Deployment) -> dict[str, set[Metric]]:
    """What one looks at during a storm, row by row."""
    known = Known(deployment)
    dead = ("dead landing", "dead reconcile", "dead beat", "failures")
    commands = ("EvalBasedCmds", "HashBasedCmds", "SetBasedCmds", "KeyBasedCmds")
    return {
        "The books": {
            _count("ReservationWon", "reserve"),
            _count("OrderLanded", "land_order"),
            *map(_gauge, ("LedgerPending", "LedgerLanded", "LedgerRolledBack", "AccountGap", "AccountDrift")),
            _gauge_by_sale("RedisStock"),
        },
        "The chain": {
            *map(known.api, ("Count", "4xx", "5xx", "Latency")),
            known.function("ConcurrentExecutions", "reserve"),
            _count("ColdStart", "reserve"),
            known.queue("ApproximateNumberOfMessagesVisible", "landing"),
            known.queue("ApproximateAgeOfOldestMessage", "landing"),
            known.function("Duration", "land_order"),
            known.function("ConcurrentExecutions", "land_order"),
            *(known.queue("ApproximateNumberOfMessagesVisible", queue) for queue in dead),
        },
        "The stores": {
            *known.redis(*commands, "EngineCPUUtilization", "DatabaseMemoryUsagePercentage"),
            *known.redis("Evictions", "ReplicationLag"),
            *map(known.database, ("DatabaseConnections", "CPUUtilization")),
            SLOW_QUERIES,
            known.lock_waits(),
            *map(known.proxy, ("DatabaseConnectionsBorrowLatency", "DatabaseConnectionsCurrentlySessionPinned")),
        },
    }


def _rows(deployment: Deployment) -> dict[str, set[Metric]]:
    """What the dashboard shows below each heading, down to the next."""
    rows: dict[str, set[Metric]] = {}
    for widget in sorted(_dashboard(deployment)["widgets"], key=lambda widget: (widget["y"], widget["x"])):
        if widget["type"] == "text":
            row = rows.setdefault(widget["properties"]["markdown"].removeprefix("## "), set())
        else:
            row.update(metric for line in widget["properties"]["metrics"] if (metric := _shown(line)))
    return rows


def _shown(line: list[Any]) -> Metric | None:
    """A metric of a graph, or a search; None for a sum, whose parts are lines of their own."""
    if isinstance(line[0], dict):
        expression: str = line[0]["expression"]
        return None if expression.lstrip("(").startswith("FILL(") else (expression,)
    namespace, name, *pairs = [part for part in line if isinstance(part, str)]
    return namespace, name, *sorted(map("=".join, zip(pairs[::2], pairs[1::2], strict=True)))


def _dashboard(deployment: Deployment) -> dict[str, Any]:
    body = deployment.one("AWS::CloudWatch::Dashboard").properties["DashboardBody"]
    dashboard: dict[str, Any] = json.loads(deployment.resolved(body))
    return dashboard
