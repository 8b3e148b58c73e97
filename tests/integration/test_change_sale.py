"""top_up, close_sale, reopen_sale, archive_sale (docs/protocol.md 6.5), said through sale_admin."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from local.servers import free_port
from seckill.adapters.redis import Redis
from seckill.domain.answer import Refusal, Refused, Reserved
from seckill.protocol.change_sale import OPERATION_ID_REUSED, top_up
from seckill.protocol.change_sale import Refused as ChangeRefused
from seckill.protocol.rebuild import Rebuilt, load_copy, rebuild
from tests.backroom import Backroom, Functions
from tests.books import read_books
from tests.crowd import at_once
from tests.redis_copy import plain_client
from tests.stores import deducted, open_database, open_redis, patience

pytest_plugins = ["tests.backroom_fixtures"]

CLOSED = Refused(Refusal.CLOSED)
NEXT_YEAR = datetime.now(UTC).year + 1
FUTURE = f"{NEXT_YEAR}-01-01T00:00:00+08:00"
FUTURE_MS = int(datetime.fromisoformat(FUTURE).timestamp() * 1000)


def in_the_books(backroom: Backroom, sku_id: int) -> tuple[int, int, int]:
    """total, remaining, and how many top-ups there were."""
    books = read_books(backroom.servers.database_url, sku_id)
    ((top_ups,),) = backroom.ledger(sku_id).select("SELECT COUNT(*) FROM seckill_top_up WHERE sku_id = %(sku)s")
    return books.total, books.remaining, top_ups


def state(backroom: Backroom, sku_id: int) -> tuple[str, int | None]:
    """The sale's state and its closing time."""
    ((word, closes_at),) = backroom.ledger(sku_id).select(
        "SELECT state, closes_at FROM seckill_sale WHERE sku_id = %(sku)s"
    )
    return word, closes_at


# -- top_up ---------------------------------------------------------------------------------------------------------


def test_a_top_up_is_done_once_per_operation_and_answered_alike(backroom: Backroom, functions: Functions) -> None:
    sku_id = backroom.sales.open(total=2)
    alice, _ = backroom.promise(sku_id, "alice", "bob")
    backroom.land(alice)
    assert backroom.answer(sku_id, "carol") == Refused(Refusal.SOLD_OUT)
    first = functions.admin("top_up", skuId=sku_id, units=3, operationId="monday")
    assert first == {"ok": True, "skuId": sku_id, "units": 3, "operationId": "monday", "loaded": True}
    copy = backroom.copy(sku_id)
    for _ in range(2):
        assert (in_the_books(backroom, sku_id), copy.stock, copy.epoch) == ((5, 4, 1), 3, 2)
        assert functions.admin("top_up", skuId=sku_id, units=3, operationId="monday") == first
    assert functions.admin("top_up", skuId=sku_id, units=1, operationId="tuesday")["ok"]
    assert (in_the_books(backroom, sku_id), copy.stock) == ((6, 5, 2), 4)
    assert isinstance(backroom.answer(sku_id, "carol"), Reserved)
    assert functions.admin("open_sale", skuId=sku_id, total=2)["ok"], "it is still the sale that was opened"
    assert backroom.audit(sku_id).ok is True


def test_the_same_top_up_again_loads_a_copy_that_was_lost(backroom: Backroom, functions: Functions) -> None:
    sku_id = backroom.sales.open(total=2)
    functions.admin("top_up", skuId=sku_id, units=3, operationId="monday")
    backroom.flush(sku_id)
    assert functions.admin("top_up", skuId=sku_id, units=3, operationId="monday")["loaded"] is True
    assert (in_the_books(backroom, sku_id), backroom.copy(sku_id).stock) == ((5, 5, 1), 5)


def test_an_operation_id_is_for_one_top_up_only(backroom: Backroom, functions: Functions) -> None:
    sku_id, other = backroom.sales.open(total=2), backroom.sales.open(total=2)
    functions.admin("top_up", skuId=sku_id, units=3, operationId="monday")
    before = backroom.copy(sku_id).everything(), backroom.copy(other).everything()
    assert functions.refusal("top_up", skuId=sku_id, units=4, operationId="monday") == "OPERATION_ID_REUSED"
    assert functions.refusal("top_up", skuId=other, units=3, operationId="monday") == "OPERATION_ID_REUSED"
    assert (in_the_books(backroom, sku_id), in_the_books(backroom, other)) == ((5, 5, 1), (2, 2, 0))
    assert (backroom.copy(sku_id).everything(), backroom.copy(other).everything()) == before
    assert functions.admin("top_up", skuId=other, units=3, operationId="Monday")["ok"], "another id"


