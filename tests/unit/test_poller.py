"""The local poller treats a queue and a function as Lambda's SQS event source does; the queue is moto's, over HTTP."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import psutil
import pytest

from local.container import Container, function_name
from local.poller import BatchPoller, EventSource
from local.queues import Queues, created_queues
from local.servers import AwsServer, SupervisedProcess, wait_until
from local.sqs_events import WholeBatchFailedError, failed_message_ids
from local.state import CHECKOUT

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

# Long enough for a call to moto on a busy machine, short enough to wait for.
VISIBILITY_SECONDS = 2
DEADLINE_SECONDS = 20


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsServer]:
    with AwsServer(tmp_path_factory.mktemp("aws")) as server:
        yield server


@pytest.fixture
def sqs(aws: AwsServer) -> "SQSClient":
    return boto3.client(
        "sqs",
        endpoint_url=aws.url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )


@pytest.fixture
def queues(sqs: "SQSClient", request: pytest.FixtureRequest) -> Iterator[Queues]:
    # moto knows no queue by the object that made it, only by name.
    prefix = f"test-{abs(hash(request.node.nodeid))}"
    with created_queues(sqs, prefix, visibility_seconds=VISIBILITY_SECONDS, max_receive_count=3) as made:
        yield made


def source(aws: AwsServer, queues: Queues, **more: Any) -> EventSource:
    settings: dict[str, Any] = {
        "handler": "unused",
        "batch_size": 100,
        "window_seconds": 0.3,
        "timeout_seconds": 1.0,
        "visibility_seconds": VISIBILITY_SECONDS,
    }
    return EventSource(
        queue_url=queues.landing_url,
        queue_arn=queues.landing_arn,
        endpoint_url=aws.url,
        **settings | more,
    )


def poll_once(sqs: "SQSClient", source: EventSource, handler: Callable[[Any, Any], Any]) -> list[dict[str, Any]]:
    """Run one poll; returns the event's records."""
    events: list[dict[str, Any]] = []

    def recording(event: Any, context: Any) -> Any:
        events.append(event)
        return handler(event, context)

    container = Container(recording, function_name="land_order", region="us-east-1", timeout_seconds=1)
    BatchPoller(source, container, sqs).poll_once()
    assert len(events) <= 1
    return list(events[0]["Records"]) if events else []


def send(sqs: "SQSClient", queues: Queues, *bodies: str) -> None:
    for body in bodies:
        sqs.send_message(QueueUrl=queues.landing_url, MessageBody=body)


def messages_in(sqs: "SQSClient", queue_url: str) -> int:
    """All of them, whether visible or in somebody's hands."""
    attributes = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["All"])["Attributes"]
    return int(attributes["ApproximateNumberOfMessages"]) + int(attributes["ApproximateNumberOfMessagesNotVisible"])


# What the answer says


@pytest.mark.parametrize(
    "answer", [None, {}, {"batchItemFailures": None}, {"batchItemFailures": []}, {"statusCode": 200}]
)
def test_an_answer_without_failures_means_that_all_is_done(answer: object) -> None:
    assert failed_message_ids(answer, {"a", "b"}) == set()


def test_an_answer_names_the_failures() -> None:
    answer = {"batchItemFailures": [{"itemIdentifier": "a"}, {"itemIdentifier": "a"}]}
    assert failed_message_ids(answer, {"a", "b"}) == {"a"}


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "ok",
        [],
        7,
        object(),
        {"batchItemFailures": "a"},
        {"batchItemFailures": ["a"]},
        {"batchItemFailures": [{}]},
        {"batchItemFailures": [{"messageId": "a"}]},
        {"batchItemFailures": [{"itemIdentifier": ""}]},
        {"batchItemFailures": [{"itemIdentifier": None}]},
        {"batchItemFailures": [{"itemIdentifier": "a"}, {"itemIdentifier": "not sent"}]},
    ],
)
def test_any_other_answer_fails_the_whole_batch(answer: object) -> None:
    with pytest.raises(WholeBatchFailedError):
        failed_message_ids(answer, {"a", "b"})


# What the handler gets


def test_a_record_has_the_shape_that_lambda_gives_it(sqs: "SQSClient", aws: AwsServer, queues: Queues) -> None:
    sent = sqs.send_message(
        QueueUrl=queues.landing_url,
        MessageBody="test",
        MessageAttributes={"n": {"DataType": "String", "StringValue": "v"}},
    )
    (record,) = poll_once(sqs, source(aws, queues), lambda event, context: None)
    attributes = record.pop("attributes")
    assert record.pop("receiptHandle")
    assert record == {
        "messageId": sent["MessageId"],
        "body": "test",
        "messageAttributes": {
            "n": {"stringValue": "v", "stringListValues": [], "binaryListValues": [], "dataType": "String"}
        },
        "md5OfBody": "098f6bcd4621d373cade4e832627b4f6",
        "eventSource": "aws:sqs",
        "eventSourceARN": queues.landing_arn,
        "awsRegion": "us-east-1",
    }
    assert attributes["ApproximateReceiveCount"] == "1"
    assert attributes.keys() >= {"SentTimestamp", "SenderId", "ApproximateFirstReceiveTimestamp"}


