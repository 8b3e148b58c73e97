"""The clock: a pass of reconcile every half minute, an audit every half hour."""

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct


class Schedule(Construct):
    """EventBridge ticks once a minute: one target is the function, the other a queue that hands it over 30 s later."""

    def __init__(self, scope: Construct, construct_id: str, *, reconcile: lambda_.IFunction, beat: sqs.IQueue) -> None:
        super().__init__(scope, construct_id)
        events.Rule(
            self,
            "EveryMinute",
            schedule=events.Schedule.rate(Duration.minutes(1)),
            targets=[
                targets.LambdaFunction(reconcile),
                targets.SqsQueue(beat, message=events.RuleTargetInput.from_object({"job": "beat"})),
            ],
        )
        events.Rule(
            self,
            "EveryHalfHour",
            schedule=events.Schedule.rate(Duration.minutes(30)),
            targets=[targets.LambdaFunction(reconcile, event=events.RuleTargetInput.from_object({"job": "audit"}))],
        )
