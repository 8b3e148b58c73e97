"""The days on which more than one thing goes wrong, each played out on real servers until the books balance again."""

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from seckill.adapters.sqs import QueueError
from seckill.domain.answer import Refusal, Refused, Reserved
from seckill.domain.deadline import Deadline
from seckill.domain.reservation import Status
from seckill.protocol.audit import Audit, audit_sale
from seckill.protocol.dead_letters import rescue_dead_letters
from seckill.protocol.land import Landing, land
from seckill.protocol.rebuild import Rebuilt, rebuild
from seckill.protocol.reconcile import Pass, Reconcile
from tests.crowd import at_once
from tests.faults.evidence import Evidence
from tests.faults.faults import Trouble
from tests.faults.market import LANDING_ATTEMPTS, STALE_SECONDS, Market, Process, not_counted
from tests.faults.scenarios import Tell
from tests.faults.shop import Shop, open_shop
from tests.faults.standing import dying_after

SOLD_OUT = Refused(Refusal.SOLD_OUT)
# How long the database hangs: the whole minute and a half in `make faults`, several passes' time in CI.
FROZEN_SECONDS = 90 if os.environ.get("FAULTS") == "full" else 10


@pytest.fixture
def shop(market: Market) -> Iterator[Shop]:
    """A sale that the test opens."""
    with open_shop(market) as opened:
        yield opened


def evidence(shop: Shop) -> Evidence:
    sale = shop.evidence()
    assert sale is not None
    return sale


def stock_in_redis(shop: Shop) -> int:
    return int(evidence(shop).copy.sale["stock"])


def audited(shop: Shop) -> Audit:
    shop.front.new_call()
    audit = audit_sale(shop.front.database, shop.front.redis, shop.sku_id, STALE_SECONDS)
    assert audit is not None
    return audit


def refusal_of(shop: Shop, user: str) -> Refusal | None:
    answer = shop.ask(user)
    return answer.refusal if isinstance(answer, Refused) else None


def users(name: str, number: int) -> list[str]:
    return [f"{name}-{n}" for n in range(number)]


def reserve_many(shop: Shop, shoppers: list[str]) -> list[str]:
    """A promise for each, checked once; their keys."""
    keys = []
    for user in shoppers:
        answer = shop.front.reserve(shop.sku_id, user)
        shop.told(user, answer)
        assert isinstance(answer, Reserved), answer
        keys.append(answer.key)
    shop.check()
    return keys


def land_in_batches(process: Process, keys: list[str]) -> None:
    for start in range(0, len(keys), 20):
        process.new_call()
        land(process.database, process.redis, keys[start : start + 20], not_counted)


def rescue(process: Process) -> None:
    process.new_call()
    deadline = Deadline(seconds=60, longest_wait=5)
    with contextlib.suppress(QueueError):  # a pass reports it, and the next one goes on
        rescue_dead_letters(process.database, process.redis, process.letters, deadline, not_counted)


def sell_everything(shop: Shop) -> int:
    """Newcomers buy until all is sold, waiting for the reconciler when they are told to ask again; how many bought."""
    for bought, user in enumerate(users("newcomer", evidence(shop).total + 1)):
        if refusal_of(shop, user) not in (None, Refusal.SOLD_OUT):
            shop.to_a_fixpoint()
            shop.ask(user)
        answer = shop.last_answers[user]
        if answer == SOLD_OUT:
            shop.to_a_fixpoint()
            assert evidence(shop).remaining == 0, "units are left, and nobody can buy them"
            return bought
        assert isinstance(answer, Reserved), answer
    raise AssertionError("more was sold than there is")


def test_a_process_killed_right_after_the_deduction_costs_nobody_a_unit(shop: Shop) -> None:
    shop.open(lots=1)

    def buying(process: Process, tell: Tell) -> None:
        tell(("amy", process.reserve(shop.sku_id, "amy")))

    dying_after(shop, buying, "reserve")
    assert not shop.promises
    assert shop.ask("ben") == SOLD_OUT
    shop.age()
    deadline = Deadline(seconds=30, longest_wait=5)
    assert [sum(holds.released for holds in shop.front.reconcile(deadline).holds) for _ in range(2)] == [1, 0]
    assert stock_in_redis(shop) == 1
    assert isinstance(shop.ask("amy"), Reserved)
    shop.to_a_fixpoint()


def test_a_flush_in_the_middle_of_a_sale_sells_nothing_out_and_nothing_twice(shop: Shop) -> None:
    shop.open(lots=100)
    for user in users("early", 20):
        shop.reserve_and_land(user)
    reserve_many(shop, users("pending", 30))
    shop.strike_redis(Trouble.FLUSHED)
    assert refusal_of(shop, "new") is Refusal.UNAVAILABLE, "Redis knows nothing: that is not sold out"
    shop.answer_rebuild_requests()
    assert stock_in_redis(shop) == 50
    for user in (*users("early", 20), *users("pending", 30)):
        keys = set(shop.promises[user])
        assert isinstance(shop.ask(user), Reserved)
        assert shop.promises[user] == keys, f"{user} has a second unit"
    contents = shop.redis_contents()
    shop.front.new_call()
    assert rebuild(shop.front.database, shop.front.redis, shop.sku_id) is Rebuilt.NOT_NEEDED
    assert shop.redis_contents() == contents
    assert sell_everything(shop) == 50


