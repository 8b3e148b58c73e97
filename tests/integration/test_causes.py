"""Why a deduction did not become a promise, and what must and must not be given back (docs/protocol.md 4.5 to 4.7).

Each test puts Redis and MySQL into the state that a crash, a fail-over or an operator leaves, then asks once more.
"""

from collections.abc import Callable
from typing import Any

import pytest
import uuid6

from local.servers import Servers
from seckill.adapters.mysql import Database, Row
from seckill.adapters.redis import Redis
from seckill.adapters.sqs import Queues
from seckill.domain.answer import Answer, Refusal, Refused, Reserved
from seckill.domain.deadline import Deadline
from seckill.domain.reservation import Deduction, Reservation, Status
from seckill.protocol.abandon import Abandoned, abandon
from seckill.protocol.land import Landing, land
from seckill.protocol.rebuild import Rebuilt, rebuild
from seckill.protocol.reserve import FAILED_ABANDONS, Reserve
from tests.books import assert_books_balance
from tests.containers import reserve_container
from tests.ledger import Ledger
from tests.messages import drain, empty
from tests.metrics import uncounted
from tests.redis_copy import RedisCopy
from tests.sales import Sales
from tests.stores import won

CopyOf = Callable[[int], RedisCopy]
LedgerOf = Callable[[int], Ledger]
Requests = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def rebuild_requests(sqs: Any, queue_urls: dict[str, str]) -> Requests:
    """What has been asked of reconcile since the last look; nothing before the test."""
    empty(sqs, queue_urls["reconcile"])
    return lambda: drain(sqs, queue_urls["reconcile"])


def promised(answer: Answer) -> Reserved:
    """The answer, which must be a promise."""
    assert isinstance(answer, Reserved), answer
    return answer


def ask_again(answer: Answer, refusal: Refusal = Refusal.UNAVAILABLE) -> str:
    """The key of an answer that promises nothing."""
    assert isinstance(answer, Refused), answer
    assert answer.refusal is refusal
    assert answer.key is not None
    return answer.key


def deduct_and_die(redis: Redis, sku_id: int, user: str) -> Deduction:
    """A container that dies between the Lua deduct and the ledger insert."""
    return won(redis.reserve(sku_id, str(uuid6.uuid7()), user)).deduction


def new_epoch(ledger: Ledger) -> None:
    """MySQL is one generation further, as after a rebuild whose load has not come through; nothing must be pending."""
    changed = ledger.run(
        "UPDATE seckill_sale SET epoch = epoch + 1, cap = (SELECT remaining FROM seckill_stock WHERE sku_id = %(sku)s)"
        " WHERE sku_id = %(sku)s"
    )
    assert changed == 1


def rebuilt(database: Database, redis: Redis, sku_id: int) -> None:
    """What reconcile does when asked."""
    assert rebuild(database, redis, sku_id, automatic=False) is Rebuilt.LOADED


# -- a container that died: nothing is wrong ------------------------------------------------------------------------


def test_a_deduct_whose_container_died_is_finished_by_the_next_request(
    sales: Sales, reserve: Reserve, redis: Redis, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=1)
    orphan = deduct_and_die(redis, sku_id, "alice")
    answer = promised(reserve(sku_id, "alice"))
    assert (answer.key, answer.new) == (orphan.key, True)
    assert ledger_of(sku_id).statuses() == {orphan.key: 1}
    assert (copy_of(sku_id).stock, list(copy_of(sku_id).holds())) == (0, [orphan.key])


# -- dead keys ------------------------------------------------------------------------------------------------------


def test_a_key_whose_epoch_is_over_gets_no_row_and_gives_nothing_back(
    sales: Sales,
    reserve: Reserve,
    redis: Redis,
    database: Database,
    copy_of: CopyOf,
    ledger_of: LedgerOf,
    rebuild_requests: Requests,
) -> None:
    sku_id = sales.open(total=2)
    copy = copy_of(sku_id)
    dead = deduct_and_die(redis, sku_id, "alice")
    new_epoch(ledger_of(sku_id))
    before = copy.everything()
    assert ask_again(reserve(sku_id, "alice")) == dead.key
    assert ledger_of(sku_id).rows() == {}, "no tombstone"
    assert copy.everything() == before, "no release"
    assert rebuild_requests() == [{"job": "rebuild", "skuId": sku_id, "epoch": dead.epoch}]
    rebuilt(database, redis, sku_id)
    fresh = promised(reserve(sku_id, "alice"))
    assert fresh.key != dead.key
    assert (copy.stock, ledger_of(sku_id).statuses()) == (1, {fresh.key: 1})


