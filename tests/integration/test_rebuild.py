"""rebuild (docs/protocol.md 6.4): a new epoch, and Redis loaded with exactly what MySQL has not promised."""

from typing import Any

import pytest

from local.servers import free_port
from seckill.adapters.mysql import CommitUnknown, Database, Unreachable
from seckill.adapters.redis import Redis, RedisError
from seckill.protocol.open_sale import Offer, open_sale
from seckill.protocol.rebuild import Rebuilt, load_copy, rebuild
from seckill.protocol.reconcile import Reconcile
from tests.backroom import STALE_SECONDS, Backroom, Functions
from tests.crowd import at_once
from tests.stores import deducted, open_database, open_redis, patience

pytest_plugins = ["tests.backroom_fixtures"]


def epoch(backroom: Backroom, sku_id: int) -> int:
    """MySQL's."""
    ((number,),) = backroom.ledger(sku_id).select("SELECT epoch FROM seckill_sale WHERE sku_id = %(sku)s")
    return int(number)


def forget_last_rebuild(backroom: Backroom, sku_id: int, seconds: int = 31) -> None:
    """It becomes that much longer ago."""
    backroom.ledger(sku_id).run(
        f"UPDATE seckill_sale SET rebuilt_at = rebuilt_at - INTERVAL {seconds} SECOND WHERE sku_id = %(sku)s"
    )