def test_a_stock_raised_by_7_behind_our_back_sells_no_unit_too_many_and_the_audit_names_it(shop: Shop) -> None:
    shop.open(lots=100)
    reserve_many(shop, users("early", 60))
    assert audited(shop).ok is True
    shop.redis_kept = False
    shop.market.redis.hincrby(f"seckill:{{{shop.sku_id}}}:sale", "stock", 7)
    audit = audited(shop)
    assert audit.ok is False
    assert audit.gap == 7
    assert [finding[:3] for finding in audit.findings] == ["I3:", "I4:"]
    assert all("stock 47" in finding for finding in audit.findings)
    answers = [shop.ask(user) for user in users("late", 50)]
    assert sum(isinstance(answer, Reserved) for answer in answers) == 40
    shop.to_a_fixpoint()
    assert sum(map(len, shop.promises.values())) == 100
    assert shop.ask("one more") == SOLD_OUT
    assert audited(shop).ok is True


def test_a_fail_over_that_lost_two_deductions_promises_nobody_twice_and_all_units_sell(shop: Shop) -> None:
    shop.open(lots=10)
    shop.reserve_and_land("amy")
    shop.keep_earlier_copy()
    shop.reserve("ben")  # has a row
    shop.deduct("carl")  # has none
    shop.strike_redis(Trouble.LOSES)
    answer = shop.ask("dora")  # wins ben's ticket: the first conflict
    assert isinstance(answer, Refused)
    shop.answer_rebuild_requests()
    sale = evidence(shop)
    assert sale.copy.epoch == sale.epoch == 2, "the conflict did not lead to a rebuild"
    assert stock_in_redis(shop) == 8
    assert isinstance(shop.ask("ben"), Reserved)
    assert len(shop.promises["ben"]) == 1
    assert isinstance(shop.ask("carl"), Reserved)
    assert isinstance(shop.ask("dora"), Reserved)
    assert sell_everything(shop) == 6


def test_200_stale_reservations_attacked_from_five_sides_at_once_end_in_exactly_one_way_each(shop: Shop) -> None:
    shop.open(lots=250)
    keys = reserve_many(shop, users("user", 200))
    refused = set(keys[::4])  # 50 that can never be landed, one failure short of being rolled back
    with shop.market.database.cursor() as cursor:
        cursor.executemany("INSERT INTO refused_orders VALUES (%s)", [[key] for key in refused])
        cursor.execute(
            "UPDATE seckill_pre_deduct SET retry_count = %s WHERE sku_id = %s", [LANDING_ATTEMPTS - 1, shop.sku_id]
        )
    for key in keys:
        shop.send_dead_letter(key)
    shop.take_all("landing")
    shop.age()
    lander, again, rescuer = shop.front, shop.market.new_process(), shop.market.new_process()
    first, second = shop.market.sweepers
    at_once(
        [
            lambda: land_in_batches(lander, keys),
            lambda: land_in_batches(again, keys),
            lambda: rescue(rescuer),
            lambda: first.reconcile(Deadline(seconds=60, longest_wait=5)),
            lambda: second.reconcile(Deadline(seconds=60, longest_wait=5)),
        ]
    )
    shop.check()
    shop.to_a_fixpoint()
    sale = evidence(shop)
    orders, notices = Counter(key for key, _, _ in sale.orders), Counter(key for key, _ in sale.notices)
    for key in keys:
        ends = (sale.rows[key].status, orders[key], notices[key])
        assert ends == ((Status.ROLLED_BACK, 0, 1) if key in refused else (Status.LANDED, 1, 0)), f"{key}: {ends}"
    assert sale.remaining == 250 - 150
    assert stock_in_redis(shop) == 250 - 150
    assert not shop.unheard_notices()


def test_a_database_that_is_frozen_for_a_while_turns_no_promise_into_a_roll_back(shop: Shop) -> None:
    server = shop.market.servers.database
    if server is None:
        pytest.skip("somebody's own database is not frozen")
    shop.open(lots=10)
    keys = reserve_many(shop, users("user", 6))
    shop.age()
    server.freeze()
    try:
        answer = shop.front.reserve(shop.sku_id, "late")
        assert isinstance(answer, Refused)
        assert answer.refusal is Refusal.OUTCOME_UNKNOWN
        thawing = time.monotonic() + FROZEN_SECONDS
        while time.monotonic() < thawing:
            shop.front.database.new_call(impatient())
            landings = land(shop.front.database, shop.front.redis, keys, not_counted)
            assert set(landings.values()) == {Landing.FAILED}
            for done in shop.two_passes(impatient()):
                assert any(failed.startswith("stale rows: ") for failed in done.failed), done
    finally:
        server.thaw()
    with shop.market.database.cursor() as cursor:
        cursor.execute("SELECT DISTINCT status, retry_count FROM seckill_pre_deduct WHERE sku_id = %s", [shop.sku_id])
        assert list(cursor.fetchall()) == [{"status": 1, "retry_count": 0}]
    shop.to_a_fixpoint()
    sale = evidence(shop)
    assert {sale.rows[key].status for key in keys} == {Status.LANDED}
    assert sale.notices == []
    assert isinstance(shop.ask("late"), Reserved)
    shop.to_a_fixpoint()