def test_an_empty_queue_makes_no_event(sqs: "SQSClient", aws: AwsServer, queues: Queues) -> None:
    assert poll_once(sqs, source(aws, queues), lambda event, context: None) == []


def test_a_batch_holds_more_than_sqs_hands_out_at_once(sqs: "SQSClient", aws: AwsServer, queues: Queues) -> None:
    bodies = [str(number) for number in range(25)]
    send(sqs, queues, *bodies)
    records = poll_once(sqs, source(aws, queues), lambda event, context: None)
    assert sorted(int(record["body"]) for record in records) == list(range(25))
    assert messages_in(sqs, queues.landing_url) == 0


def test_a_batch_is_no_larger_than_asked(sqs: "SQSClient", aws: AwsServer, queues: Queues) -> None:
    send(sqs, queues, *"abcdefghijklmno")
    assert len(poll_once(sqs, source(aws, queues, batch_size=12), lambda event, context: None)) == 12
    assert messages_in(sqs, queues.landing_url) == 3


def test_the_window_gathers_what_comes_after_the_first_message(
    sqs: "SQSClient", aws: AwsServer, queues: Queues
) -> None:
    send(sqs, queues, "first")

    class LateSender:
        """Passes calls on to SQS and sends one more message after the first receive."""

        def __getattr__(self, name: str) -> Any:
            return getattr(sqs, name)

        def receive_message(self, **arguments: Any) -> Any:
            answer = sqs.receive_message(**arguments)
            if any(message["Body"] == "first" for message in answer.get("Messages", [])):
                send(sqs, queues, "second")
            return answer

    late: Any = LateSender()
    records = poll_once(late, source(aws, queues), lambda event, context: None)
    assert [record["body"] for record in records] == ["first", "second"]
    send(sqs, queues, "first")
    records = poll_once(late, source(aws, queues, window_seconds=0.0), lambda event, context: None)
    assert [record["body"] for record in records] == ["first"]


def test_window_and_time_out_fit_into_the_visibility_time_out(aws: AwsServer, queues: Queues) -> None:
    with pytest.raises(ValueError, match="visibility"):
        source(aws, queues, window_seconds=1.5, timeout_seconds=1.0)


# What becomes of the messages


def test_only_what_is_done_is_deleted_and_failures_come_back(sqs: "SQSClient", aws: AwsServer, queues: Queues) -> None:
    send(sqs, queues, "good", "bad", "good")

    def handler(event: Any, context: Any) -> Any:
        bad = [record["messageId"] for record in event["Records"] if record["body"] == "bad"]
        return {"batchItemFailures": [{"itemIdentifier": identifier} for identifier in bad]}

    assert len(poll_once(sqs, source(aws, queues), handler)) == 3
    assert messages_in(sqs, queues.landing_url) == 1
    received: list[dict[str, Any]] = []

    def came_back() -> bool:
        received.extend(poll_once(sqs, source(aws, queues), lambda event, context: None))
        return bool(received)

    assert wait_until(came_back, DEADLINE_SECONDS)
    (record,) = received
    assert (record["body"], record["attributes"]["ApproximateReceiveCount"]) == ("bad", "2")
    assert messages_in(sqs, queues.landing_url) == 0


def raising(event: Any, context: Any) -> Any:
    raise RuntimeError("boom")


@pytest.mark.parametrize(
    "handler",
    [
        raising,
        lambda event, context: "no JSON object",
        lambda event, context: {"batchItemFailures": [{"itemIdentifier": "not sent"}]},
    ],
    ids=["raises", "malformed answer", "unknown identifier"],
)
def test_nothing_is_deleted_when_the_whole_batch_fails(
    sqs: "SQSClient", aws: AwsServer, queues: Queues, handler: Callable[[Any, Any], Any]
) -> None:
    send(sqs, queues, "a", "b")
    assert len(poll_once(sqs, source(aws, queues), handler)) == 2
    assert messages_in(sqs, queues.landing_url) == 2


def test_a_message_goes_to_the_dead_letters_after_its_last_receive(sqs: "SQSClient", aws: AwsServer) -> None:
    with created_queues(sqs, "test-poison", visibility_seconds=1, max_receive_count=2) as queues:
        send(sqs, queues, "poison")
        impatient = source(aws, queues, window_seconds=0.0, timeout_seconds=1.0, visibility_seconds=1)
        counts: list[str] = []

        def dead() -> bool:
            records = poll_once(sqs, impatient, raising)
            counts.extend(record["attributes"]["ApproximateReceiveCount"] for record in records)
            return messages_in(sqs, queues.landing_dlq_url) == 1

        assert wait_until(dead, DEADLINE_SECONDS)
        assert counts == ["1", "2"]
        assert messages_in(sqs, queues.landing_url) == 0


