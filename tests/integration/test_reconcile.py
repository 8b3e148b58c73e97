"""The reconcile function: its events and answers, its metrics, and that one part's failure never stops another."""

import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from functions.reconcile import handler
from local.lambda_context import LambdaContext
from local.servers import RedisServer, free_port
from seckill.domain.answer import Refusal, Refused, Reserved
from seckill.protocol.audit import audit_sale
from seckill.protocol.rebuild import Rebuilt, load_copy, rebuild
from seckill.protocol.reconcile import Reconcile
from seckill.protocol.roll_back import roll_back
from tests.backroom import STALE_SECONDS, Backroom, Functions
from tests.messages import failed_ids, landing_body, landing_event
from tests.stores import deducted, open_database, open_redis, patience

pytest_plugins = ["tests.backroom_fixtures"]

SCHEDULED = {
    "version": "0",
    "id": "1",
    "detail-type": "Scheduled Event",
    "source": "aws.events",
    "account": "123456789012",
    "time": "2026-01-01T00:00:00Z",
    "region": "eu-west-1",
    "resources": ["arn:aws:events:eu-west-1:123456789012:rule/reconcile"],
    "detail": {},
}
SUMMARY = {
    "staleFound", "landed", "rolledBack", "holdsReleased", "holdsSettled", "deadLettersRescued", "deadLettersUnknown",
    "queueDepth", "deadLetters", "rebuilt", "closed", "failed", "audits",
}  # fmt: skip
BEAT = json.dumps({"job": "beat"})
GAUGES = {
    "AccountGap", "AccountDrift", "RedisStock", "LedgerPending", "LedgerLanded", "LedgerRolledBack", "NoticePending",
}  # fmt: skip


def rebuild_body(sku_id: Any, epoch: Any) -> str:
    """What reserve asks for."""
    return json.dumps({"job": "rebuild", "skuId": sku_id, "epoch": epoch})


def everything_to_do(backroom: Backroom) -> int:
    """A sale of ten units: two stale rows, a hold to settle, one to release, a crash, and two dead letters."""
    sku_id = backroom.sales.open(total=10)
    _, landed, rolled_back, dead = backroom.promise(sku_id, "alice", "bob", "carol", "dave")
    copy = backroom.copy(sku_id)
    hold = copy.client.hget(copy.held_key, landed)
    backroom.land(landed)
    copy.client.hset(copy.held_key, landed, hold)
    backroom.ledger(sku_id).roll_back(rolled_back)
    backroom.ledger(sku_id).run(
        "INSERT INTO seckill_notice (pre_deduct_key, user_id, sku_id, reason, created_at)"
        " VALUES (%(key)s, 'carol', %(sku)s, 'a whim', UTC_TIMESTAMP(3))",
        key=rolled_back,
    )
    deducted(backroom.redis, sku_id, "crashed")
    backroom.age(sku_id)
    backroom.put_letter(landing_body(dead))
    backroom.put_letter(landing_body("unknown"))
    return sku_id


# -- events and answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [SCHEDULED, {}], ids=["scheduled", "empty"])
def test_a_pass_answers_with_what_it_did(backroom: Backroom, functions: Functions, event: dict[str, Any]) -> None:
    sku_id = everything_to_do(backroom)
    summary = json.loads(json.dumps(functions.reconcile(event)))
    assert set(summary) == SUMMARY
    (audit,) = summary.pop("audits")
    assert summary == {
        "staleFound": 2,
        "landed": 2,
        "rolledBack": 0,
        "holdsReleased": 2,
        "holdsSettled": 1,
        "deadLettersRescued": 1,
        "deadLettersUnknown": 1,
        "queueDepth": {"waiting": 0, "inFlight": 0},
        "deadLetters": {"waiting": 1, "inFlight": 0},
        "rebuilt": [],
        "closed": [],
        "failed": [],
    }
    assert (audit["skuId"], audit["ok"], audit["findings"], audit["gap"]) == (sku_id, True, [], 0)
    copy = backroom.copy(sku_id)
    assert (copy.stock, copy.holds(), set(copy.buyers())) == (7, {}, {"alice", "bob", "dave"})
    again = functions.reconcile(event)
    assert [again[name] for name in ("staleFound", "holdsReleased", "holdsSettled", "deadLettersRescued")] == [0] * 4