def impatient() -> Deadline:
    """A pass during which the database is given up soon."""
    return Deadline(seconds=2, longest_wait=0.3)


@pytest.mark.parametrize(("rebuilt_since", "beats"), [(True, 1), (False, 2)], ids=["older-epoch", "same-epoch"])
def test_a_restored_older_database_is_healed_by_the_next_beats_without_a_storm_of_pages(
    shop: Shop, rebuilt_since: bool, beats: int
) -> None:
    shop.open(lots=10)
    shop.reserve_and_land("amy")
    shop.reserve("ben")
    backup = tables_of(shop)
    shop.reserve_and_land("carl")
    shop.reserve("dora")
    if rebuilt_since:
        for _ in range(2):
            shop.front.new_call()
            rebuild(shop.front.database, shop.front.redis, shop.sku_id, automatic=False)
    restore(shop, backup)
    epoch_before = evidence(shop).copy.epoch
    passes, counts = beat_alone(shop, beats)
    sale = evidence(shop)
    assert sale.copy.epoch == sale.epoch == (epoch_before or 0) + 1
    assert passes[-1].rebuilt == [shop.sku_id]
    assert not pages(counts)
    assert counts["Rebuild"] == 1
    assert audited(shop).ok is True
    shop.to_a_fixpoint()
    assert {row.user: row.status for row in evidence(shop).rows.values()} == {"amy": 2, "ben": 2}
    assert sell_everything(shop) == 8


@pytest.mark.parametrize("how", ["opened", "loaded from a dump"])
def test_a_fresh_database_beside_an_old_redis_jumps_past_its_epoch(shop: Shop, how: str) -> None:
    shop.open(lots=10)
    fresh = tables_of(shop)
    reserve_many(shop, users("old", 4))
    for _ in range(3):
        shop.front.new_call()
        rebuild(shop.front.database, shop.front.redis, shop.sku_id, automatic=False)
    if how == "opened":
        restore(shop, {table: [] for table in fresh})
        shop.open(lots=10)
        passes, counts = beat_alone(shop, 1)
        assert passes[0].rebuilt == []
    else:
        restore(shop, fresh)
        passes, counts = beat_alone(shop, 1)
        assert passes[0].rebuilt == [shop.sku_id]
    sale = evidence(shop)
    assert sale.copy.epoch == sale.epoch == 5
    assert not pages(counts)
    assert audited(shop).ok is True
    assert sale.copy.buyers == {}
    assert sell_everything(shop) == 10


Tables = dict[str, list[dict[str, Any]]]


def tables_of(shop: Shop) -> Tables:
    """The sale's rows in every table, without what the server generates."""
    tables: Tables = {}
    with shop.market.database.cursor() as cursor:
        for table in ("sale", "stock", "pre_deduct", "order", "notice", "top_up"):
            cursor.execute(f"SELECT * FROM seckill_{table} WHERE sku_id = %s", [shop.sku_id])
            tables[table] = [
                {name: value for name, value in row.items() if name != "live_user"} for row in cursor.fetchall()
            ]
    return tables


def restore(shop: Shop, tables: Tables) -> None:
    """The database goes back to these rows. What was promised since is lost with it: nobody can keep that."""
    with shop.market.database.cursor() as cursor:
        for table, rows in tables.items():
            cursor.execute(f"DELETE FROM seckill_{table} WHERE sku_id = %s", [shop.sku_id])
            for row in rows:
                places = ", ".join(["%s"] * len(row))
                cursor.execute(f"INSERT INTO seckill_{table} ({', '.join(row)}) VALUES ({places})", [*row.values()])
    known = {row["pre_deduct_key"].decode() for row in tables["pre_deduct"]}
    for keys in shop.promises.values():
        keys.intersection_update(known)
    shop.redis_kept = False
    shop.take_all("landing")


def beat_alone(shop: Shop, beats: int) -> tuple[list[Pass], Counter[str]]:
    """Passes of one reconciler, and what they count."""
    counts: Counter[str] = Counter()
    process = shop.front
    reconcile = Reconcile(
        process.database, process.redis, process.letters, None,
        lambda name: counts.update([name]), STALE_SECONDS, LANDING_ATTEMPTS,
    )  # fmt: skip
    passes = [reconcile(Deadline(seconds=30, longest_wait=5)) for _ in range(beats)]
    assert all(done.failed == [] for done in passes), passes
    return passes, counts


def pages(counts: Counter[str]) -> list[str]:
    """Counts that wake a person up each time; the gap's alarm may, once, until it is healed."""
    return [name for name in ("InvariantBroken", "StuckReservation", "DeadLetterUnknown") if counts[name]]
