"""Notices leave the outbox at least once, are marked when sent, and wait while they cannot be."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest

from seckill.adapters.mysql import Database, LockTimeout
from seckill.adapters.sns import NoticeTopic
from seckill.domain.deadline import Deadline
from seckill.protocol.notices import publish_notices
from seckill.protocol.roll_back import roll_back
from tests.backroom import Backroom, Functions
from tests.stores import deducted, patience

pytest_plugins = ["tests.backroom_fixtures"]


@dataclass(frozen=True)
class Mailbox:
    """A topic with a queue that hears everything published on it."""

    sqs: Any
    url: str
    arn: str

    def read(self) -> list[dict[str, Any]]:
        """The notices published since the last look."""
        notices = []
        for _ in range(100):  # far more than any of these tests publishes
            messages = self.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10).get("Messages", [])
            if not messages:
                break
            for message in messages:
                notices.append(json.loads(json.loads(message["Body"])["Message"]))
                self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
        return notices


@pytest.fixture
def mailbox(backroom: Backroom) -> Iterator[Mailbox]:
    """What a shop would listen with."""
    sns = boto3.client("sns", endpoint_url=backroom.servers.aws_endpoint_url, region_name="eu-west-1")
    url = backroom.sqs.create_queue(QueueName="backroom-mailbox")["QueueUrl"]
    arn = sns.create_topic(Name="backroom-notices")["TopicArn"]
    queue_arn = backroom.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=queue_arn)
    yield Mailbox(backroom.sqs, url, arn)
    sns.delete_topic(TopicArn=arn)
    backroom.sqs.delete_queue(QueueUrl=url)


def take_back(backroom: Backroom, sku_id: int, *users: str) -> list[str]:
    """Promises to these users, rolled back; their keys."""
    keys = backroom.promise(sku_id, *users)
    for key, user in zip(keys, users, strict=True):
        roll_back(backroom.database, backroom.redis, key, sku_id, f"not for {user}")
    return keys


def sent(backroom: Backroom, sku_id: int) -> dict[str, bool]:
    """Whether each notice is marked, by key."""
    found = backroom.ledger(sku_id).select(
        "SELECT pre_deduct_key, sent_at FROM seckill_notice WHERE sku_id = %(sku)s ORDER BY created_at, pre_deduct_key"
    )
    return {key.decode(): sent_at is not None for key, sent_at in found}


def test_a_pass_publishes_each_notice_once_and_marks_it(
    backroom: Backroom, functions: Functions, function_environment: pytest.MonkeyPatch, mailbox: Mailbox
) -> None:
    function_environment.setenv("NOTICE_TOPIC_ARN", mailbox.arn)
    functions.new_containers()
    sku_id = backroom.sales.open(total=5)
    alice, bob = take_back(backroom, sku_id, "alice", "bob")
    deducted(backroom.redis, sku_id, "carol")
    backroom.age(sku_id)
    summary = functions.reconcile({})
    assert summary["failed"] == []
    assert sorted(mailbox.read(), key=lambda notice: str(notice["user"])) == [
        {"preDeductKey": alice, "skuId": sku_id, "user": "alice", "reason": "not for alice"},
        {"preDeductKey": bob, "skuId": sku_id, "user": "bob", "reason": "not for bob"},
    ]
    assert sent(backroom, sku_id) == {alice: True, bob: True}, "carol was never promised anything"
    functions.reconcile({})
    assert mailbox.read() == []
    assert backroom.audit(sku_id).notices_pending == 0


def test_a_user_that_is_no_text_gets_his_notice_too(backroom: Backroom, mailbox: Mailbox) -> None:
    sku_id = backroom.sales.open(total=5)
    (key,) = take_back(backroom, sku_id, "alice")
    backroom.ledger(sku_id).run("UPDATE seckill_notice SET user_id = X'41FF' WHERE sku_id = %(sku)s")
    assert publish_notices(backroom.database, NoticeTopic(mailbox.arn), patience()) == 1
    assert [(notice["preDeductKey"], notice["user"]) for notice in mailbox.read()] == [(key, "A\\xff")]


def test_a_notice_that_cannot_be_published_stays_and_fails_nothing_else(backroom: Backroom, mailbox: Mailbox) -> None:
    sku_id = backroom.sales.open(total=5)
    alice, bob = take_back(backroom, sku_id, "alice", "bob")
    (stale,) = backroom.promise(sku_id, "carol")
    backroom.age(sku_id)
    done = backroom.reconcile(topic=NoticeTopic(f"{mailbox.arn}-gone"))
    assert [problem.partition(":")[0] for problem in done.failed] == ["notices"]
    assert (done.stale.landed, [audit.ok for audit in done.audits]) == (1, [True])
    assert sent(backroom, sku_id) == {alice: False, bob: False}
    assert backroom.audit(sku_id).notices_pending == 2
    assert "ReconcilePass" not in backroom.counts
    assert backroom.reconcile(topic=NoticeTopic(mailbox.arn)).failed == []
    assert {notice["preDeductKey"] for notice in mailbox.read()} == {alice, bob}
    assert backroom.ledger(sku_id).statuses()[stale] == 2


class CannotMark(Database):
    """Its first mark is refused: the notice was published all the same."""

    refused = False

    def execute(self, statement: str, *arguments: Any, **named: Any) -> int:
        if statement == "reconcile.mark_sent" and not self.refused:
            self.refused = True
            raise LockTimeout(1205, statement)
        return super().execute(statement, *arguments, **named)


def test_a_notice_that_could_not_be_marked_is_published_again(backroom: Backroom, mailbox: Mailbox) -> None:
    sku_id = backroom.sales.open(total=5)
    (key,) = take_back(backroom, sku_id, "alice")
    database, topic = CannotMark(backroom.servers.database_url), NoticeTopic(mailbox.arn)
    database.new_call(patience())
    with pytest.raises(LockTimeout):
        publish_notices(database, topic, patience())
    assert sent(backroom, sku_id) == {key: False}
    assert publish_notices(database, topic, patience()) == 1
    assert [notice["preDeductKey"] for notice in mailbox.read()] == [key, key]
    database.close()


def test_many_notices_are_published_oldest_first_over_several_passes(
    backroom: Backroom, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seckill.protocol.notices.NOTICES", 2)
    sku_id = backroom.sales.open(total=9)
    keys = take_back(backroom, sku_id, *(f"user {number}" for number in range(5)))
    for minutes, key in enumerate(keys):
        backroom.ledger(sku_id).run(
            "UPDATE seckill_notice SET created_at = created_at - INTERVAL %(minutes)s MINUTE"
            " WHERE pre_deduct_key = %(key)s",
            minutes=minutes,
            key=key,
        )
    published = []
    for _ in range(4):
        publish_notices(backroom.database, NoticeTopic(mailbox.arn), patience())
        published.append([notice["preDeductKey"] for notice in mailbox.read()])
    assert published == [[keys[4], keys[3]], [keys[2], keys[1]], [keys[0]], []]


def test_without_time_or_topic_notices_wait(backroom: Backroom, mailbox: Mailbox) -> None:
    sku_id = backroom.sales.open(total=9)
    (key,) = take_back(backroom, sku_id, "alice")
    assert publish_notices(backroom.database, NoticeTopic(mailbox.arn), Deadline(seconds=2.9)) == 0
    assert backroom.reconcile().failed == []
    assert (mailbox.read(), sent(backroom, sku_id)) == ([], {key: False})
