"""Dashboard, alarms, saved queries."""

import json
import re
from typing import Any

import pytest

from tests.infra.deployment import Deployment, text

# alarm's description starts so -> (metrics it looks at, comparison, threshold, periods)
ABOVE, BELOW = "GreaterThanThreshold", "LessThanThreshold"
ALARMS = {
    "Units that were promised": ({"AccountGap"}, ABOVE, 0, 1),
    "A hard equation": ({"InvariantBroken"}, ABOVE, 0, 1),
    "An order was found": ({"InvariantBroken"}, ABOVE, 0, 1),
    "Redis and MySQL disagree": ({"AccountDrift"}, ABOVE, 0, 2),
    "A reservation can neither": ({"StuckReservation"}, ABOVE, 0, 1),
    "A dead letter without": ({"DeadLetterUnknown"}, ABOVE, 0, 1),
    "No pass of reconcile": ({"ReconcilePass"}, BELOW, 1, 1),
    "Dead letters: Landing": (
        {"NumberOfMessagesReceived", "ApproximateNumberOfMessagesVisible"},
        ABOVE,
        0,
        1,
    ),
    "Dead letters: Reconcile": (
        {"NumberOfMessagesReceived", "ApproximateNumberOfMessagesVisible"},
        ABOVE,
        0,
        1,
    ),
    "Dead letters: Beat": ({"NumberOfMessagesReceived", "ApproximateNumberOfMessagesVisible"}, ABOVE, 0, 1),
    "Dead letters: Failures": (
        {"NumberOfMessagesReceived", "ApproximateNumberOfMessagesVisible"},
        ABOVE,
        0,
        1,
    ),
    "The oldest landing message": ({"ApproximateAgeOfOldestMessage"}, ABOVE, 60, 1),
    "More than 1 % of answers": ({"5xx", "Count"}, ABOVE, 1, 3),
    "Lambda throttles": ({"Throttles"}, ABOVE, 0, 3),
    "A statement pins": ({"DatabaseConnectionsCurrentlySessionPinned"}, ABOVE, 0, 5),
    "Redis evicts": ({"Evictions"}, ABOVE, 0, 1),
}


def _alarms(deployment: Deployment) -> list[dict[str, Any]]:
    return [alarm.properties for alarm in deployment.resources("AWS::CloudWatch::Alarm")]


def _alarm(deployment: Deployment, start: str) -> dict[str, Any]:
    [found] = [alarm for alarm in _alarms(deployment) if alarm["AlarmDescription"].startswith(start)]
    return found


def _metrics(alarm: dict[str, Any]) -> set[str]:
    if "MetricName" in alarm:
        return {alarm["MetricName"]}
    return {part["MetricStat"]["Metric"]["MetricName"] for part in alarm["Metrics"] if "MetricStat" in part}


@pytest.mark.parametrize("start", ALARMS)
def test_an_alarm_watches_this(deployment: Deployment, start: str) -> None:
    alarm, (metrics, comparison, threshold, periods) = _alarm(deployment, start), ALARMS[start]
    assert _metrics(alarm) == metrics
    assert alarm["ComparisonOperator"] == comparison
    assert (alarm["Threshold"], alarm["EvaluationPeriods"]) == (threshold, periods)


def test_the_proxys_connections_are_watched_against_its_share(deployment: Deployment) -> None:
    alarm = _alarm(deployment, "The proxy uses more than 80 %")
    assert _metrics(alarm) == {"DatabaseConnections"}
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


@pytest.mark.parametrize(
    "metric",
    [
        # the books
        *("ReservationWon", "OrderLanded", "LedgerPending", "LedgerLanded", "LedgerRolledBack"),
        *("AccountGap", "AccountDrift", "RedisStock"),
        # the chain
        *("4xx", "5xx", "Latency", "ConcurrentExecutions", "ColdStart", "ApproximateNumberOfMessagesVisible"),
        *("ApproximateAgeOfOldestMessage", "Duration"),
        # the stores
        *(
            "EvalBasedCmds",
            "EngineCPUUtilization",
            "DatabaseMemoryUsagePercentage",
            "Evictions",
            "ReplicationLag",
        ),
        *("DatabaseConnections", "CPUUtilization", "SlowQueries", "DatabaseConnectionsBorrowLatency"),
        "DatabaseConnectionsCurrentlySessionPinned",
    ],
)
def test_the_dashboard_shows(deployment: Deployment, metric: str) -> None:
    assert re.search(rf'"{metric}\\?"', json.dumps(_dashboard(deployment)))


def test_the_dashboard_shows_lock_waits(deployment: Deployment) -> None:
    aurora = deployment.environment.database.engine == "aurora"
    wanted = "BlockedTransactions" if aurora else "innodb_row_lock_waits"
    assert wanted in json.dumps(_dashboard(deployment))


def test_the_dashboard_follows_every_redis_node(deployments: Any) -> None:
    body = json.dumps(_dashboard(deployments("prod-aurora-cluster-x86")))
    for node in ("-0001-001", "-0001-002", "-0002-001", "-0002-002"):
        assert node in body


def test_slow_queries_are_counted_from_the_slow_log(deployment: Deployment) -> None:
    metric_filter = deployment.one("AWS::Logs::MetricFilter").properties
    [transformation] = metric_filter["MetricTransformations"]
    assert transformation["MetricName"] == "SlowQueries"
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


def _dashboard(deployment: Deployment) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(text(deployment.one("AWS::CloudWatch::Dashboard").properties["DashboardBody"]))
    return body
