"""O1 to O14 of docs/protocol.md 7: each plays the trace that breaks a protocol without the rule.

Where the rule is code, the docstring says which line guards it; where it is schema, which key. Several traces need a
process to stand still between two of its calls: it is forked, stopped there, and let go on (tests/faults/standing.py).
`shop.check()` runs after everything that happens, so a broken P or I names itself.
"""

import functools
from collections.abc import Iterator

import pytest

from seckill.adapters.mysql import Duplicate, LockTimeout
from seckill.domain.answer import Refusal, Refused, Reserved
from seckill.domain.deadline import Deadline
from seckill.domain.reservation import Deduction, Status
from seckill.protocol.abandon import Abandoned, abandon
from seckill.protocol.land import land
from seckill.protocol.rebuild import Rebuilt, rebuild
from seckill.protocol.reserve import Reserve
from tests.faults.faults import Fault
from tests.faults.market import Market, Process, not_counted
from tests.faults.run import clean_run
from tests.faults.scenarios import Rebuild, Tell, TopUp, roll_back_without_redis
from tests.faults.shop import Shop, open_shop
from tests.faults.standing import losing_answers, paused_at, standing

UNAVAILABLE, SOLD_OUT = Refusal.UNAVAILABLE, Refusal.SOLD_OUT


@pytest.fixture
def shop(market: Market) -> Iterator[Shop]:
    """A sale of one unit; a test that needs more opens its own."""
    with open_shop(market) as opened:
        opened.open(lots=1)
        yield opened


def reserving(shop: Shop, user: str) -> functools.partial[None]:
    """A shopper's call in a process of its own."""
    return functools.partial(_reserve, shop, user)


def _reserve(shop: Shop, user: str, process: Process, tell: Tell) -> None:
    tell((user, process.reserve(shop.sku_id, user)))


def statuses(shop: Shop) -> dict[str, int]:
    """Statuses of the ledger by user; every user has one row here."""
    sale = shop.evidence()
    assert sale is not None
    assert len({row.user for row in sale.rows.values()}) == len(sale.rows)
    return {row.user: row.status for row in sale.rows.values()}


def fail_over(shop: Shop) -> None:
    """To a copy that lacks everything since `keep_earlier_copy`."""
    shop.redis_kept = False
    shop.put_redis(shop.earlier)


def new_epoch(shop: Shop) -> None:
    shop.front.new_call()
    assert rebuild(shop.front.database, shop.front.redis, shop.sku_id, automatic=False) is Rebuilt.LOADED


def insert(shop: Shop, deduction: Deduction) -> int:
    """The fenced insert by itself; rows inserted."""
    shop.front.new_call()
    return shop.front.database.execute(
        "reserve.fenced_insert",
        key=deduction.key, sku_id=deduction.sku_id, user=deduction.user,
        epoch=deduction.epoch, ticket=deduction.ticket, quantity=deduction.quantity,
    )  # fmt: skip


def test_o1_a_call_or_a_sweeper_that_comes_late_does_not_undo_a_promise(shop: Shop) -> None:
    """ben's first call wins the unit and stands before its insert; a sweeper has found no row for his hold. His retry
    inserts and is answered "reserved". Then the first call's insert errs, and the sweeper abandons: neither may turn
    the row 1 -> 3.

    Guards: reserve._confirm reads the row by key before it looks for causes; abandon.tombstone is a plain INSERT, which
    the primary key refuses, and abandon() returns the live row that it then reads.
    """

    def sweep(process: Process, tell: Tell) -> None:
        process.reconcile(Deadline(seconds=30, longest_wait=5))

    with standing(shop, reserving(shop, "ben"), "reserve.fenced_insert", before=True):
        shop.age()
        with standing(shop, sweep, "reconcile.statuses"):
            promised = shop.ask("ben")
            assert isinstance(promised, Reserved)
        assert statuses(shop) == {"ben": Status.RESERVED}
    assert statuses(shop) == {"ben": Status.RESERVED}
    assert shop.promises["ben"] == {promised.key}
    shop.to_a_fixpoint()
    assert statuses(shop) == {"ben": Status.LANDED}