def test_a_fresh_key_from_a_copy_of_an_older_epoch_is_dead_too(
    sales: Sales, reserve: Reserve, copy_of: CopyOf, ledger_of: LedgerOf, counts: list[str]
) -> None:
    sku_id = sales.open(total=2)
    new_epoch(ledger_of(sku_id))
    ask_again(reserve(sku_id, "alice"))
    assert ledger_of(sku_id).rows() == {}
    assert copy_of(sku_id).stock == 1
    assert "Abandoned" not in counts


def test_when_the_sale_was_closed_meanwhile_the_answer_is_closed(
    sales: Sales, reserve: Reserve, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=2)
    ledger_of(sku_id).run("UPDATE seckill_sale SET state = 'closed', epoch = epoch + 1 WHERE sku_id = %(sku)s")
    ask_again(reserve(sku_id, "alice"), Refusal.CLOSED)
    assert ledger_of(sku_id).rows() == {}


# -- poisoned keys --------------------------------------------------------------------------------------------------


def test_a_ticket_above_cap_is_poisoned_no_tombstone_and_no_release(
    sales: Sales,
    reserve: Reserve,
    redis: Redis,
    database: Database,
    copy_of: CopyOf,
    ledger_of: LedgerOf,
    counts: list[str],
    rebuild_requests: Requests,
) -> None:
    sku_id = sales.open(total=3)
    copy = copy_of(sku_id)
    copy.set(ticket=3)
    key = ask_again(reserve(sku_id, "alice"))
    assert ledger_of(sku_id).rows() == {}
    assert (ledger_of(sku_id).cap(), copy.stock, list(copy.holds())) == (3, 2, [key])
    assert counts == ["TicketConflict"]
    assert rebuild_requests() == [{"job": "rebuild", "skuId": sku_id, "epoch": 1}]
    rebuilt(database, redis, sku_id)
    assert promised(reserve(sku_id, "alice")).new


def test_stock_made_up_in_redis_sells_not_one_unit_too_many(
    servers: Servers, sales: Sales, reserve: Reserve, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=3)
    copy_of(sku_id).set(stock=1_000)
    answers = [reserve(sku_id, f"user {number}") for number in range(6)]
    assert [isinstance(answer, Reserved) for answer in answers] == [True] * 3 + [False] * 3
    assert assert_books_balance(servers.database_url, sku_id).reserved == 3


def test_a_ticket_that_is_taken_is_poisoned_and_the_other_users_row_stays_as_it_is(
    sales: Sales,
    reserve: Reserve,
    redis: Redis,
    database: Database,
    copy_of: CopyOf,
    ledger_of: LedgerOf,
    counts: list[str],
    rebuild_requests: Requests,
) -> None:
    sku_id = sales.open(total=3)
    copy, ledger = copy_of(sku_id), ledger_of(sku_id)
    alices = promised(reserve(sku_id, "alice")).key
    copy.lose_hold(alices)
    copy.lose_buyer("alice")
    copy.set(stock=3, ticket=0)  # a fail-over lost her deduct
    rows = ledger.rows()
    bobs = ask_again(reserve(sku_id, "bob"))
    assert ledger.rows() == rows
    assert (ledger.cap(), copy.stock, list(copy.holds())) == (3, 2, [bobs])
    assert "TicketConflict" in counts
    assert rebuild_requests() == [{"job": "rebuild", "skuId": sku_id, "epoch": 1}]
    rebuilt(database, redis, sku_id)
    assert promised(reserve(sku_id, "alice")).key == alices
    assert promised(reserve(sku_id, "bob")).key != bobs
    assert copy.stock == 1


