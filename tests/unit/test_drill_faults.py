"""Which sends are hit, and what the queue proxy does to them."""

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from drill.faults.plan import Fault, FaultPlan, Hit, plan_faults
from drill.faults.queue_proxy import QueueProxy

ALL = frozenset(Fault)


def test_the_same_seed_hits_the_same_sends() -> None:
    assert plan_faults(3, 100, ALL) == plan_faults(3, 100, ALL)
    assert plan_faults(3, 100, ALL) != plan_faults(4, 100, ALL)


@pytest.mark.parametrize("seed", range(20))
def test_the_incident_s_numbers_of_sends_are_hit_each_by_one_fault(seed: int) -> None:
    plan = plan_faults(seed, 100, ALL)
    assert [plan.count(hit) for hit in Hit] == [2, 2, 3, 2]
    assert set(plan.hits) <= set(range(90)), "the last sends may be missing on a busy machine"
    assert all(ordinal >= 66 for ordinal, hit in plan.hits.items() if hit is Hit.HELD_ROW)


def test_leaving_a_fault_out_changes_nothing_for_the_others() -> None:
    everything = plan_faults(1, 100, ALL).hits
    only_b = plan_faults(1, 100, frozenset({Fault.B})).hits
    assert only_b == {ordinal: hit for ordinal, hit in everything.items() if hit is Hit.LATE}
    assert plan_faults(1, 100, frozenset()).hits == {}


@pytest.mark.parametrize("units", [0, 1, 2, 3, 5, 9])
def test_a_small_sale_gets_no_more_hits_than_sends(units: int) -> None:
    assert set(plan_faults(1, units, ALL).hits) <= set(range(units))


class Queue(BaseHTTPRequestHandler):
    """Answers SendMessage as SQS does, and remembers what arrived."""

    protocol_version = "HTTP/1.1"
    arrived: list[str]

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = request["MessageBody"]
        self.arrived.append(text)
        digest = hashlib.md5(text.encode()).hexdigest()
        body = json.dumps({"MessageId": "m", "MD5OfMessageBody": digest}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def arrived() -> list[str]:
    return []


@pytest.fixture
def queue_url(arrived: list[str]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Remembering", (Queue,), {"arrived": arrived}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def sender(proxy: QueueProxy) -> Any:
    once = Config(connect_timeout=0.3, read_timeout=0.3, retries={"total_max_attempts": 1})
    return boto3.client(
        "sqs",
        endpoint_url=proxy.url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=once,
    )


def send(proxy: QueueProxy, body: dict[str, str]) -> None:
    sender(proxy).send_message(QueueUrl="http://127.0.0.1:1/queue", MessageBody=json.dumps(body))


def test_a_lost_send_times_out_and_never_arrives(queue_url: str, arrived: list[str]) -> None:
    with QueueProxy(queue_url, FaultPlan({0: Hit.LOST}), units=2) as proxy:
        with pytest.raises(BotoCoreError):
            send(proxy, {"preDeductKey": "k1"})
        assert arrived == []
        send(proxy, {"preDeductKey": "k2"})
        assert arrived == ['{"preDeductKey": "k2"}']


def test_a_send_delivered_all_the_same_times_out_and_has_arrived(queue_url: str, arrived: list[str]) -> None:
    with QueueProxy(queue_url, FaultPlan({0: Hit.DELIVERED}), units=1) as proxy:
        with pytest.raises(BotoCoreError):
            send(proxy, {"preDeductKey": "k1"})
        assert arrived == ['{"preDeductKey": "k1"}']


@pytest.mark.parametrize("hit", [Hit.LATE, Hit.HELD_ROW])
def test_a_late_message_is_accepted_at_once_and_arrives_when_let_through(
    hit: Hit, queue_url: str, arrived: list[str]
) -> None:
    with QueueProxy(queue_url, FaultPlan({0: hit}), units=1) as proxy:
        send(proxy, {"preDeductKey": "k1"})  # boto3 checks the answer's digest of the body
        assert arrived == []
        (message,) = proxy.held
        assert (message.key, message.hit) == ("k1", hit)
        proxy.deliver(message)
        assert (arrived, proxy.held) == (['{"preDeductKey": "k1"}'], [])


def test_only_a_reservation_s_first_send_counts_and_is_hit(queue_url: str, arrived: list[str]) -> None:
    with QueueProxy(queue_url, FaultPlan({1: Hit.LATE}), units=2) as proxy:
        send(proxy, {"preDeductKey": "k1"})
        send(proxy, {"preDeductKey": "k1"})
        send(proxy, {"job": "rebuild"})
        send(proxy, {"preDeductKey": "k2"})
        assert [message.key for message in proxy.held] == ["k2"]
        send(proxy, {"preDeductKey": "k2"})
        assert arrived[-1] == '{"preDeductKey": "k2"}'
        assert [(sent.key, sent.hit) for sent in proxy.hit_sends] == [("k2", Hit.LATE)]


def test_the_proxy_notices_when_the_last_unit_s_message_was_sent(queue_url: str) -> None:
    with QueueProxy(queue_url, FaultPlan({}), units=2) as proxy:
        send(proxy, {"preDeductKey": "k1"})
        send(proxy, {"preDeductKey": "k1"})
        assert proxy.all_sent_at is None
        send(proxy, {"preDeductKey": "k2"})
        assert proxy.all_sent_at is not None