def test_o2_a_call_that_comes_late_finds_the_promise_though_its_insert_meets_no_duplicate(shop: Shop) -> None:
    """As O1, but a rebuild comes between: the late INSERT ... SELECT finds no sale of its epoch, so nothing collides.

    Guard: reserve._confirm reads the row by key whenever nothing was inserted, not only after an error.
    """
    with standing(shop, reserving(shop, "ben"), "reserve.fenced_insert", before=True):
        promised = shop.ask("ben")
        assert isinstance(promised, Reserved)
        new_epoch(shop)
    assert shop.promises["ben"] == {promised.key}
    assert isinstance(shop.last_answers["ben"], Reserved)
    assert statuses(shop) == {"ben": Status.RESERVED}
    shop.to_a_fixpoint()


def test_o3_a_landing_after_any_call_of_a_rebuild_does_not_inflate_the_stock(market: Market) -> None:
    """A rebuild reads remaining, a landing commits, the rebuild reads pending: the landed unit would be free again.

    Guards: rebuild.unpromised is one SELECT of remaining - pending, and _copy_of reads in one snapshot. The calls that
    a rebuild makes are recorded, so one that reads in two statements gets a landing between them.
    """
    scenario = Rebuild()
    for point in clean_run(market, scenario):
        with open_shop(market) as shop:
            scenario.prepare(shop)
            act = functools.partial(scenario.act, shop)
            with paused_at(shop, act, point):
                shop.front.new_call()
                (key,) = shop.promises["ben"]
                assert land(shop.front.database, shop.front.redis, [key], not_counted)[key].finished, point
            sale = shop.evidence()
            assert sale is not None
            assert int(sale.copy.sale["stock"]) == sale.remaining - sale.units(1) == 3, f"landed after {point}: {sale}"
            shop.to_a_fixpoint()


def test_o4_the_unit_of_a_crashed_winner_whose_ticket_is_taken_is_not_sold_twice(shop: Shop) -> None:
    """ben has a row with ticket 1; a fail-over loses his deduction; carl wins ticket 1 again and crashes. A tombstone
    without a ticket would let carl's unit be given back: dora would be promised ben's unit.

    Guards: seckill_pre_deduct.ticket NOT NULL and UNIQUE (sku_id, epoch, ticket); abandon.tombstone carries the key's
    own epoch and ticket.
    """
    shop.keep_earlier_copy()
    shop.reserve("ben")
    fail_over(shop)
    shop.deduct("carl")
    shop.age()
    shop.beat()
    assert isinstance(shop.ask("dora"), Refused)
    assert "carl" not in statuses(shop)
    shop.to_a_fixpoint()
    assert shop.ask("dora") == Refused(SOLD_OUT)
    assert shop.ask("carl") == Refused(SOLD_OUT)


def test_o5_a_taken_ticket_is_a_poisoned_key_whose_unit_is_not_given_back(shop: Shop) -> None:
    """As O4, but carl lives: he sees the ticket conflict. Giving his unit back would sell it once more.

    Guard: reserve._by_cause does not abandon a poisoned key, and asks for a rebuild instead.
    """
    shop.keep_earlier_copy()
    shop.reserve("ben")
    fail_over(shop)
    answer = shop.ask("carl")
    assert isinstance(answer, Refused)
    assert answer.refusal is UNAVAILABLE
    assert shop.ask("dora") == Refused(SOLD_OUT), "carl's unit was given back"
    shop.answer_rebuild_requests()
    assert shop.ask("carl") == Refused(SOLD_OUT), "the conflict led to no rebuild"
    shop.to_a_fixpoint()


def test_o6_reservations_of_another_quantity_than_the_sales_never_get_a_row(market: Market) -> None:
    """One ticket number a call with mixed quantities: units 1-2 and unit 2 overlap, but tickets 2 and 3 do not collide.

    Guards: the quantity is the sale's, never the request's; reserve.fenced_insert inserts no other quantity, and no
    ticket off its step (and the CHECK seckill_pre_deduct_ticket).
    """
    with open_shop(market, quantity=2) as shop:
        shop.open(lots=2)
        shop.reserve("amy")
        shop.redis_kept = False
        shop.market.redis.hset(f"seckill:{{{shop.sku_id}}}:sale", "quantity", 1)
        for user in ("carl", "dora"):
            assert isinstance(shop.ask(user), Refused)
        for ticket, quantity in ((1, 1), (3, 1), (4, 4), (3, 2), (5, 2)):
            key = f"off-the-step-{ticket}-{quantity}"
            assert insert(shop, Deduction(key, shop.sku_id, "eve", 1, ticket, quantity)) == 0
        shop.to_a_fixpoint()
        assert isinstance(shop.ask("carl"), Reserved)
        assert shop.ask("dora") == Refused(SOLD_OUT)
        shop.to_a_fixpoint()