@pytest.mark.parametrize("ticket", [0, 1, 2, 3])
def test_a_copy_with_another_quantity_promises_nothing(
    sales: Sales, reserve: Reserve, copy_of: CopyOf, ledger_of: LedgerOf, ticket: int
) -> None:
    """Ticket ranges of different sizes could overlap (docs/protocol.md 7, O6)."""
    sku_id = sales.open(total=8, quantity=2)
    copy_of(sku_id).set(ticket=ticket, quantity=1)
    ask_again(reserve(sku_id, "alice"))
    assert ledger_of(sku_id).rows() == {}


def test_a_copy_whose_ticket_is_off_the_step_counts_as_missing(
    sales: Sales, reserve: Reserve, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=8, quantity=2)
    copy_of(sku_id).set(ticket=1)
    assert reserve(sku_id, "alice") == Refused(Refusal.UNAVAILABLE)
    assert ledger_of(sku_id).rows() == {}


# -- a user who already has a live row ------------------------------------------------------------------------------


@pytest.mark.parametrize("landed", [False, True])
def test_a_user_whose_key_redis_lost_gets_it_back_and_the_new_one_is_abandoned(
    sales: Sales,
    reserve: Reserve,
    redis: Redis,
    database: Database,
    copy_of: CopyOf,
    ledger_of: LedgerOf,
    counts: list[str],
    rebuild_requests: Requests,
    landed: bool,
) -> None:
    sku_id = sales.open(total=3)
    copy, ledger = copy_of(sku_id), ledger_of(sku_id)
    key = promised(reserve(sku_id, "alice")).key
    if landed:
        assert land(database, redis, [key], uncounted) == {key: Landing.LANDED}
    copy.lose_buyer("alice")
    counts.clear()
    answer = promised(reserve(sku_id, "alice"))
    assert (answer.key, answer.new) == (key, False)
    assert answer.status is (Status.LANDED if landed else Status.RESERVED)
    (tombstone,) = (row for row in ledger.rows().values() if row.key != key)
    assert (tombstone.status, tombstone.ticket, tombstone.reason) == (3, 2, "abandoned")
    assert (ledger.cap(), copy.stock) == (4, 2), "the new key's unit is for sale again, under a new ticket"
    assert tombstone.key not in copy.holds()
    assert counts == ["Abandoned"]
    assert rebuild_requests() == [{"job": "rebuild", "skuId": sku_id, "epoch": 1}]


def test_a_user_whose_deduct_redis_lost_gets_his_key_and_no_unit_is_released(
    sales: Sales, reserve: Reserve, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=3)
    copy, ledger = copy_of(sku_id), ledger_of(sku_id)
    key = promised(reserve(sku_id, "alice")).key
    copy.lose_buyer("alice")
    copy.lose_hold(key)
    copy.set(stock=3, ticket=0)
    answer = promised(reserve(sku_id, "alice"))
    assert (answer.key, answer.new) == (key, False)
    assert (ledger.statuses(), ledger.cap(), copy.stock) == ({key: 1}, 3, 2)


# -- the hold alone is lost -----------------------------------------------------------------------------------------


def test_a_holder_whose_hold_was_lost_is_told_by_his_row(
    sales: Sales, reserve: Reserve, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=3)
    key = promised(reserve(sku_id, "alice")).key
    copy_of(sku_id).lose_hold(key)
    answer = promised(reserve(sku_id, "alice"))
    assert (answer.key, answer.new) == (key, False)
    assert ledger_of(sku_id).statuses() == {key: 1}


def test_a_buyer_without_hold_and_without_row_asks_for_a_rebuild(
    sales: Sales, reserve: Reserve, copy_of: CopyOf, ledger_of: LedgerOf, rebuild_requests: Requests
) -> None:
    sku_id = sales.open(total=3)
    copy_of(sku_id).put_buyer("alice", "a-key-that-nobody-made")
    assert ask_again(reserve(sku_id, "alice")) == "a-key-that-nobody-made"
    assert ledger_of(sku_id).rows() == {}
    assert copy_of(sku_id).stock == 3
    assert rebuild_requests() == [{"job": "rebuild", "skuId": sku_id, "epoch": 1}]


