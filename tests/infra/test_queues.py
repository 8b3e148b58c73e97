"""The queues and the clock."""

import json
from typing import Any

import pytest

from tests.infra.deployment import Deployment, Resource, text

DAY = 24 * 3600
WORK = {
    "LANDING_QUEUE_URL": ("land_order", 10),
    "RECONCILE_QUEUE_URL": ("reconcile", 60),
    "beat": ("reconcile", 60),
}


def _queue(deployment: Deployment, name: str) -> Resource:
    """By what refers to it: a setting of a function, or the schedule's message."""
    if name == "beat":
        return deployment.by_id(deployment.queues()["beat"])
    teller = "reserve" if name == "RECONCILE_QUEUE_URL" else "reconcile"
    return deployment.by_id(deployment.function(teller).properties["Environment"]["Variables"][name]["Ref"])


def _dead_letters(deployment: Deployment, queue: Resource) -> Resource:
    return deployment.by_id(queue.properties["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"][0])


@pytest.mark.parametrize("name", WORK)
def test_a_message_is_hidden_for_six_time_outs_and_the_window(deployment: Deployment, name: str) -> None:
    function, timeout_seconds = WORK[name]
    assert deployment.function(function).properties["Timeout"] == timeout_seconds
    queue = _queue(deployment, name).properties
    assert queue["VisibilityTimeout"] >= 6 * timeout_seconds + 1


@pytest.mark.parametrize("name", WORK)
def test_after_five_receives_it_is_a_dead_letter_for_14_days(deployment: Deployment, name: str) -> None:
    queue = _queue(deployment, name)
    dead = _dead_letters(deployment, queue).properties
    assert queue.properties["RedrivePolicy"]["maxReceiveCount"] == 5
    assert dead["MessageRetentionPeriod"] == 14 * DAY > queue.properties["MessageRetentionPeriod"]
    assert dead["VisibilityTimeout"] >= 600
    # It must live long enough to be received five times.
    assert queue.properties["MessageRetentionPeriod"] > 5 * queue.properties["VisibilityTimeout"]


def test_the_dead_letters_that_reconcile_rescues_are_those_of_the_landing_queue(
    deployment: Deployment,
) -> None:
    landing = _queue(deployment, "LANDING_QUEUE_URL")
    assert _queue(deployment, "LANDING_DLQ_URL").id == _dead_letters(deployment, landing).id


def test_every_queue_is_encrypted_and_takes_tls_only(deployment: Deployment) -> None:
    for queue in deployment.resources("AWS::SQS::Queue"):
        assert queue.properties["SqsManagedSseEnabled"] is True
        [policy] = [
            policy.properties["PolicyDocument"]["Statement"]
            for policy in deployment.resources("AWS::SQS::QueuePolicy")
            if {"Ref": queue.id} in policy.properties["Queues"]
        ]
        assert any(
            statement["Effect"] == "Deny"
            and statement["Action"] == "sqs:*"
            and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
            for statement in policy
        )


def test_reconcile_beats_every_30_seconds(deployment: Deployment) -> None:
    [minute] = [
        rule.properties
        for rule in deployment.resources("AWS::Events::Rule")
        if rule.properties["ScheduleExpression"] == "rate(1 minute)"
    ]
    reconcile = deployment.function("reconcile")
    beat = _queue(deployment, "beat")
    assert {text(target["Arn"]) for target in minute["Targets"]} == {
        f"<{reconcile.id}.Arn>",
        f"<{beat.id}.Arn>",
    }
    assert beat.properties["DelaySeconds"] == 30
    assert beat.id in _read_by(deployment, reconcile)


def test_a_rebuild_that_is_asked_for_is_not_delayed(deployment: Deployment) -> None:
    queue = _queue(deployment, "RECONCILE_QUEUE_URL")
    assert queue.properties["DelaySeconds"] == 0
    assert queue.id in _read_by(deployment, deployment.function("reconcile"))


def test_the_books_are_audited_every_half_hour(deployment: Deployment) -> None:
    [rule] = [
        rule.properties
        for rule in deployment.resources("AWS::Events::Rule")
        if rule.properties["ScheduleExpression"] == "rate(30 minutes)"
    ]
    [target] = rule["Targets"]
    assert text(target["Arn"]) == f"<{deployment.function('reconcile').id}.Arn>"
    assert json.loads(target["Input"]) == {"job": "audit"}


def _read_by(deployment: Deployment, function: Resource) -> list[Any]:
    return [
        source.properties["EventSourceArn"]["Fn::GetAtt"][0]
        for source in deployment.resources("AWS::Lambda::EventSourceMapping")
        if source.properties["FunctionName"] == {"Ref": function.id}
    ]