def test_o7_a_user_whom_redis_forgot_is_not_promised_a_second_unit(market: Market) -> None:
    """`buyers` is lost in a fail-over and the same user wins twice.

    Guards: UNIQUE (sku_id, live_user); reserve._by_cause answers with the row that the user lives under.
    """
    with open_shop(market) as shop:
        shop.open(lots=3)
        key = shop.reserve("ben")
        assert shop.market.redis.hdel(f"seckill:{{{shop.sku_id}}}:buyers", "u:ben") == 1
        again = shop.ask("ben")
        assert isinstance(again, Reserved)
        assert again.key == key
        shop.to_a_fixpoint()
        sale = shop.evidence()
        assert sale is not None
        assert sale.copy.sale["stock"] == "2", "the second key's unit is not back"


@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE, Fault.LOST_AFTER], ids=lambda fault: fault.name)
def test_o8_a_rebuild_whose_commit_was_not_answered_loads_nothing_of_it(market: Market, fault: Fault) -> None:
    """A rebuild's COMMIT failed, the load went on, and the next rebuild of the same epoch legitimises that stale copy.

    Guard: rebuild() throws everything away after CommitUnknown and begins with a fresh epoch; only the epoch whose
    COMMIT was answered is loaded.
    """
    scenario = Rebuild()
    with open_shop(market) as shop:
        scenario.prepare(shop)
        losing_answers(shop, functools.partial(scenario.act, shop), "commit", fault, times=1)
        sale = shop.evidence()
        assert sale is not None
        # The first bump never happened, or happened in vain: Redis has the second one.
        assert sale.epoch == sale.copy.epoch == (2 if fault is Fault.LOST_BEFORE else 3)
        shop.to_a_fixpoint()
    with open_shop(market) as shop:
        scenario.prepare(shop)
        losing_answers(shop, functools.partial(scenario.act, shop), "commit", fault, times=100)
        assert shop.market.redis.keys() == [], "a copy was loaded without its COMMIT"
        shop.to_a_fixpoint()


def test_o9_a_top_up_is_counted_once_whatever_rebuild_comes_between(market: Market) -> None:
    """A top-up adds to the database, a rebuild loads the new stock, then the top-up adds to Redis by INCRBY: twice.

    Guards: change_sale.top_up is itself a rebuild and never adds to live stock; load.lua ignores an epoch that is not
    newer. A rebuild is put after each call of a top-up that holds no lock.
    """
    scenario = TopUp()
    for point in clean_run(market, scenario):
        if point.holding:
            continue
        with open_shop(market) as shop:
            scenario.prepare(shop)
            act = functools.partial(scenario.act, shop)
            with paused_at(shop, act, point):
                new_epoch(shop)
            scenario.again(shop, shop.front)
            sale = shop.evidence()
            assert sale is not None
            assert (sale.total, sale.copy.sale["stock"]) == (5, "3"), f"rebuilt after {point}: {sale}"


def test_o10_a_tombstone_does_not_flip_another_users_row_that_has_its_ticket(shop: Shop) -> None:
    """carl's crashed deduction has ben's ticket (O4). A tombstone by ON DUPLICATE KEY UPDATE would turn *ben's* row 3.

    Guard: abandon.tombstone is a plain INSERT; a duplicate makes the key POISONED and changes nothing.
    """
    shop.keep_earlier_copy()
    key = shop.reserve("ben")
    fail_over(shop)
    crashed = Deduction(shop.deduct("carl"), shop.sku_id, "carl", epoch=1, ticket=1, quantity=1)
    before = shop.evidence()
    shop.front.new_call()
    assert abandon(shop.front.database, shop.front.redis, crashed) is Abandoned.POISONED
    assert shop.evidence() == before
    assert statuses(shop) == {"ben": Status.RESERVED}
    shop.to_a_fixpoint()
    assert shop.promises["ben"] == {key}