def test_the_copy_holds_what_is_free_what_is_pending_and_everybody_who_has_one(
    backroom: Backroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seckill.protocol.rebuild.LIVE_PAGE_ROWS", 3)
    monkeypatch.setattr("seckill.adapters.redis.STAGE_FIELDS", 2)
    sku_id = backroom.sales.open(total=40, quantity=2)
    users = [f"user {number}" for number in range(10)]
    keys = backroom.promise(sku_id, *users)
    backroom.land(*keys[:4])
    backroom.ledger(sku_id).roll_back(keys[9])
    deducted(backroom.redis, sku_id, "crashed")
    before = backroom.copy(sku_id).holds()
    assert rebuild(backroom.database, backroom.redis, sku_id, automatic=False) is Rebuilt.LOADED
    copy = backroom.copy(sku_id)
    assert (copy.epoch, copy.stock, copy.ticket) == (2, 40 - 2 * 9, 0)
    assert copy.buyers() == dict(zip(users[:9], keys[:9], strict=True))
    assert set(copy.holds()) == set(keys[4:9])
    for key in keys[4:9]:
        assert {name: copy.holds()[key][name] for name in ("user", "epoch", "ticket", "quantity")} == {
            name: before[key][name] for name in ("user", "epoch", "ticket", "quantity")
        }
        assert abs(copy.holds()[key]["ms"] - before[key]["ms"]) < 60_000
    assert backroom.ledger(sku_id).cap() == 22
    assert not list(copy.client.scan_iter(f"seckill:{{{sku_id}}}:stage:*")), "nothing staged is left behind"
    assert backroom.audit(sku_id).ok is True
    (again,) = backroom.promise(sku_id, "user 9")
    assert backroom.ledger(sku_id).rows()[again].ticket == 2


# -- when it is not done --------------------------------------------------------------------------------------------


def test_an_automatic_rebuild_is_done_at_most_once_in_thirty_seconds(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=3)
    database, redis = backroom.database, backroom.redis
    assert rebuild(database, redis, sku_id, observed=1) is Rebuilt.LOADED
    assert rebuild(database, redis, sku_id, observed=2) is Rebuilt.TOO_SOON
    forget_last_rebuild(backroom, sku_id, seconds=20)
    assert rebuild(database, redis, sku_id, observed=2) is Rebuilt.TOO_SOON
    assert (epoch(backroom, sku_id), backroom.copy(sku_id).epoch) == (2, 2)
    forget_last_rebuild(backroom, sku_id, seconds=11)
    assert rebuild(database, redis, sku_id, observed=2) is Rebuilt.LOADED
    assert rebuild(database, redis, sku_id, automatic=False) is Rebuilt.LOADED, "a person may, whenever"


@pytest.mark.parametrize("loss", ["all", "sale", "held", "buyers", "another epoch", "no number"])
def test_the_thirty_seconds_do_not_apply_while_redis_has_no_copy_of_the_epoch(backroom: Backroom, loss: str) -> None:
    sku_id = backroom.sales.open(total=3)
    database, redis, copy = backroom.database, backroom.redis, backroom.copy(sku_id)
    assert rebuild(database, redis, sku_id, observed=1) is Rebuilt.LOADED
    match loss:
        case "all":
            backroom.flush(sku_id)
        case "sale" | "held" | "buyers":
            copy.client.delete(f"seckill:{{{sku_id}}}:{loss}")
        case "another epoch":
            copy.set(epoch=1)
        case "no number":
            copy.set(stock="many")
    assert rebuild(database, redis, sku_id, observed=2) is Rebuilt.LOADED
    assert (epoch(backroom, sku_id), copy.epoch, copy.stock) == (3, 3, 3)


@pytest.mark.parametrize("observed", [None, 0, 1])
def test_a_request_is_not_needed_when_somebody_has_rebuilt_past_what_it_saw(
    backroom: Backroom, observed: int | None
) -> None:
    sku_id = backroom.sales.open(total=3)
    database, redis = backroom.database, backroom.redis
    assert rebuild(database, redis, sku_id, automatic=False) is Rebuilt.LOADED
    forget_last_rebuild(backroom, sku_id)
    assert rebuild(database, redis, sku_id, observed=observed) is Rebuilt.NOT_NEEDED
    assert epoch(backroom, sku_id) == 2
    backroom.flush(sku_id)
    assert rebuild(database, redis, sku_id, observed=observed) is Rebuilt.LOADED, "Redis is not there"
    assert (epoch(backroom, sku_id), backroom.copy(sku_id).stock) == (3, 3)


def test_when_more_is_pending_than_remains_nothing_is_bumped_and_a_person_is_called(
    backroom: Backroom, functions: Functions
) -> None:
    sku_id = backroom.sales.open(total=3)
    backroom.promise(sku_id, "alice", "bob")
    ledger = backroom.ledger(sku_id)
    ledger.run("UPDATE seckill_stock SET remaining = 1 WHERE sku_id = %(sku)s")
    before = backroom.copy(sku_id).everything()
    assert rebuild(backroom.database, backroom.redis, sku_id, automatic=False) is Rebuilt.PROMISED_TOO_MUCH
    assert functions.refusal("rebuild", skuId=sku_id) == "BOOKS_BROKEN"
    assert (epoch(backroom, sku_id), ledger.cap(), backroom.copy(sku_id).everything()) == (1, 3, before)
    backroom.flush(sku_id)
    done = backroom.reconcile()
    assert (done.rebuilt, backroom.counts.count("InvariantBroken")) == ([], 1)
    assert (epoch(backroom, sku_id), backroom.copy(sku_id).everything()) == (1, ({}, {}, {}))
    ledger.run("UPDATE seckill_stock SET remaining = 3 WHERE sku_id = %(sku)s")
    assert functions.admin("rebuild", skuId=sku_id)["loaded"] is True
    assert backroom.copy(sku_id).stock == 1


@pytest.mark.parametrize(
    "breakage",
    [
        "UPDATE seckill_sale SET cap = cap + 1 WHERE sku_id = %(sku)s",
        "UPDATE seckill_stock SET remaining = remaining + 1 WHERE sku_id = %(sku)s",
        "UPDATE seckill_pre_deduct SET status = 2 WHERE sku_id = %(sku)s",
    ],
    ids=["I1", "I2", "I0"],
)
def test_a_sale_whose_own_books_are_off_is_never_rebuilt_by_itself(backroom: Backroom, breakage: str) -> None:
    sku_id = backroom.sales.open(total=3)
    backroom.deliberately_broken.add(sku_id)
    healthy = backroom.sales.open(total=3)
    backroom.promise(sku_id, "alice")
    backroom.ledger(sku_id).run(breakage)
    backroom.flush(sku_id)
    backroom.flush(healthy)
    assert backroom.reconcile().rebuilt == [healthy]
    reconciler = Reconcile(
        backroom.database, backroom.redis, backroom.letters, None, backroom.counts.append, STALE_SECONDS, 3
    )
    assert reconciler.rebuild(patience(), sku_id, None) is Rebuilt.PROMISED_TOO_MUCH, "asked for by a message"
    assert open_sale(backroom.database, backroom.redis, Offer(sku_id, 3)) is False, "opened once more"
    assert (epoch(backroom, sku_id), backroom.copy(sku_id).everything()) == (1, ({}, {}, {}))
    assert rebuild(backroom.database, backroom.redis, sku_id, automatic=False) is Rebuilt.LOADED, "a person may"


@pytest.mark.parametrize("automatic", [True, False])
def test_an_archived_or_unknown_sale_is_not_rebuilt(backroom: Backroom, automatic: bool) -> None:
    sku_id = backroom.sales.open(total=3)
    backroom.ledger(sku_id).run("UPDATE seckill_sale SET state = 'archived' WHERE sku_id = %(sku)s")
    backroom.flush(sku_id)
    for sku in (sku_id, 7):
        outcome = rebuild(backroom.database, backroom.redis, sku, automatic=automatic)
        assert outcome is Rebuilt.NO_SUCH_SALE
        assert backroom.copy(sku).everything() == ({}, {}, {})
    assert epoch(backroom, sku_id) == 1


def test_without_redis_no_epoch_is_bumped(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=3)
    away = open_redis(f"redis://127.0.0.1:{free_port()}/0")
    for automatic in (True, False):
        with pytest.raises(RedisError):
            rebuild(backroom.database, away, sku_id, automatic=automatic)
    assert (epoch(backroom, sku_id), backroom.ledger(sku_id).cap()) == (1, 3)


class LostBeforeTheLoad(Redis):
    """It answers until it is to load."""

    def load(self, *arguments: Any, **named: Any) -> bool:
        raise RedisError("gone")


def test_when_redis_is_lost_before_the_load_the_next_beat_loads(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=3)
    redis = LostBeforeTheLoad(backroom.servers.redis_url)
    redis.deadline = patience()
    assert rebuild(backroom.database, redis, sku_id, observed=1) is Rebuilt.NOT_LOADED
    assert (epoch(backroom, sku_id), backroom.copy(sku_id).epoch) == (2, 1)
    assert backroom.reconcile().rebuilt == [sku_id]
    assert backroom.copy(sku_id).epoch == epoch(backroom, sku_id) == 3


# -- whatever COMMIT answered ---------------------------------------------------------------------------------------


class Unanswered(Database):
    """The connection is lost at COMMIT, `lost` times: before it is done, or right after."""

    def __init__(self, url: str, lost: int, done: bool) -> None:
        super().__init__(url)
        self.lost, self.done = lost, done
        self.new_call(patience())

    def _send(self, name: str, text: str, arguments: Any = ()) -> Any:
        if name != "commit" or not self.lost:
            return super()._send(name, text, arguments)
        self.lost -= 1
        if self.done:
            super()._send(name, text, arguments)
        self.close()
        raise Unreachable(2013, "lost")


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
def test_an_unanswered_commit_is_thrown_away_and_a_fresh_epoch_begun(backroom: Backroom, done: bool) -> None:
    sku_id = backroom.sales.open(total=3)
    backroom.promise(sku_id, "alice")
    database = Unanswered(backroom.servers.database_url, lost=1, done=done)
    assert rebuild(database, backroom.redis, sku_id, automatic=False) is Rebuilt.LOADED
    wanted = 3 if done else 2
    assert backroom.copy(sku_id).epoch == epoch(backroom, sku_id) == wanted
    assert backroom.copy(sku_id).stock == 2
    database.close()


def test_when_no_commit_is_answered_nothing_is_loaded_and_the_next_beat_heals_it(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=3)
    before = backroom.copy(sku_id).everything()
    database = Unanswered(backroom.servers.database_url, lost=100, done=True)
    with pytest.raises(CommitUnknown):
        rebuild(database, backroom.redis, sku_id, automatic=False)
    assert backroom.copy(sku_id).everything() == before
    assert epoch(backroom, sku_id) == 4
    assert backroom.reconcile().rebuilt == [sku_id]
    assert backroom.copy(sku_id).epoch == epoch(backroom, sku_id) == 5
    database.close()


# -- odd copies, and others at work ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("ahead", "epoch_after"), [(0, 2), (41, 42), (1_000_001, 1_000_002), (1_000_002, 2)])
def test_the_epoch_jumps_past_that_of_redis_unless_it_is_garbage(
    backroom: Backroom, ahead: int, epoch_after: int
) -> None:
    """A restored older database, or a fresh one beside an old Redis."""
    sku_id = backroom.sales.open(total=3)
    copy = backroom.copy(sku_id)
    if ahead:
        for key in (copy.sale_key, copy.held_key, copy.buyers_key):
            copy.client.hset(key, "epoch" if key == copy.sale_key else "#epoch", ahead)
    else:
        backroom.flush(sku_id)
    assert backroom.reconcile().rebuilt == [sku_id]
    assert (epoch(backroom, sku_id), copy.epoch) == (epoch_after, epoch_after)
    assert backroom.reconcile().rebuilt == []
    assert backroom.audit(sku_id).ok is True


def test_a_load_of_an_epoch_that_is_over_does_nothing(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=3)
    rebuild(backroom.database, backroom.redis, sku_id, automatic=False)
    before = backroom.copy(sku_id).everything()
    assert load_copy(backroom.database, backroom.redis, sku_id, 1) is False
    assert backroom.copy(sku_id).everything() == before


def test_many_who_ask_for_a_rebuild_at_once_get_one(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=3)
    backroom.promise(sku_id, "alice")
    url, redis_url = backroom.servers.database_url, backroom.servers.redis_url

    def ask() -> Rebuilt:
        database = open_database(url)
        try:
            return rebuild(database, open_redis(redis_url), sku_id, observed=1)
        finally:
            database.close()

    outcomes = at_once([ask] * 6)
    # One that asks between another's bump and its load finds no copy of the new epoch, and bumps again.
    assert Rebuilt.LOADED in outcomes
    assert set(outcomes) <= {Rebuilt.LOADED, Rebuilt.NOT_LOADED, Rebuilt.NOT_NEEDED}
    backroom.reconcile()
    assert backroom.copy(sku_id).epoch == epoch(backroom, sku_id)
    assert (backroom.copy(sku_id).stock, backroom.audit(sku_id).ok) == (2, True)
