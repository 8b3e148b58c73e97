"""The queues: landings, requests to reconcile, the half-minute beat, and what failed asynchronously."""

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.acknowledge import acknowledge

RECEIVES = 5  # then the message is a dead letter
BATCH_WINDOW_SECONDS = 1
_DEAD_LETTER_DAYS = 14  # SQS's longest, and longer than any source's: a dead letter keeps its first day
_VISIBILITY_FLOOR_SECONDS = 600  # docs/protocol.md 6.3: unknown dead letters must not block the others


class WorkQueue(Construct):
    """A queue and its dead letters. `consumer_timeout_seconds` is that of the function which reads it."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        consumer_timeout_seconds: int,
        retention: Duration,
        delay_seconds: int = 0,
    ) -> None:
        super().__init__(scope, construct_id)
        self.dead_letters = dead_letter_queue(self, "DeadLetters")
        self.queue = sqs.Queue(
            self,
            "Queue",
            # AWS asks for six times the function's time-out, plus the batching window.
            visibility_timeout=Duration.seconds(6 * consumer_timeout_seconds + BATCH_WINDOW_SECONDS),
            retention_period=retention,
            delivery_delay=Duration.seconds(delay_seconds),
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=RECEIVES),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
        )


def dead_letter_queue(scope: Construct, construct_id: str) -> sqs.Queue:
    """Where messages wait for the rescue or for a person."""
    queue = sqs.Queue(
        scope,
        construct_id,
        visibility_timeout=Duration.seconds(_VISIBILITY_FLOOR_SECONDS),
        retention_period=Duration.days(_DEAD_LETTER_DAYS),
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
    )
    acknowledge(queue, ("AwsSolutions-SQS3", "This is the dead-letter queue."))
    return queue


class Queues(Construct):
    """All of them, by what they carry."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        land_timeout_seconds: int,
        reconcile_timeout_seconds: int,
    ) -> None:
        super().__init__(scope, construct_id)
        self.landing = WorkQueue(
            self, "Landing", consumer_timeout_seconds=land_timeout_seconds, retention=Duration.days(4)
        )
        # A rebuild is asked for because users are being turned away: no delay.
        self.reconcile = WorkQueue(
            self, "Reconcile", consumer_timeout_seconds=reconcile_timeout_seconds, retention=Duration.hours(1)
        )
        # EventBridge's finest rate is a minute; the delayed copy of each tick is the beat in between. Beats
        # are worthless soon after, but must outlive RECEIVES visibility time-outs to become dead letters
        # that somebody sees.
        self.beat = WorkQueue(
            self,
            "Beat",
            consumer_timeout_seconds=reconcile_timeout_seconds,
            retention=Duration.hours(1),
            delay_seconds=30,
        )
        self.failures = dead_letter_queue(self, "Failures")