@pytest.mark.parametrize("units", [None, 0, -2, 1, 3, "2", 2.0, True, 2**53 + 2])
def test_a_top_up_that_is_no_multiple_of_the_quantity_is_refused(
    backroom: Backroom, functions: Functions, units: Any
) -> None:
    sku_id = backroom.sales.open(total=2, quantity=2)
    before = backroom.copy(sku_id).everything()
    assert functions.refusal("top_up", skuId=sku_id, units=units, operationId="monday") == "INVALID_REQUEST"
    assert (in_the_books(backroom, sku_id), backroom.copy(sku_id).everything()) == ((2, 2, 0), before)


@pytest.mark.parametrize("operation_id", [None, "", 7, "x" * 65, "é", "a\nb"])
def test_a_top_up_needs_an_operation_id(backroom: Backroom, functions: Functions, operation_id: Any) -> None:
    sku_id = backroom.sales.open(total=2)
    assert functions.refusal("top_up", skuId=sku_id, units=1, operationId=operation_id) == "INVALID_REQUEST"
    assert in_the_books(backroom, sku_id) == (2, 2, 0)


def test_the_same_top_up_from_many_places_at_once_is_done_once(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=2)
    url, redis_url = backroom.servers.database_url, backroom.servers.redis_url

    def add() -> bool:
        database = open_database(url)
        try:
            return top_up(database, open_redis(redis_url), sku_id, 3, "monday")
        finally:
            database.close()

    at_once([add] * 6)
    assert in_the_books(backroom, sku_id) == (5, 5, 1)
    backroom.reconcile()
    assert (backroom.copy(sku_id).stock, backroom.audit(sku_id).ok) == (5, True)


def test_of_two_sales_that_use_an_operation_id_at_once_one_gets_it(backroom: Backroom) -> None:
    url, redis_url = backroom.servers.database_url, backroom.servers.redis_url

    def add(sku_id: int, operation_id: str) -> str:
        database = open_database(url)
        try:
            top_up(database, open_redis(redis_url), sku_id, 3, operation_id)
        except ChangeRefused as refused:
            assert str(refused) == OPERATION_ID_REUSED
            return refused.code
        finally:
            database.close()
        return "done"

    for turn in range(5):
        pair = [backroom.sales.open(total=2), backroom.sales.open(total=2)]
        operation_id = f"turn {turn}"
        answers = at_once([partial(add, sku_id, operation_id) for sku_id in pair])
        assert Counter(answers) == {"done": 1, "OPERATION_ID_REUSED": 1}
        assert sorted(in_the_books(backroom, sku) for sku in pair) == [(2, 2, 0), (5, 5, 1)]


def test_a_top_up_in_the_middle_of_a_sale_is_counted_once_beside_crashed_deductions(
    backroom: Backroom, functions: Functions
) -> None:
    sku_id = backroom.sales.open(total=4)
    backroom.promise(sku_id, "alice")
    deducted(backroom.redis, sku_id, "crashed")
    functions.admin("top_up", skuId=sku_id, units=2, operationId="monday")
    backroom.age(sku_id)
    backroom.reconcile()
    assert (backroom.copy(sku_id).stock, backroom.audit(sku_id).ok) == (5, True)


def test_without_redis_nothing_is_topped_up(
    backroom: Backroom, functions: Functions, function_environment: pytest.MonkeyPatch
) -> None:
    sku_id = backroom.sales.open(total=2)
    function_environment.setenv("REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")
    functions.new_containers()
    assert functions.refusal("top_up", skuId=sku_id, units=1, operationId="monday") == "UNAVAILABLE"
    assert in_the_books(backroom, sku_id) == (2, 2, 0)