def test_the_audit_alone_changes_nothing(backroom: Backroom, functions: Functions) -> None:
    sku_id, lost = everything_to_do(backroom), backroom.sales.open(total=1)
    backroom.flush(lost)
    before = backroom.ledger(sku_id).rows(), backroom.copy(sku_id).everything(), backroom.visible_letters()
    summary = functions.reconcile({"job": "audit"})
    assert set(summary) == SUMMARY
    assert [(audit["skuId"], audit["ok"]) for audit in summary["audits"]] == [(sku_id, True), (lost, None)]
    assert (summary["staleFound"], summary["rebuilt"], summary["failed"]) == (0, [], [])
    assert summary["deadLetters"] == {"waiting": 2, "inFlight": 0}
    after = backroom.ledger(sku_id).rows(), backroom.copy(sku_id).everything(), backroom.visible_letters()
    assert after == before
    assert backroom.copy(lost).everything() == ({}, {}, {})


def test_a_beat_is_a_pass_answered_like_a_consumers(backroom: Backroom, functions: Functions) -> None:
    sku_id = everything_to_do(backroom)
    assert failed_ids(functions.reconcile(landing_event([BEAT]))) == []
    assert set(backroom.ledger(sku_id).statuses().values()) == {2, 3}
    assert backroom.copy(sku_id).stock == 7


def test_a_rebuild_that_was_asked_for_is_done_once(backroom: Backroom, functions: Functions) -> None:
    sku_id = backroom.sales.open(total=3)
    copy = backroom.copy(sku_id)
    copy.set(stock=1)
    bodies = [rebuild_body(sku_id, 1), rebuild_body(str(sku_id), 1), rebuild_body(sku_id, None), rebuild_body(7, 1)]
    assert failed_ids(functions.reconcile(landing_event(bodies))) == []
    assert (copy.epoch, copy.stock) == (2, 3)
    assert failed_ids(functions.reconcile(landing_event([rebuild_body(sku_id, 2)]))) == [], "too soon"
    assert copy.epoch == 2
    backroom.flush(sku_id)
    assert failed_ids(functions.reconcile(landing_event([rebuild_body(sku_id, 2)]))) == []
    assert (copy.epoch, copy.stock) == (3, 3)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "not JSON",
        "null",
        "[]",
        "{}",
        "7",
        "[" * 50_000,
        '{"job": "dance"}',
        '{"job": ["beat"]}',
        '{"job": "rebuild"}',
        rebuild_body(None, 1),
        rebuild_body(0, 1),
        rebuild_body(2**63, 1),
        rebuild_body("x", 1),
        rebuild_body(1, "1"),
        rebuild_body(1, True),
        rebuild_body(1, 1.5),
    ],
)
def test_a_body_that_asks_for_nothing_known_is_a_failed_item_and_stops_no_other(
    backroom: Backroom, functions: Functions, body: str
) -> None:
    sku_id = backroom.sales.open(total=3)
    backroom.flush(sku_id)
    assert failed_ids(functions.reconcile(landing_event([body, rebuild_body(sku_id, 1)]))) == ["m0"]
    assert backroom.copy(sku_id).stock == 3
    assert failed_ids(functions.reconcile(landing_event([body]))) == ["m0"]


@pytest.mark.parametrize(
    ("variable", "url"),
    [("DATABASE_URL", "mysql://root@127.0.0.1:{}/seckill"), ("REDIS_URL", "redis://127.0.0.1:{}/0")],
)
def test_a_rebuild_without_a_store_is_a_failed_item(
    backroom: Backroom, functions: Functions, function_environment: pytest.MonkeyPatch, variable: str, url: str
) -> None:
    sku_id = backroom.sales.open(total=3)
    function_environment.setenv(variable, url.format(free_port()))
    functions.new_containers()
    assert failed_ids(functions.reconcile(landing_event([rebuild_body(sku_id, 1)]))) == ["m0"]
    assert failed_ids(functions.reconcile(landing_event([BEAT]))) == [], "a beat comes again by itself"
    assert backroom.ledger(sku_id).select("SELECT epoch FROM seckill_sale WHERE sku_id = %(sku)s") == [(1,)]