# -- a key that is not the asker's ----------------------------------------------------------------------------------


@pytest.mark.parametrize("whose", ["alice's, pending", "alice's, landed", "alice's, rolled back", "of another sale"])
def test_a_user_to_whom_redis_gives_a_key_that_is_not_his_is_promised_nothing_until_a_rebuild(
    sales: Sales,
    reserve: Reserve,
    redis: Redis,
    database: Database,
    copy_of: CopyOf,
    ledger_of: LedgerOf,
    rebuild_requests: Requests,
    whose: str,
) -> None:
    sku_id = sales.open(total=3)
    key = promised(reserve(sku_id, "alice")).key
    if whose == "alice's, landed":
        assert land(database, redis, [key], uncounted) == {key: Landing.LANDED}
    elif whose == "alice's, rolled back":
        ledger_of(sku_id).roll_back(key)
    elif whose == "of another sale":
        key = promised(reserve(sales.open(total=3), "bob")).key
    copy_of(sku_id).put_buyer("bob", key)
    before = (ledger_of(sku_id).rows(), copy_of(sku_id).everything())
    assert reserve(sku_id, "bob") == Refused(Refusal.UNAVAILABLE), "nobody learns another's key"
    assert (ledger_of(sku_id).rows(), copy_of(sku_id).everything()) == before
    assert rebuild_requests() == [{"job": "rebuild", "skuId": sku_id, "epoch": 1}]
    rebuilt(database, redis, sku_id)
    bobs = promised(reserve(sku_id, "bob"))
    assert bobs.new
    assert bobs.key != key


def test_a_hold_of_another_user_is_not_inserted_for_whoever_asks(
    sales: Sales, reserve: Reserve, redis: Redis, copy_of: CopyOf, ledger_of: LedgerOf, rebuild_requests: Requests
) -> None:
    sku_id = sales.open(total=3)
    key = deduct_and_die(redis, sku_id, "alice").key
    copy_of(sku_id).put_buyer("bob", key)
    ask_again(reserve(sku_id, "bob"))
    assert ledger_of(sku_id).rows() == {}
    assert rebuild_requests() == [{"job": "rebuild", "skuId": sku_id, "epoch": 1}]
    assert promised(reserve(sku_id, "alice")).key == key


# -- a row at 3 -----------------------------------------------------------------------------------------------------


def test_a_rolled_back_user_gets_a_new_key_in_the_same_call(
    sales: Sales, reserve: Reserve, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=1)
    copy, ledger = copy_of(sku_id), ledger_of(sku_id)
    old = promised(reserve(sku_id, "alice")).key
    ledger.roll_back(old)
    answer = promised(reserve(sku_id, "alice"))
    assert answer.new
    assert ledger.statuses() == {old: 3, answer.key: 1}
    assert (copy.stock, list(copy.holds()), copy.buyers()) == (0, [answer.key], {"alice": answer.key})