@pytest.mark.parametrize(
    "change", [{"action": "top_up", "units": 1, "operationId": "x"}, {"action": "close_sale"}], ids=str
)
def test_broken_books_are_mended_before_the_sale_is_changed(
    backroom: Backroom, functions: Functions, change: dict[str, Any]
) -> None:
    sku_id = backroom.sales.open(total=4)
    backroom.deliberately_broken.add(sku_id)
    backroom.promise(sku_id, "alice", "bob", "carol")
    backroom.ledger(sku_id).run("UPDATE seckill_stock SET remaining = 0 WHERE sku_id = %(sku)s")
    assert functions.refusal(**change, skuId=sku_id) == "BOOKS_BROKEN"
    assert (in_the_books(backroom, sku_id), state(backroom, sku_id)) == ((4, 0, 0), ("open", None))


# -- close_sale, reopen_sale ----------------------------------------------------------------------------------------


def test_a_closed_sale_promises_nothing_and_lands_what_was_promised(backroom: Backroom, functions: Functions) -> None:
    sku_id = backroom.sales.open(total=3)
    (key,) = backroom.promise(sku_id, "alice")
    answer = functions.admin("close_sale", skuId=sku_id)
    assert answer == {"ok": True, "skuId": sku_id, "loaded": True}
    copy = backroom.copy(sku_id)
    for _ in range(2):
        assert (state(backroom, sku_id), copy.epoch) == (("closed", None), 2)
        assert backroom.answer(sku_id, "bob") == CLOSED
        assert isinstance(backroom.answer(sku_id, "alice"), Reserved), "he holds one"
        assert functions.admin("close_sale", skuId=sku_id) == answer
    backroom.age(sku_id)
    assert backroom.reconcile().stale.landed == 1
    assert backroom.ledger(sku_id).statuses() == {key: 2}
    assert backroom.audit(sku_id).ok is True


def test_a_sale_opened_again_sells_the_rest(backroom: Backroom, functions: Functions) -> None:
    sku_id = backroom.sales.open(total=3)
    backroom.promise(sku_id, "alice")
    assert functions.admin("reopen_sale", skuId=sku_id)["ok"], "an open one stays open"
    assert backroom.copy(sku_id).epoch == 1
    functions.admin("close_sale", skuId=sku_id)
    answer = functions.admin("reopen_sale", skuId=sku_id)
    assert answer == {"ok": True, "skuId": sku_id, "loaded": True}
    assert (state(backroom, sku_id), backroom.copy(sku_id).stock) == (("open", None), 2)
    assert isinstance(backroom.answer(sku_id, "bob"), Reserved)
    assert functions.admin("reopen_sale", skuId=sku_id) == answer
    assert backroom.copy(sku_id).epoch == 3


@pytest.mark.parametrize(
    ("closed_at", "again_until", "wanted"),
    [
        (None, FUTURE, FUTURE_MS),
        (1_000, FUTURE, FUTURE_MS),
        (1_000, None, None),  # it would close again at once
        (FUTURE_MS, None, FUTURE_MS),
    ],
)
def test_a_sale_is_opened_again_until_the_time_given_or_left(
    backroom: Backroom, functions: Functions, closed_at: int | None, again_until: str | None, wanted: int | None
) -> None:
    sku_id = backroom.sales.open(total=3, closes_at=closed_at)
    functions.admin("close_sale", skuId=sku_id)
    asked = {"closesAt": again_until} if again_until else {}
    assert functions.admin("reopen_sale", skuId=sku_id, **asked)["loaded"] is True
    assert state(backroom, sku_id) == ("open", wanted)
    assert isinstance(backroom.answer(sku_id, "alice"), Reserved)
    assert backroom.reconcile().closed == []


def test_a_sale_is_opened_again_until_a_time_that_is_one(backroom: Backroom, functions: Functions) -> None:
    sku_id = backroom.sales.open(total=3)
    functions.admin("close_sale", skuId=sku_id)
    assert functions.refusal("reopen_sale", skuId=sku_id, closesAt="yesterday") == "INVALID_REQUEST"
    assert state(backroom, sku_id) == ("closed", None)