def test_a_rebuild_that_the_books_forbid_is_a_failed_item(backroom: Backroom, functions: Functions) -> None:
    sku_id = backroom.sales.open(total=3)
    backroom.deliberately_broken.add(sku_id)
    backroom.ledger(sku_id).run("UPDATE seckill_sale SET cap = cap + 1 WHERE sku_id = %(sku)s")
    backroom.flush(sku_id)
    assert failed_ids(functions.reconcile(landing_event([rebuild_body(sku_id, 1)]))) == ["m0"]
    assert backroom.copy(sku_id).everything() == ({}, {}, {})


def test_the_environment_says_what_is_stale_and_how_many_failures_are_enough(
    backroom: Backroom, functions: Functions, function_environment: pytest.MonkeyPatch
) -> None:
    sku_id = backroom.sales.open(total=3)
    good, bad = backroom.promise(sku_id, "alice", "bob")
    backroom.age(sku_id, minutes=10)
    with backroom.ledger(sku_id).refusing("seckill_order", f"NEW.pre_deduct_key = '{bad}'"):
        function_environment.setenv("STALE_AFTER_SECONDS", "900")
        functions.new_containers()
        assert functions.reconcile({})["staleFound"] == 0
        function_environment.setenv("STALE_AFTER_SECONDS", "30")
        function_environment.setenv("LANDING_ATTEMPTS", "1")
        functions.new_containers()
        summary = functions.reconcile({})
    assert (summary["landed"], summary["rolledBack"], summary["failed"]) == (1, 1, [])
    assert backroom.ledger(sku_id).statuses() == {good: 2, bad: 3}


def test_with_little_time_left_sales_wait_for_the_next_pass_and_are_named(
    backroom: Backroom, functions: Functions
) -> None:
    sku_id = backroom.sales.open(total=3)
    from functions.reconcile.handler import lambda_handler  # noqa: PLC0415  after its container has been cooled

    summary = lambda_handler({}, LambdaContext.starting_now("reconcile", "eu-west-1", timeout_seconds=9))
    assert summary["audits"] == []
    assert summary["failed"] == [f"SKU {sku_id} and later: too little time left"]
    assert [audit["skuId"] for audit in functions.reconcile({})["audits"]] == [sku_id]


# -- metrics and logs -----------------------------------------------------------------------------------------------