# The program


def handle_unless_first(event: Any, context: Any) -> Any:
    """Runs in a poller's container: what a message asks for happens at its first receive only."""
    for record in event["Records"]:
        if record["attributes"]["ApproximateReceiveCount"] == "1":
            if record["body"] == "die":
                os._exit(1)
            if record["body"] == "hang":
                time.sleep(DEADLINE_SECONDS)


def note_begin_and_end(event: Any, context: Any) -> Any:
    """Runs in a poller's container: notes when it begins and ends in the file that a message names."""
    for record in event["Records"]:
        with Path(record["body"]).open("a") as file:
            file.write(f"{time.monotonic()} 1\n")
            time.sleep(0.3)
            file.write(f"{time.monotonic()} -1\n")


@pytest.fixture
def start_poller(aws: AwsServer, queues: Queues, tmp_path: Path) -> Iterator[Callable[..., SupervisedProcess]]:
    started: list[SupervisedProcess] = []

    def start(handler: Callable[[Any, Any], Any], concurrency: int = 1) -> SupervisedProcess:
        flags = {
            "--queue-url": queues.landing_url,
            "--queue-arn": queues.landing_arn,
            "--endpoint-url": aws.url,
            "--handler": f"tests.unit.test_poller.{handler.__name__}",
            "--concurrency": concurrency,
            "--batch-size": 1,
            "--window-seconds": 0,
            "--timeout-seconds": 1.5,
            "--visibility-seconds": VISIBILITY_SECONDS,
        }
        command = [sys.executable, "-m", "local.poller"]
        for flag, value in flags.items():
            command += [flag, str(value)]
        credentials = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
        environment = dict(os.environ) | credentials
        process = SupervisedProcess(command, log=tmp_path / "poller.log", env=environment, cwd=CHECKOUT)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


@pytest.mark.parametrize("fate", ["die", "hang"])
def test_a_container_that_dies_or_overruns_its_time_is_replaced_and_its_batch_comes_back(
    sqs: "SQSClient", queues: Queues, start_poller: Callable[..., SupervisedProcess], fate: str
) -> None:
    send(sqs, queues, fate)
    poller = start_poller(handle_unless_first)
    done = wait_until(lambda: messages_in(sqs, queues.landing_url) == 0, DEADLINE_SECONDS)
    assert done, poller.last_words()
    assert "ended with status 1, starting another" in poller.log.read_text()
    assert messages_in(sqs, queues.landing_dlq_url) == 0


def test_as_many_batches_run_at_once_as_there_are_containers(
    sqs: "SQSClient", queues: Queues, start_poller: Callable[..., SupervisedProcess], tmp_path: Path
) -> None:
    handled = tmp_path / "handled"
    poller = start_poller(note_begin_and_end, concurrency=2)
    send(sqs, queues, *[str(handled)] * 4)
    done = wait_until(lambda: messages_in(sqs, queues.landing_url) == 0, DEADLINE_SECONDS)
    assert done, poller.last_words()
    running, most = 0, 0
    for line in sorted(handled.read_text().splitlines(), key=lambda line: float(line.split()[0])):
        running += int(line.split()[1])
        most = max(most, running)
    assert most == 2


def test_containers_end_with_a_poller_that_is_killed(
    start_poller: Callable[..., SupervisedProcess],
) -> None:
    poller = start_poller(note_begin_and_end, concurrency=2)
    assert wait_until(lambda: poller.log.read_text().count("container ready") == 2, DEADLINE_SECONDS)
    children = psutil.Process(poller.pid).children()
    containers = [child for child in children if child.cmdline()[0] == sys.executable]
    assert len(containers) == 2
    poller.send_signal(signal.SIGKILL)
    assert wait_until(lambda: not any(map(_lives, containers)), DEADLINE_SECONDS)


def _lives(process: psutil.Process) -> bool:
    try:
        # An orphan stays a zombie until init gets round to it.
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_poller_whose_handler_cannot_be_loaded_ends_and_says_so(
    start_poller: Callable[..., SupervisedProcess],
) -> None:
    def no_such_handler(event: Any, context: Any) -> Any:
        """A name that the module doesn't have."""

    poller = start_poller(no_such_handler)
    assert wait_until(lambda: not poller.alive, DEADLINE_SECONDS)
    assert "tests.unit.test_poller.no_such_handler cannot be loaded" in poller.last_words()


def test_a_function_is_named_after_its_package() -> None:
    assert function_name("functions.land_order.handler.lambda_handler") == "land_order"