def test_a_sale_past_its_closing_time_is_extended_before_it_closes_by_itself(
    backroom: Backroom, functions: Functions
) -> None:
    sku_id = backroom.sales.open(total=3, closes_at=1_000)
    assert backroom.answer(sku_id, "alice") == CLOSED
    answer = functions.admin("reopen_sale", skuId=sku_id, closesAt=FUTURE)
    assert answer == {"ok": True, "skuId": sku_id, "loaded": True}
    assert state(backroom, sku_id) == ("open", FUTURE_MS)
    assert isinstance(backroom.answer(sku_id, "alice"), Reserved)
    epoch = backroom.copy(sku_id).epoch
    assert functions.admin("reopen_sale", skuId=sku_id, closesAt=FUTURE) == answer
    assert functions.admin("reopen_sale", skuId=sku_id) == answer
    assert (state(backroom, sku_id), backroom.copy(sku_id).epoch) == (("open", FUTURE_MS), epoch)


@pytest.mark.parametrize(
    "closes_at",
    [
        "2001-01-01T00:00:00Z",  # it has passed
        "9999-12-31T23:00:00-05:00",  # a year that has no name
        "1969-12-31T23:59:59Z",
        FUTURE,  # it opens only then
    ],
)
@pytest.mark.parametrize("closed", [False, True])
def test_a_sale_is_not_opened_again_until_a_time_that_it_cannot_have(
    backroom: Backroom, functions: Functions, closed: bool, closes_at: str
) -> None:
    sku_id = backroom.sales.open(total=3, opens_at=FUTURE_MS)
    if closed:
        functions.admin("close_sale", skuId=sku_id)
    before = (state(backroom, sku_id), backroom.copy(sku_id).epoch)
    assert functions.refusal("reopen_sale", skuId=sku_id, closesAt=closes_at) == "INVALID_REQUEST"
    assert (state(backroom, sku_id), backroom.copy(sku_id).epoch) == before


def test_a_sale_has_no_more_units_than_redis_can_count(backroom: Backroom, functions: Functions) -> None:
    sku_id = backroom.sales.open(total=3)
    backroom.promise(sku_id, "alice")
    top_up = {"skuId": sku_id, "units": 2**53 - 2, "operationId": f"{sku_id}-too-much"}
    assert functions.refusal("top_up", **top_up) == "INVALID_REQUEST"
    assert functions.admin("top_up", **top_up | {"units": 2**53 - 3})["loaded"] is True, "the id was not used up"
    assert isinstance(backroom.answer(sku_id, "bob"), Reserved)


def test_a_sale_closes_by_itself_five_minutes_after_its_closing_time(backroom: Backroom) -> None:
    sku_id, endless = backroom.sales.open(total=3, closes_at=FUTURE_MS), backroom.sales.open(total=3)
    backroom.promise(sku_id, "alice")
    ledger = backroom.ledger(sku_id)
    ago = "UPDATE seckill_sale SET closes_at = UNIX_TIMESTAMP() * 1000 - %(seconds)s * 1000 WHERE sku_id = %(sku)s"
    for seconds in (0, 290, 310):
        assert backroom.reconcile().closed == []
        ledger.run(ago, seconds=seconds)
        backroom.copy(sku_id).set(closes_at=str(state(backroom, sku_id)[1]))  # or the copy would be seen to differ
    done = backroom.reconcile()
    assert (done.closed, done.failed) == ([sku_id], [])
    assert (state(backroom, sku_id)[0], state(backroom, endless)[0]) == ("closed", "open")
    assert (backroom.copy(sku_id).epoch, backroom.copy(sku_id).client.hget(f"seckill:{{{sku_id}}}:sale", "state")) == (
        2, "closed",
    )  # fmt: skip
    assert backroom.reconcile().closed == []


# -- archive_sale ---------------------------------------------------------------------------------------------------


def test_a_sale_is_archived_when_it_is_closed_and_nothing_is_pending(backroom: Backroom, functions: Functions) -> None:
    sku_id = backroom.sales.open(total=3)
    (key,) = backroom.promise(sku_id, "alice")
    assert functions.refusal("archive_sale", skuId=sku_id) == "NOT_ARCHIVABLE", "it is open"
    functions.admin("close_sale", skuId=sku_id)
    assert functions.refusal("archive_sale", skuId=sku_id) == "NOT_ARCHIVABLE", "alice's is pending"
    assert backroom.copy(sku_id).buyers() == {"alice": key}
    backroom.land(key)
    for _ in range(2):
        assert functions.admin("archive_sale", skuId=sku_id) == {"ok": True, "skuId": sku_id}
        assert state(backroom, sku_id)[0] == "archived"
        assert backroom.copy(sku_id).everything() == ({}, {}, {})
    assert backroom.ledger(sku_id).statuses() == {key: 2}, "the ledger stays"