def test_o11_an_insert_waits_for_a_rebuild_and_a_rebuild_for_an_insert(market: Market) -> None:
    """A rebuild has counted what is promised and not committed yet; an insert without the shared lock still sees the
    old epoch, and its row slips past the rebuild: one unit promised, and free in the new copy.

    Guard: LOCK IN SHARE MODE in reserve.fenced_insert.
    """

    with open_shop(market) as shop:
        shop.open(lots=2)
        sku_id = shop.sku_id

        def rebuilding(process: Process, tell: Tell) -> None:
            process.new_call()
            rebuild(process.database, process.redis, sku_id, automatic=False)

        slipping = Deduction(shop.deduct("carl"), shop.sku_id, "carl", epoch=1, ticket=1, quantity=1)
        with standing(shop, rebuilding, "rebuild.bump"), pytest.raises(LockTimeout):
            insert(shop, slipping)
        assert insert(shop, slipping) == 0
        shop.to_a_fixpoint()
        assert isinstance(shop.ask("carl"), Reserved)
        shop.to_a_fixpoint()


def test_o12_a_plain_retry_of_an_insert_does_not_look_like_a_ticket_conflict(shop: Shop) -> None:
    """The insert's answer is lost; the retry finds its ticket taken - by itself. Were the key not the primary key, that
    would poison a genuine reservation.

    Guards: PRIMARY KEY (pre_deduct_key), by which reserve._inserted and _confirm read after any failure.
    """

    def counting(process: Process, tell: Tell) -> None:
        counts: list[str] = []
        reserve = Reserve(process.redis, process.database, process.queues, counts.append)
        tell(("ben", reserve(shop.sku_id, "ben")))
        assert "TicketConflict" not in counts

    losing_answers(shop, counting, "reserve.fenced_insert", Fault.LOST_AFTER, times=1)
    assert isinstance(shop.last_answers["ben"], Reserved)
    sale = shop.evidence()
    assert sale is not None
    (row,) = sale.rows.values()
    same = Deduction(row.key, shop.sku_id, row.user, row.epoch, row.ticket, row.quantity)
    with pytest.raises(Duplicate):
        insert(shop, same)
    assert isinstance(shop.ask("ben"), Reserved)
    assert shop.take_all("reconcile") == [], "a rebuild was asked for"
    shop.to_a_fixpoint()


def test_o13_a_user_whose_hold_was_lost_is_not_locked_out_after_a_roll_back(shop: Shop) -> None:
    """gus is rolled back while Redis is away, and his hold is lost: nothing is left to give back, but `buyers` still
    has him. A release that looks at the hold first would send him away for ever.

    Guard: release.lua clears `buyers` independently of the hold.
    """
    roll_back_without_redis(shop, "gus")
    (rolled_back,) = shop.promises["gus"]
    shop.redis_kept = False
    assert shop.market.redis.hdel(f"seckill:{{{shop.sku_id}}}:held", rolled_back) == 1
    # The unit went with the hold: only with a stock of its own does gus meet nothing but `buyers`.
    shop.market.redis.hset(f"seckill:{{{shop.sku_id}}}:sale", "stock", 1)
    again = shop.ask("gus")
    assert isinstance(again, Reserved)
    assert again.key != rolled_back
    shop.to_a_fixpoint()


def test_o14_a_stock_that_is_simply_wrong_never_becomes_a_promise_too_many(market: Market) -> None:
    """An operator or a bug puts 50 units into Redis where 5 are.

    Guards: `ticket BETWEEN quantity AND cap` in reserve.fenced_insert; abandon() writes no tombstone for a ticket >
    cap, which would raise cap with each refused key.
    """
    with open_shop(market) as shop:
        shop.open(lots=5)
        shop.redis_kept = False
        shop.market.redis.hset(f"seckill:{{{shop.sku_id}}}:sale", "stock", 50)
        answers = [shop.ask(f"user-{number}") for number in range(12)]
        assert sum(isinstance(answer, Reserved) for answer in answers) == 5
        shop.age()
        shop.beat()
        assert isinstance(shop.ask("late"), Refused)
        shop.to_a_fixpoint()
        assert shop.ask("late") == Refused(SOLD_OUT)