def lines(captured: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What the function has printed since the last look."""
    return [json.loads(line) for line in captured.readouterr().out.splitlines() if line.startswith("{")]


def gauges(printed: list[dict[str, Any]]) -> dict[str | None, dict[str, float]]:
    """Gauges by SKU (None: of the service), each told once, with exactly these dimensions."""
    found: dict[str | None, dict[str, float]] = {}
    for line in printed:
        for directive in line.get("_aws", {}).get("CloudWatchMetrics", []):
            for name in (metric["Name"] for metric in directive["Metrics"]):
                if name in GAUGES:
                    sku = line.get("sku")
                    assert directive["Namespace"] == "Seckill"
                    assert [sorted(dimensions) for dimensions in directive["Dimensions"]] == [
                        ["service", "sku"] if sku else ["service"]
                    ]
                    assert line["service"] == "reconcile"
                    of_sku = found.setdefault(sku, {})
                    assert name not in of_sku
                    of_sku[name] = line[name][0] if isinstance(line[name], list) else line[name]
    return found


def counts(printed: list[dict[str, Any]]) -> Counter[str]:
    """Counts by name, whose one dimension is the service."""
    found: Counter[str] = Counter()
    for line in printed:
        for directive in line.get("_aws", {}).get("CloudWatchMetrics", []):
            for name in (metric["Name"] for metric in directive["Metrics"]):
                if name not in GAUGES:
                    assert directive["Dimensions"] == [["service"]]
                    found[name] += int(sum(line[name]))
    return found


def test_the_accounts_are_gauges_of_the_service_and_of_each_open_sale(
    backroom: Backroom, functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    sku_id, other, closed = everything_to_do(backroom), backroom.sales.open(total=5), backroom.sales.open(total=9)
    functions.admin("close_sale", skuId=closed)
    backroom.copy(other).set(stock=4)
    lines(capsys)
    functions.reconcile({})
    found = gauges(lines(capsys))
    mine = {
        "AccountGap": 0, "AccountDrift": 0, "RedisStock": 7, "LedgerPending": 0, "LedgerLanded": 3,
        "LedgerRolledBack": 2, "NoticePending": 1,
    }  # fmt: skip
    others = dict.fromkeys(GAUGES, 0) | {"RedisStock": 4, "AccountGap": 1}
    assert found == {None: mine | {"AccountGap": 1, "RedisStock": 20}, str(sku_id): mine, str(other): others}
    functions.reconcile({})
    confirmed = gauges(lines(capsys))
    assert (confirmed[str(other)]["AccountDrift"], confirmed[None]["AccountDrift"]) == (2, 2), "seen again"


def test_the_gauges_by_sku_stop_at_a_hundred_sales_and_the_sums_do_not(
    backroom: Backroom, functions: Functions, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("functions.reconcile.gauges.SKUS", 2)
    skus = [backroom.sales.open(total=5) for _ in range(3)]
    functions.reconcile({"job": "audit"})
    found = gauges(lines(capsys))
    assert set(found) == {None, *map(str, skus[:2])}
    assert found[None]["RedisStock"] == 15


def test_without_redis_its_stock_is_not_said_to_be_nothing(
    backroom: Backroom,
    functions: Functions,
    function_environment: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    sku_id = backroom.sales.open(total=5)
    function_environment.setenv("REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")
    functions.new_containers()
    lines(capsys)
    summary = functions.reconcile({})
    printed = lines(capsys)
    assert set(gauges(printed)[str(sku_id)]) == set(gauges(printed)[None]) == GAUGES - {"RedisStock"}
    problems = [problem.partition(":")[0] for problem in summary["failed"]]
    assert problems == ["catalogue", f"holds of SKU {sku_id}", f"SKU {sku_id}"]
    assert "ReconcilePass" not in counts(printed)
    assert [line.levelname for line in caplog.records if line.getMessage() == "reconciled"] == ["ERROR"]


def test_what_was_done_is_counted_and_each_reservation_has_its_log_line(
    backroom: Backroom,
    functions: Functions,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    sku_id = everything_to_do(backroom)
    lines(capsys)
    functions.reconcile({})
    first = counts(lines(capsys))
    first.pop("ColdStart", None)  # only the process's first invocation
    assert first == {
        "StaleFound": 2, "StaleLanded": 2, "OrderLanded": 2, "LandingFailed": 1, "DeadLetterRescued": 1,
        "DeadLetterUnknown": 1, "HoldSettled": 1, "HoldReleased": 2, "Abandoned": 1, "ReconcilePass": 1,
    }  # fmt: skip
    of_sale = [line for line in caplog.records if getattr(line, "sku_id", None) == sku_id]
    assert Counter(line.getMessage().partition(":")[0] for line in of_sale) == {
        "stale row landed": 2,
        "old hold settled": 1,
        "old hold released": 1,
        "old hold without a row": 1,
    }
    assert all(line.pre_deduct_key for line in of_sale)  # type: ignore[attr-defined]
    unknown = [line for line in caplog.records if line.getMessage() == "unknown dead letter"]
    assert [(line.levelname, line.body) for line in unknown] == [("ERROR", landing_body("unknown"))]  # type: ignore[attr-defined]
    assert unknown[0].pre_deduct_key == "unknown"  # type: ignore[attr-defined]
    told = "".join(str(vars(line)) for line in caplog.records)
    assert not any(user in told for user in ("alice", "bob", "carol", "dave"))
    functions.reconcile({})
    assert counts(lines(capsys)) == {"DeadLetterUnknown": 1, "LandingFailed": 1, "ReconcilePass": 1}


def test_the_lines_of_a_pass_carry_its_own_correlation_id(
    backroom: Backroom, functions: Functions, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything_to_do(backroom)
    told = []
    for _ in range(2):
        output = io.StringIO()
        monkeypatch.setattr(handler.logger.registered_handler, "stream", output)
        functions.reconcile({})
        told.append({json.loads(line)["correlation_id"] for line in output.getvalue().splitlines()})
    (first,), (second,) = told
    assert first != second


def test_a_broken_equation_is_counted(
    backroom: Backroom, functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    sku_id = backroom.sales.open(total=5)
    backroom.deliberately_broken.add(sku_id)
    backroom.ledger(sku_id).run("UPDATE seckill_stock SET remaining = 6 WHERE sku_id = %(sku)s")
    lines(capsys)
    assert functions.reconcile({})["audits"][0]["ok"] is False
    assert counts(lines(capsys))["InvariantBroken"] == 1


# -- the whole pass -------------------------------------------------------------------------------------------------


def test_a_sale_that_cannot_be_looked_at_does_not_keep_the_others_from_it(backroom: Backroom) -> None:
    bad, good = backroom.sales.open(total=3), backroom.sales.open(total=3)
    copy = backroom.copy(bad)
    for key in (copy.sale_key, copy.held_key, copy.buyers_key):
        copy.client.delete(key)
        copy.client.set(key, "garbage")
    backroom.flush(good)
    done = backroom.reconcile()
    assert (done.rebuilt, done.failed) == ([bad, good], [])
    assert (copy.stock, backroom.copy(good).stock) == (3, 3)


@pytest.mark.parametrize(
    "breakage",
    [
        "UPDATE seckill_stock SET remaining = 0 WHERE sku_id = %(sku)s",
        "UPDATE seckill_sale SET cap = cap + 10 WHERE sku_id = %(sku)s",
    ],
    ids=["remaining", "cap"],
)
def test_an_overdue_sale_whose_books_are_off_stays_as_it_is_and_does_not_keep_the_others_open(
    backroom: Backroom, breakage: str
) -> None:
    broken, other = backroom.sales.open(total=3), backroom.sales.open(total=3)
    backroom.deliberately_broken.add(broken)
    backroom.promise(broken, "alice")
    backroom.ledger(broken).run(breakage)
    for sku_id in (broken, other):
        backroom.ledger(sku_id).run("UPDATE seckill_sale SET closes_at = 1 WHERE sku_id = %(sku)s")
    done = backroom.reconcile()
    assert done.closed == [other]
    assert f"SKU {broken} was not closed: its books are off, a person mends the rows" in done.failed
    assert "InvariantBroken" in backroom.counts
    ((epoch,),) = backroom.ledger(broken).select("SELECT epoch FROM seckill_sale WHERE sku_id = %(sku)s")
    assert epoch == 1


def time_is_up_after_one_sale(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first audit on, no time is enough for another sale."""

    def audit_until_time_is_up(*arguments: Any) -> Any:
        monkeypatch.setattr("seckill.protocol.reconcile.SALE_SECONDS", 1_000)
        return audit_sale(*arguments)

    monkeypatch.setattr("seckill.protocol.reconcile.audit_sale", audit_until_time_is_up)


def test_when_time_is_always_short_every_sale_is_reached_over_some_passes(
    backroom: Backroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    skus = [backroom.sales.open(total=3) for _ in range(3)]
    first = iter([2, 0, 1, 2])
    monkeypatch.setattr("seckill.protocol.reconcile.randbelow", lambda _: next(first))

    time_is_up_after_one_sale(monkeypatch)
    reached = []
    for _ in range(3):
        monkeypatch.setattr("seckill.protocol.reconcile.SALE_SECONDS", 1)
        reached += [audit.sku_id for audit in backroom.reconcile().audits]
    assert reached == [skus[2], skus[0], skus[1]]
    monkeypatch.setattr("seckill.protocol.reconcile.audit_sale", audit_sale)
    monkeypatch.setattr("seckill.protocol.reconcile.SALE_SECONDS", 1)
    assert [audit.sku_id for audit in backroom.reconcile().audits] == skus, "told in order"


def test_the_audit_alone_looks_at_the_time_before_each_sale(
    backroom: Backroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        backroom.sales.open(total=3)

    time_is_up_after_one_sale(monkeypatch)
    reconcile = Reconcile(
        backroom.database, backroom.redis, backroom.letters, None, backroom.counts.append, STALE_SECONDS, 3
    )
    done = reconcile.audit(patience())
    assert (len(done.audits), len(done.failed)) == (1, 1)


def test_the_catalogue_is_made_to_be_what_is_on_offer(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=3)
    backroom.redis.add_to_catalogue([7])
    backroom.reconcile()
    assert backroom.redis.not_on_offer(7)
    backroom.redis.remove(sku_id)
    backroom.reconcile()
    assert not backroom.redis.not_on_offer(sku_id)


def test_a_copy_that_redis_has_no_memory_for_is_reported_in_every_pass(
    new_backroom: Callable[[str], Backroom], tmp_path: Path
) -> None:
    with RedisServer(tmp_path) as own_redis:
        backroom = new_backroom(own_redis.url)
        sku_id = backroom.sales.open(total=3)
        backroom.flush(sku_id)
        client = backroom.copy(sku_id).client
        client.config_set("maxmemory", "1")
        for _ in range(2):
            done = backroom.reconcile()
            assert done.rebuilt == []
            assert f"SKU {sku_id} was not rebuilt: {Rebuilt.NOT_LOADED.value}" in done.failed
        assert "ReconcilePass" not in backroom.counts
        client.config_set("maxmemory", "0")
        done = backroom.reconcile()
        assert (done.rebuilt, done.failed) == ([sku_id], [])


@pytest.mark.parametrize("finished", [True, False], ids=["the other has loaded", "the other is about to load"])
def test_a_rebuild_that_another_one_has_overtaken_is_no_failure(
    backroom: Backroom, monkeypatch: pytest.MonkeyPatch, finished: bool
) -> None:
    sku_id = backroom.sales.open(total=3)
    backroom.flush(sku_id)
    database, redis = open_database(backroom.servers.database_url), open_redis(backroom.servers.redis_url)

    def overtaken(*arguments: Any) -> bool:
        monkeypatch.setattr("seckill.protocol.rebuild.load_copy", load_copy if finished else lambda *_: False)
        rebuild(database, redis, sku_id)
        return load_copy(*arguments)

    monkeypatch.setattr("seckill.protocol.rebuild.load_copy", overtaken)
    done = backroom.reconcile()
    database.close()
    assert (done.rebuilt, done.failed) == ([], [])
    assert backroom.ledger(sku_id).select("SELECT epoch FROM seckill_sale WHERE sku_id = %(sku)s") == [(3,)]


def test_a_copy_that_the_books_forbid_to_rebuild_is_reported(backroom: Backroom) -> None:
    sku_id = backroom.sales.open(total=3)
    backroom.deliberately_broken.add(sku_id)
    backroom.ledger(sku_id).run("UPDATE seckill_sale SET cap = cap + 1 WHERE sku_id = %(sku)s")
    backroom.flush(sku_id)
    assert backroom.reconcile().failed == [f"SKU {sku_id} was not rebuilt: its books are off, a person mends the rows"]


def test_a_flush_with_20_landed_and_30_pending_of_100_is_never_sold_out_and_is_rebuilt_to_50(
    backroom: Backroom,
) -> None:
    sku_id = backroom.sales.open(total=100)
    users = [f"user {number}" for number in range(50)]
    keys = backroom.promise(sku_id, *users)
    backroom.land(*keys[:20])
    backroom.flush(sku_id)
    assert backroom.answer(sku_id, "late") == Refused(Refusal.UNAVAILABLE)
    copy = backroom.copy(sku_id)
    assert backroom.reconcile().rebuilt == [sku_id]
    for _ in range(2):
        assert (copy.epoch, copy.stock, len(copy.holds()), len(copy.buyers())) == (2, 50, 30, 50)
        assert backroom.reconcile().rebuilt == []
    for user, key in list(zip(users, keys, strict=True))[::10]:
        again = backroom.answer(sku_id, user)
        assert isinstance(again, Reserved)
        assert again.key == key
    assert isinstance(backroom.answer(sku_id, "late"), Reserved)
    assert copy.stock == 49


def test_when_all_is_quiet_redis_has_what_remains_without_what_is_pending(backroom: Backroom) -> None:
    """P4: after the reconciler has run, nothing is held, and the gap is 0."""
    sku_id = everything_to_do(backroom)
    (key,) = backroom.promise(sku_id, "erin")
    roll_back(backroom.database, backroom.redis, key, sku_id, "a whim")
    backroom.reconcile()
    (audit,) = backroom.reconcile().audits
    assert audit.redis is not None
    assert (audit.redis.hold_count, audit.gap, audit.ok) == (0, 0, True)
    assert audit.redis.sale.stock == audit.books.remaining - audit.books.reserved
