"""reserve -> SQS -> land_order -> dead letters, through both functions' entry points and moto's SQS."""

import json
from collections.abc import Callable

from tests.http_events import call, get_latest, get_reservation, post
from tests.ledger import Ledger
from tests.messages import landing_body
from tests.moto.conftest import MAX_RECEIVE_COUNT, LandingQueue
from tests.sales import Sales

LedgerOf = Callable[[int], Ledger]

UNKNOWN_KEY = "0198c0de-0000-7000-8000-000000000000"


def reserved(sku_id: int, user: str) -> str:
    """The key of a fresh reservation over HTTP."""
    answer = call(post(sku_id, user))
    assert answer.status == 202
    return str(answer.body["preDeductKey"])


def test_a_reservation_becomes_an_order(landing: LandingQueue, sales: Sales) -> None:
    sku_id = sales.open(total=1)
    key = reserved(sku_id, "alice")
    assert landing.waiting() == 1
    assert landing.deliver() == []
    assert landing.waiting() == 0
    shown = call(get_reservation(key, "alice")).body
    assert shown["status"] == "LANDED"
    assert shown["orderId"]


def test_the_message_carries_the_key(landing: LandingQueue, sales: Sales) -> None:
    sku_id = sales.open(total=1)
    key = reserved(sku_id, "alice")
    (message,) = landing.receive()
    assert json.loads(message["Body"])["preDeductKey"] == key


def test_a_whole_sale_lands_in_batches(landing: LandingQueue, sales: Sales, ledger_of: LedgerOf) -> None:
    sku_id = sales.open(total=25)
    users = [f"user {number}" for number in range(30)]
    answers = {user: call(post(sku_id, user)) for user in users}
    assert [answer.status for answer in answers.values()] == [202] * 25 + [409] * 5
    deliveries = 0
    while landing.waiting():
        assert deliveries < 5, "three batches of ten do, doubles included"
        assert landing.deliver() == []
        deliveries += 1
    assert [row.orders for row in ledger_of(sku_id).rows().values()] == [1] * 25
    assert ledger_of(sku_id).remaining() == 0
    assert call(get_latest(sku_id, "user 0")).body["status"] == "LANDED"


def test_a_message_delivered_again_after_it_landed_makes_no_second_order(
    landing: LandingQueue, sales: Sales, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=2)
    key = reserved(sku_id, "alice")
    for _ in range(3):
        landing.send(landing_body(key))
    while landing.waiting():
        assert landing.deliver() == []
    assert [row.orders for row in ledger_of(sku_id).rows().values()] == [1]
    assert ledger_of(sku_id).remaining() == 1


def test_a_container_that_died_over_its_batch_loses_nothing(
    landing: LandingQueue, sales: Sales, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=2)
    reserved(sku_id, "alice")
    (message,) = landing.receive()
    assert landing.receive() == [], "it is invisible meanwhile"
    landing.come_back(message)
    assert landing.deliver() == []
    assert landing.waiting() == 0
    assert [row.orders for row in ledger_of(sku_id).rows().values()] == [1]


def test_what_cannot_land_ends_in_the_dead_letters_and_holds_nothing_else_up(
    landing: LandingQueue, sales: Sales, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=2)
    key = reserved(sku_id, "alice")
    hopeless = [landing_body(UNKNOWN_KEY), "{}", "this is not JSON"]
    for body in hopeless:
        landing.send(body)
    for _ in range(MAX_RECEIVE_COUNT):
        assert landing.dead_letters() == []
        assert sorted(landing.deliver()) == sorted(hopeless)
    # moto moves a message at the receive after its last.
    assert landing.receive() == []
    assert landing.waiting() == 0
    assert sorted(landing.dead_letters()) == sorted(hopeless)
    assert ledger_of(sku_id).statuses() == {key: 2}


def test_a_reservation_that_cannot_land_is_dead_lettered_with_its_row_untouched(
    landing: LandingQueue, sales: Sales, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=2)
    ledger = ledger_of(sku_id)
    key = reserved(sku_id, "alice")
    with ledger.refusing("seckill_order", "TRUE"):
        for _ in range(MAX_RECEIVE_COUNT):
            assert len(landing.deliver()) == 1
    assert landing.receive() == []
    (dead,) = landing.dead_letters()
    assert json.loads(dead)["preDeductKey"] == key
    assert ledger.statuses() == {key: 1}, "still a promise: only an explicit roll-back ends it"
    assert ledger.remaining() == 2
    # Whoever rescues the dead letter needs no more than to send it again.
    landing.send(dead)
    assert landing.deliver() == []
    assert ledger.statuses() == {key: 2}


def test_a_message_that_lands_at_its_last_receive_is_no_dead_letter(
    landing: LandingQueue, sales: Sales, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=2)
    key = reserved(sku_id, "alice")
    with ledger_of(sku_id).refusing("seckill_order", "TRUE"):
        for _ in range(MAX_RECEIVE_COUNT - 1):
            assert len(landing.deliver()) == 1
    assert landing.deliver() == []
    assert (landing.waiting(), landing.dead_letters()) == (0, [])
    assert ledger_of(sku_id).statuses() == {key: 2}


def test_a_rolled_back_reservation_is_acknowledged(landing: LandingQueue, sales: Sales, ledger_of: LedgerOf) -> None:
    sku_id = sales.open(total=2)
    ledger_of(sku_id).roll_back(reserved(sku_id, "alice"))
    assert landing.deliver() == []
    assert landing.waiting() == 0
    assert [row.orders for row in ledger_of(sku_id).rows().values()] == [0]


def test_a_queue_that_is_gone_costs_nobody_his_reservation(
    landing: LandingQueue, sales: Sales, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=2)
    landing.sqs.delete_queue(QueueUrl=landing.url)
    key = reserved(sku_id, "alice")
    assert ledger_of(sku_id).statuses() == {key: 1}