def test_an_archived_sale_is_off_the_catalogue_and_out_of_every_sweep(backroom: Backroom, functions: Functions) -> None:
    sku_id, other = backroom.sales.open(total=3), backroom.sales.open(total=3)
    functions.admin("close_sale", skuId=sku_id)
    functions.admin("archive_sale", skuId=sku_id)
    assert backroom.redis.not_on_offer(sku_id)
    done = backroom.reconcile()
    assert ([audit.sku_id for audit in done.audits], done.rebuilt, done.failed) == ([other], [], [])
    assert backroom.redis.not_on_offer(sku_id)
    assert not backroom.redis.not_on_offer(other)
    assert backroom.copy(sku_id).everything() == ({}, {}, {})
    assert backroom.answer(sku_id, "alice") == Refused(Refusal.NO_SUCH_SALE)
    for action in ("close_sale", "reopen_sale", "rebuild"):
        assert functions.refusal(action, skuId=sku_id) == "NO_SUCH_SALE"
    assert functions.refusal("top_up", skuId=sku_id, units=1, operationId="x") == "NO_SUCH_SALE"


def test_an_archived_sale_is_not_opened_again(backroom: Backroom, functions: Functions) -> None:
    sku_id = backroom.sales.open(total=3)
    functions.admin("close_sale", skuId=sku_id)
    functions.admin("archive_sale", skuId=sku_id)
    assert functions.refusal("open_sale", skuId=sku_id, total=3) == "ALREADY_OPEN"
    assert backroom.copy(sku_id).everything() == ({}, {}, {})


class ArchivedMeanwhile(Redis):
    """The sale is archived right before, or right after, the copy is loaded."""

    archive: Callable[[], object]
    before: bool

    def load(self, *arguments: Any, **named: Any) -> bool:
        if self.before:
            self.archive()
        loaded = super().load(*arguments, **named)
        if not self.before:
            self.archive()
        return loaded


@pytest.mark.parametrize("before", [True, False])
def test_a_sale_that_is_archived_during_a_rebuild_leaves_no_copy(
    backroom: Backroom, functions: Functions, before: bool
) -> None:
    sku_id = backroom.sales.open(total=3)
    functions.admin("close_sale", skuId=sku_id)
    redis = ArchivedMeanwhile(backroom.servers.redis_url)
    redis.deadline, redis.before = patience(), before
    redis.archive = partial(functions.admin, "archive_sale", skuId=sku_id)
    assert rebuild(backroom.database, redis, sku_id, automatic=False) is Rebuilt.NOT_LOADED
    assert backroom.copy(sku_id).everything() == ({}, {}, {})
    assert load_copy(backroom.database, backroom.redis, sku_id, epoch=3) is False
    assert backroom.copy(sku_id).everything() == ({}, {}, {})
    assert backroom.answer(sku_id, "alice") == Refused(Refusal.NO_SUCH_SALE)


@pytest.mark.parametrize("action", ["close_sale", "reopen_sale", "archive_sale", "rebuild", "audit", "top_up"])
def test_an_unknown_sale_is_not_changed(backroom: Backroom, functions: Functions, action: str) -> None:
    more = {"units": 1, "operationId": "x"} if action == "top_up" else {}
    assert functions.refusal(action, skuId=7, **more) == "NO_SUCH_SALE"
    assert functions.refusal(action, skuId="7", **more) == "INVALID_REQUEST"
    assert list(plain_client(backroom.servers.redis_url).scan_iter("seckill:{7}:*")) == []


def test_archiving_without_redis_says_so_and_again_removes_the_keys(
    backroom: Backroom, functions: Functions, function_environment: pytest.MonkeyPatch
) -> None:
    sku_id = backroom.sales.open(total=3)
    functions.admin("close_sale", skuId=sku_id)
    function_environment.setenv("REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")
    functions.new_containers()
    assert functions.refusal("archive_sale", skuId=sku_id) == "UNAVAILABLE"
    function_environment.setenv("REDIS_URL", backroom.servers.redis_url)
    functions.new_containers()
    assert functions.admin("archive_sale", skuId=sku_id)["ok"]
    assert backroom.copy(sku_id).everything() == ({}, {}, {})