def test_a_rolled_back_user_whose_hold_was_lost_is_not_locked_out(
    sales: Sales, reserve: Reserve, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    """`buyers` is cleared independently of the hold (docs/protocol.md 7, O13)."""
    sku_id = sales.open(total=2)
    old = promised(reserve(sku_id, "alice")).key
    ledger_of(sku_id).roll_back(old)
    copy_of(sku_id).lose_hold(old)
    answer = promised(reserve(sku_id, "alice"))
    assert answer.new
    assert answer.key != old
    assert copy_of(sku_id).stock == 0, "a lost hold gives nothing back"


# -- abandon --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [1644, 1114])
def test_after_a_failed_insert_the_key_is_abandoned_and_the_user_can_buy(
    sales: Sales, reserve: Reserve, copy_of: CopyOf, ledger_of: LedgerOf, counts: list[str], code: int
) -> None:
    """1644 names the row; 1114, a full table, is "any other error"."""
    sku_id = sales.open(total=1)
    copy, ledger = copy_of(sku_id), ledger_of(sku_id)
    with ledger.refusing("seckill_pre_deduct", "NEW.status = 1", code):
        key = ask_again(reserve(sku_id, "alice"))
    assert ledger.statuses() == {key: 3}
    assert (ledger.cap(), copy.stock, copy.holds(), copy.buyers()) == (2, 1, {}, {})
    assert counts == ["Abandoned"]
    answer = promised(reserve(sku_id, "alice"))
    assert answer.new
    assert answer.key != key
    assert promised(reserve(sku_id, "alice")).key == answer.key
    assert reserve(sku_id, "bob") == Refused(Refusal.SOLD_OUT)


def test_a_refused_tombstone_gives_nothing_back(
    sales: Sales, reserve: Reserve, copy_of: CopyOf, ledger_of: LedgerOf, counts: list[str]
) -> None:
    sku_id = sales.open(total=1)
    copy, ledger = copy_of(sku_id), ledger_of(sku_id)
    with ledger.refusing("seckill_pre_deduct", "NEW.status IN (1, 3)"):
        key = ask_again(reserve(sku_id, "alice"))
    assert (ledger.rows(), ledger.cap(), copy.stock, list(copy.holds())) == ({}, 1, 0, [key])
    assert "Abandoned" not in counts
    assert promised(reserve(sku_id, "alice")).key == key, "the unit is still his"


def test_abandoning_twice_gives_the_unit_back_once(
    sales: Sales, redis: Redis, database: Database, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=3)
    deduction = deduct_and_die(redis, sku_id, "alice")
    for _ in range(2):
        assert abandon(database, redis, deduction) is Abandoned.TOMBSTONE
    assert (ledger_of(sku_id).cap(), copy_of(sku_id).stock) == (4, 3)
    assert ledger_of(sku_id).statuses() == {deduction.key: 3}


@pytest.mark.parametrize("landed", [False, True])
def test_abandon_never_changes_a_row_that_exists(
    sales: Sales, reserve: Reserve, redis: Redis, database: Database, copy_of: CopyOf, ledger_of: LedgerOf, landed: bool
) -> None:
    """A retry that errs must not undo the promise of the first request (docs/protocol.md 7, O1)."""
    sku_id = sales.open(total=3)
    copy, ledger = copy_of(sku_id), ledger_of(sku_id)
    key = promised(reserve(sku_id, "alice")).key
    if landed:
        land(database, redis, [key], uncounted)
    rows, before = ledger.rows(), copy.everything()
    found = abandon(database, redis, Deduction(key, sku_id, "alice", epoch=1, ticket=1, quantity=1))
    assert isinstance(found, Reservation)
    assert found.status is (Status.LANDED if landed else Status.RESERVED)
    assert (ledger.rows(), ledger.cap(), copy.everything()) == (rows, 3, before)


def test_abandon_of_a_key_whose_ticket_another_user_holds_leaves_both_alone(
    sales: Sales, reserve: Reserve, redis: Redis, database: Database, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    """docs/protocol.md 7, O4, O5 and O10."""
    sku_id = sales.open(total=3)
    copy, ledger = copy_of(sku_id), ledger_of(sku_id)
    promised(reserve(sku_id, "alice"))
    copy.set(stock=3, ticket=0)
    bobs = deduct_and_die(redis, sku_id, "bob")
    rows, before = ledger.rows(), copy.everything()
    assert abandon(database, redis, bobs) is Abandoned.POISONED
    assert (ledger.rows(), ledger.cap(), copy.everything()) == (rows, 3, before)


def test_abandon_of_a_ticket_above_cap_is_poisoned(
    sales: Sales, redis: Redis, database: Database, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=3)
    copy_of(sku_id).set(ticket=3)
    deduction = deduct_and_die(redis, sku_id, "alice")
    assert abandon(database, redis, deduction) is Abandoned.POISONED
    assert (ledger_of(sku_id).rows(), ledger_of(sku_id).cap(), copy_of(sku_id).stock) == ({}, 3, 2)


def test_abandon_of_a_dead_key_writes_no_tombstone(
    sales: Sales, redis: Redis, database: Database, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=3)
    deduction = deduct_and_die(redis, sku_id, "alice")
    new_epoch(ledger_of(sku_id))
    assert abandon(database, redis, deduction) is Abandoned.DEAD
    assert (ledger_of(sku_id).rows(), ledger_of(sku_id).cap(), copy_of(sku_id).stock) == ({}, 3, 2)


def test_a_closed_sale_abandons_what_it_cannot_promise(
    sales: Sales, reserve: Reserve, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=3)
    ledger_of(sku_id).run("UPDATE seckill_sale SET state = 'closed' WHERE sku_id = %(sku)s")
    key = ask_again(reserve(sku_id, "alice"), Refusal.CLOSED)
    assert ledger_of(sku_id).statuses() == {key: 3}
    assert (copy_of(sku_id).stock, copy_of(sku_id).holds()) == (3, {})


# -- while others hold the sale's row -------------------------------------------------------------------------------


class ListeningDatabase(Database):
    """Remembers which statements were asked for."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked: list[str] = []

    def rows(self, statement: str, *arguments: Any, **named: Any) -> list[Row]:
        self.asked.append(statement)
        return super().rows(statement, *arguments, **named)


def test_behind_a_held_sale_row_there_is_no_time_to_abandon_and_asking_again_gets_the_key(
    servers: Servers, sales: Sales, redis: Redis, queues: Queues, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=1)
    database = ListeningDatabase(servers.database_url)
    reserve = Reserve(redis, database, queues, uncounted)
    with ledger_of(sku_id).locked("SELECT * FROM seckill_sale WHERE sku_id = %(sku)s FOR UPDATE"):
        waited = Deadline(seconds=3)
        answer = reserve(sku_id, "alice")
        assert waited.left() > 0, "every answer comes within 3 s"
        assert isinstance(answer, Refused)
        assert answer.refusal in (Refusal.UNAVAILABLE, Refusal.OUTCOME_UNKNOWN)
        assert "abandon.lock_sale" not in database.asked, "it is left to the sweeper"
    assert list(copy_of(sku_id).holds()) == [answer.key], "nothing was given back"
    assert promised(reserve(sku_id, "alice")).key == answer.key
    assert ledger_of(sku_id).statuses() == {answer.key: 1}


def test_a_container_whose_abandons_keep_failing_leaves_them_to_the_sweeper_until_an_insert_succeeds(
    servers: Servers, queue_urls: dict[str, str], sales: Sales, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=10)
    ledger = ledger_of(sku_id)
    reserve = reserve_container(servers, queue_urls)
    with ledger.refusing("seckill_pre_deduct", "NEW.status = 1 AND NEW.user_id <> 'lucky'"):
        # A shared lock lets the fenced insert through and makes abandon's exclusive one wait.
        with ledger.locked("SELECT * FROM seckill_sale WHERE sku_id = %(sku)s LOCK IN SHARE MODE"):
            for number in range(FAILED_ABANDONS):
                ask_again(reserve(sku_id, f"user {number}"))
        ask_again(reserve(sku_id, "skipped"))
        assert ledger.rows() == {}, "no fourth try, although it would succeed now"
        lucky = promised(reserve(sku_id, "lucky")).key
        abandoned = ask_again(reserve(sku_id, "abandoned"))
    assert ledger.statuses() == {lucky: 1, abandoned: 3}


# -- what is sent ---------------------------------------------------------------------------------------------------


def test_a_promise_is_sent_again_until_it_has_landed(
    sales: Sales, reserve: Reserve, redis: Redis, database: Database, sqs: Any, queue_urls: dict[str, str]
) -> None:
    """A lost message costs nothing: the next request sends another; a landed reservation needs none."""
    sku_id = sales.open(total=1)
    empty(sqs, queue_urls["landing"])
    key = promised(reserve(sku_id, "alice")).key
    reserve(sku_id, "alice")
    assert [body["preDeductKey"] for body in drain(sqs, queue_urls["landing"])] == [key, key]
    land(database, redis, [key], uncounted)
    reserve(sku_id, "alice")
    assert drain(sqs, queue_urls["landing"]) == []
