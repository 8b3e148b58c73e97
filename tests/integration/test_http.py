"""Every HTTP route through the function's own entry point, with events as API Gateway makes them."""

import base64
import io
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from functions.reserve.handler import container, logger
from local.servers import RedisServer, Servers, free_port
from seckill.adapters.mysql import Database
from seckill.adapters.redis import Redis
from seckill.domain.deadline import Deadline
from seckill.domain.sale import iso_time
from seckill.protocol.land import Landing, land
from tests.containers import new_containers
from tests.http_events import LATEST, RESERVATION, SALE, call, event, get_latest, get_reservation, get_sale, post
from tests.ledger import Ledger
from tests.messages import drain, empty
from tests.metrics import counted, uncounted
from tests.redis_copy import RedisCopy
from tests.sales import Sales, fresh_sku_id

CopyOf = Callable[[int], RedisCopy]
LedgerOf = Callable[[int], Ledger]

NOW = int(datetime.now(UTC).timestamp() * 1000)
HOUR = 3_600_000

pytestmark = pytest.mark.usefixtures("function_environment")


def nowhere() -> str:
    """An address of this machine where nobody listens."""
    return f"127.0.0.1:{free_port()}"


def close(sku_id: int, copy: RedisCopy, ledger: Ledger) -> None:
    """The sale's state is closed in both stores."""
    ledger.run("UPDATE seckill_sale SET state = 'closed' WHERE sku_id = %(sku)s")
    copy.set(state="closed")


# -- POST /api/seckill/{skuId} --------------------------------------------------------------------------------------


def test_a_new_reservation_is_accepted_and_says_where_to_look(sales: Sales) -> None:
    sku_id = sales.open(total=4, quantity=2)
    answer = call(post(sku_id))
    key = answer.body["preDeductKey"]
    assert answer.status == 202
    assert answer.body == {"preDeductKey": key, "skuId": sku_id, "status": "RESERVED", "quantity": 2}
    assert answer.headers["location"] == f"/api/seckill/reservations/{key}"


def test_a_holder_who_asks_again_gets_200_with_the_same_body(sales: Sales) -> None:
    sku_id = sales.open(total=2)
    first, second = call(post(sku_id)), call(post(sku_id))
    assert (first.status, second.status) == (202, 200)
    assert second.body == first.body
    assert second.headers["location"] == first.headers["location"]


def test_a_holder_whose_order_was_written_is_told_landed(sales: Sales, database: Database, redis: Redis) -> None:
    sku_id = sales.open(total=2)
    key = call(post(sku_id)).body["preDeductKey"]
    assert land(database, redis, [key], uncounted) == {key: Landing.LANDED}
    again = call(post(sku_id))
    assert (again.status, again.body["status"], again.body["preDeductKey"]) == (200, "LANDED", key)


def test_the_unit_after_the_last_is_sold_out(sales: Sales) -> None:
    sku_id = sales.open(total=1)
    call(post(sku_id, "alice"))
    answer = call(post(sku_id, "bob"))
    assert (answer.status, answer.code) == (409, "SOLD_OUT")
    assert "preDeductKey" not in answer.body


def test_fewer_units_than_a_reservation_takes_are_sold_out(sales: Sales, copy_of: CopyOf) -> None:
    sku_id = sales.open(total=4, quantity=2)
    copy_of(sku_id).set(stock=1)
    assert call(post(sku_id)).code == "SOLD_OUT"
    assert copy_of(sku_id).stock == 1


def test_a_holder_keeps_his_key_after_sold_out_after_close_and_on_another_container(
    sales: Sales, copy_of: CopyOf, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=1)
    key = call(post(sku_id, "alice")).body["preDeductKey"]
    assert call(post(sku_id, "bob")).code == "SOLD_OUT"
    close(sku_id, copy_of(sku_id), ledger_of(sku_id))
    assert call(post(sku_id, "bob")).code == "CLOSED"
    for _ in range(2):
        again = call(post(sku_id, "alice"))
        assert (again.status, again.body["preDeductKey"]) == (200, key)
        new_containers()


def test_a_holder_keeps_his_key_after_the_closing_time(sales: Sales, copy_of: CopyOf) -> None:
    sku_id = sales.open(total=2, closes_at=NOW + HOUR)
    key = call(post(sku_id, "alice")).body["preDeductKey"]
    copy_of(sku_id).set(closes_at=NOW - HOUR)
    assert call(post(sku_id, "bob")).status == 410
    again = call(post(sku_id, "alice"))
    assert (again.status, again.body["preDeductKey"]) == (200, key)


def test_a_sale_that_has_not_opened_says_when_it_does(sales: Sales) -> None:
    opens_at = NOW + HOUR
    sku_id = sales.open(total=1, opens_at=opens_at)
    answer = call(post(sku_id))
    assert (answer.status, answer.code) == (409, "NOT_OPEN")
    assert answer.body["opensAt"] == iso_time(opens_at)
    assert datetime.fromisoformat(answer.body["opensAt"]).tzinfo is not None


def test_a_sale_whose_time_is_over_is_closed(sales: Sales) -> None:
    sku_id = sales.open(total=1, opens_at=NOW - 2 * HOUR, closes_at=NOW - HOUR)
    answer = call(post(sku_id))
    assert (answer.status, answer.code) == (410, "CLOSED")


def test_an_unknown_sku_costs_neither_a_query_nor_a_message(
    sales: Sales, function_environment: pytest.MonkeyPatch, sqs: Any, queue_urls: dict[str, str]
) -> None:
    sales.open(total=1)  # the catalogue is there
    empty(sqs, queue_urls["reconcile"])
    empty(sqs, queue_urls["landing"])
    # A query would be answered 503, since nobody listens there.
    function_environment.setenv("DATABASE_URL", f"mysql://root@{nowhere()}/seckill")
    new_containers()
    for ask in (post, post, get_sale):
        answer = call(ask(fresh_sku_id()))
        assert (answer.status, answer.code) == (404, "NO_SUCH_SALE")
    assert drain(sqs, queue_urls["reconcile"]) == []
    assert drain(sqs, queue_urls["landing"]) == []


def test_a_sale_missing_from_redis_without_a_catalogue_asks_for_a_rebuild_once_a_second(
    function_environment: pytest.MonkeyPatch, tmp_path: Path, sqs: Any, queue_urls: dict[str, str]
) -> None:
    empty(sqs, queue_urls["reconcile"])
    sku_id = fresh_sku_id()
    with RedisServer(tmp_path) as nothing_there:
        function_environment.setenv("REDIS_URL", nothing_there.url)
        new_containers()
        answers = [call(post(sku_id)) for _ in range(5)]
    assert {(answer.status, answer.code) for answer in answers} == {(503, "UNAVAILABLE")}
    assert drain(sqs, queue_urls["reconcile"]) == [{"job": "rebuild", "skuId": sku_id, "epoch": None}]


def test_without_redis_the_answer_is_ask_again(function_environment: pytest.MonkeyPatch) -> None:
    function_environment.setenv("REDIS_URL", f"redis://{nowhere()}/0")
    new_containers()
    sku_id = fresh_sku_id()
    assert call(post(sku_id)).status == 503
    assert call(get_sale(sku_id)).status == 503


def test_without_the_database_the_outcome_is_unknown_and_asking_again_keeps_the_unit(
    sales: Sales, function_environment: pytest.MonkeyPatch, servers: Servers, copy_of: CopyOf
) -> None:
    sku_id = sales.open(total=2)
    function_environment.setenv("DATABASE_URL", f"mysql://root@{nowhere()}/seckill")
    new_containers()
    unknown = call(post(sku_id))
    assert (unknown.status, unknown.code) == (503, "OUTCOME_UNKNOWN")
    key = unknown.body["preDeductKey"]
    assert call(post(sku_id)).body["preDeductKey"] == key
    assert copy_of(sku_id).stock == 1
    function_environment.setenv("DATABASE_URL", servers.database_url)
    new_containers()
    known = call(post(sku_id))
    assert (known.status, known.body["preDeductKey"]) == (202, key)


def test_a_queue_that_cannot_be_reached_keeps_nobody_from_his_reservation(
    sales: Sales, function_environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sku_id = sales.open(total=2)
    function_environment.setenv("LANDING_QUEUE_URL", f"http://{nowhere()}/123456789012/none")
    function_environment.setenv("AWS_ENDPOINT_URL", f"http://{nowhere()}")
    new_containers()
    assert call(post(sku_id)).status == 202
    counts = counted(capsys)
    assert (counts["ReservationWon"], counts["SendFailed"]) == (1, 1)


@pytest.mark.parametrize("body", [None, "", "{}", " {} "])
def test_a_body_without_content_is_accepted(sales: Sales, body: str | None) -> None:
    sku_id = sales.open(total=2)
    assert call(post(sku_id, "alice", body=body)).status == 202
    if body is not None:
        encoded = base64.b64encode(body.encode()).decode()
        assert call(post(sku_id, "bob", body=encoded, base64=True)).status == 202


@pytest.mark.parametrize(
    ("body", "is_base64"),
    [
        *[('{"quantity": 2}', False), ("null", False), ("[]", False), ("x", False)],
        *[("bnVsbA==", True), ("no base64", True), ("/w==", True)],
    ],
)
def test_a_body_with_content_is_refused_and_costs_no_unit(
    sales: Sales, copy_of: CopyOf, body: str, is_base64: bool
) -> None:
    sku_id = sales.open(total=1)
    answer = call(post(sku_id, body=body, base64=is_base64))
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST")
    assert copy_of(sku_id).stock == 1


ODD_SKUS = [
    "0",
    "01",
    "-1",
    "abc",
    "1.5",
    "1e3",
    "%31",
    "9223372036854775808",
    "1" * 30,
    "１２",
    "1 ",
    "1\n",
    "a b",
    "é",
    "1😀",
]


@pytest.mark.parametrize("sku", [*ODD_SKUS, "reservations"])
def test_an_odd_sku_is_refused(sku: str) -> None:
    answer = call(post(sku))
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize("sku", ODD_SKUS)
def test_an_odd_sku_is_refused_by_the_routes_that_only_look(sku: str) -> None:
    assert call(get_sale(sku)).code == "INVALID_REQUEST"
    assert call(get_latest(sku)).code == "INVALID_REQUEST"


def test_a_line_end_belongs_to_no_path(sales: Sales) -> None:
    key = call(post(sales.open(total=1))).body["preDeductKey"]
    for request in (get_sale("reservations\n"), get_reservation(f"{key}\n")):
        answer = call(request)
        assert (answer.status, answer.code) == (400, "INVALID_REQUEST")
    assert call(event("GET", f"{LATEST}\n", {}, claims={"sub": "alice"})).status == 404


def test_the_largest_sku_is_only_unknown(sales: Sales) -> None:
    sales.open(total=1)  # the catalogue is there
    assert call(post(2**63 - 1)).code == "NO_SUCH_SALE"


@pytest.mark.parametrize("claims", [None, {}, {"sub": ""}, {"sub": None}, {"sub": 7}, {"sub": ["alice"]}])
def test_without_a_sub_the_answer_is_401(sales: Sales, copy_of: CopyOf, claims: dict[str, Any] | None) -> None:
    sku_id = sales.open(total=1)
    for method, template, parameters in (
        ("POST", SALE, {"skuId": str(sku_id)}),
        ("GET", LATEST, {}),
        ("GET", RESERVATION, {"preDeductKey": "k"}),
    ):
        # Whoever the request says he is.
        headers, query = {"x-debug-user": "alice"}, {"user": "alice", "skuId": str(sku_id)}
        answer = call(event(method, template, parameters, claims=claims, headers=headers, query=query))
        assert answer.status == 401
    assert copy_of(sku_id).stock == 1


@pytest.mark.parametrize("user", ["a" * 129, "😀" * 129, "a\x00", "a\nb", "\x7f", "\x85", "\ud800"])
def test_a_sub_that_no_store_could_hold_is_refused_and_costs_no_unit(sales: Sales, copy_of: CopyOf, user: str) -> None:
    sku_id = sales.open(total=1)
    for request in (post(sku_id, user), get_latest(sku_id, user), get_reservation("k", user)):
        answer = call(request)
        assert (answer.status, answer.code) == (400, "INVALID_REQUEST")
    assert copy_of(sku_id).stock == 1


@pytest.mark.parametrize("user", ["😀" * 128, "a" * 128, "#epoch", "u:alice", "'; --", "%s", "\\", '"', "é", " "])
def test_an_odd_but_possible_sub_is_a_user_like_any_other(
    sales: Sales, redis: Redis, database: Database, user: str
) -> None:
    sku_id = sales.open(total=2)
    first, second = call(post(sku_id, user)), call(post(sku_id, user))
    assert (first.status, second.status) == (202, 200)
    key = first.body["preDeductKey"]
    assert land(database, redis, [key], uncounted) == {key: Landing.LANDED}
    assert call(get_latest(sku_id, user)).body["preDeductKey"] == key
    assert call(get_reservation(key, user)).body["status"] == "LANDED"


def test_users_that_differ_in_case_or_padding_are_different_users(sales: Sales) -> None:
    sku_id = sales.open(total=10)
    users = ["A", "a", "pad", "pad ", " pad", "é", "e\u0301", "ﬁ", "fi", "ß", "ss"]
    keys = {user: call(post(sku_id, user)).body.get("preDeductKey") for user in users[:10]}
    assert len(set(keys.values())) == 10
    assert call(post(sku_id, users[10])).code == "SOLD_OUT"
    for user, key in keys.items():
        assert call(post(sku_id, user)).body["preDeductKey"] == key
        assert call(get_latest(sku_id, user)).body["preDeductKey"] == key
        assert [other for other in users if call(get_reservation(key, other)).status == 200] == [user]


def test_each_answer_is_counted(sales: Sales, capsys: pytest.CaptureFixture[str]) -> None:
    sku_id = sales.open(total=1)
    counted(capsys)
    for user in ("alice", "alice", "bob", "carol"):
        call(post(sku_id, user))
    counts = counted(capsys)
    assert (counts["ReservationWon"], counts["ReservationReplayed"], counts["SoldOut"]) == (1, 1, 2)


def test_a_sold_out_answer_loads_no_aws_client_and_asks_no_database(sales: Sales, servers: Servers) -> None:
    sku_id = sales.open(total=0)
    program = (
        "import json, sys\n"
        "from functions.reserve.handler import lambda_handler\n"
        "answer = lambda_handler(json.load(sys.stdin), None)\n"
        "print(json.dumps([answer['statusCode'], 'boto3' in sys.modules, 'botocore.session' in sys.modules]))"
    )
    environment = {
        "DATABASE_URL": f"mysql://root@{nowhere()}/seckill",
        "REDIS_URL": servers.redis_url,
        "LANDING_QUEUE_URL": "none",
        "RECONCILE_QUEUE_URL": "none",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, input=json.dumps(post(sku_id)),
        capture_output=True, text=True, timeout=60, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1]) == [409, False, False]


# -- GET /api/seckill/{skuId} ---------------------------------------------------------------------------------------


def test_anybody_may_look_at_a_sale_and_caches_may_keep_it_for_a_second(sales: Sales) -> None:
    sku_id = sales.open(total=3, opens_at=NOW - HOUR, closes_at=NOW + HOUR)
    call(post(sku_id))
    answer = call(get_sale(sku_id))
    assert answer.status == 200
    assert answer.body == {
        "skuId": sku_id,
        "state": "OPEN",
        "available": 2,
        "opensAt": iso_time(NOW - HOUR),
        "closesAt": iso_time(NOW + HOUR),
    }
    assert answer.headers["cache-control"] == "public, max-age=1"


def test_a_sale_is_scheduled_then_sold_out_then_closed(sales: Sales, copy_of: CopyOf) -> None:
    scheduled = call(get_sale(sales.open(total=3, opens_at=NOW + HOUR))).body
    assert (scheduled["state"], scheduled["available"], scheduled["closesAt"]) == ("SCHEDULED", 3, None)
    sku_id = sales.open(total=1)
    call(post(sku_id))
    sold_out = call(get_sale(sku_id)).body
    assert (sold_out["state"], sold_out["available"], sold_out["opensAt"]) == ("SOLD_OUT", 0, None)
    over = call(get_sale(sales.open(total=3, opens_at=NOW - 2 * HOUR, closes_at=NOW - HOUR))).body
    assert (over["state"], over["available"]) == ("CLOSED", 0)
    copy_of(sku_id).set(state="closed", stock=5)
    closed = call(get_sale(sku_id)).body
    assert (closed["state"], closed["available"]) == ("CLOSED", 0)


@pytest.mark.parametrize(
    "damage", [{"stock": "many"}, {"epoch": "1.5"}, {"ticket": ""}, {"quantity": "0"}, {"opens_at": "x"}]
)
def test_a_copy_that_is_not_whole_is_unavailable_not_sold_out(
    sales: Sales, copy_of: CopyOf, damage: dict[str, str]
) -> None:
    sku_id = sales.open(total=3)
    copy = copy_of(sku_id)
    copy.set(**damage)
    before = copy.everything()
    for answer in (call(get_sale(sku_id)), call(post(sku_id))):
        assert (answer.status, answer.code) == (503, "UNAVAILABLE")
    assert copy.everything() == before


@pytest.mark.parametrize("field", ["opens_at", "closes_at"])
def test_a_time_that_no_calendar_knows_is_answered_all_the_same(sales: Sales, copy_of: CopyOf, field: str) -> None:
    """Redis may hold anything; a copy like this promises nothing and breaks nothing."""
    sku_id = sales.open(total=3)
    copy_of(sku_id).set(**{field: 2**53})
    for answer in (call(get_sale(sku_id)), call(post(sku_id))):
        assert answer.status in (200, 202, 409, 503)


# -- GET /api/seckill/reservations ----------------------------------------------------------------------------------


def test_a_users_latest_reservation_is_shown_from_reserved_to_landed(
    sales: Sales, database: Database, redis: Redis
) -> None:
    sku_id = sales.open(total=2)
    key = call(post(sku_id)).body["preDeductKey"]
    shown = call(get_latest(sku_id))
    assert shown.status == 200
    assert shown.body == {"preDeductKey": key, "skuId": sku_id, "status": "RESERVED", "quantity": 1}
    land(database, redis, [key], uncounted)
    landed = call(get_latest(sku_id)).body
    assert landed["status"] == "LANDED"
    assert isinstance(landed["orderId"], int)
    assert call(get_reservation(key)).body == landed


def test_a_live_reservation_is_shown_before_a_rolled_back_one_and_else_the_latest(
    sales: Sales, ledger_of: LedgerOf
) -> None:
    sku_id = sales.open(total=3)
    ledger = ledger_of(sku_id)
    first = call(post(sku_id)).body["preDeductKey"]
    ledger.roll_back(first, reason="no stock row")
    shown = call(get_latest(sku_id)).body
    assert (shown["preDeductKey"], shown["status"], shown["reason"]) == (first, "ROLLED_BACK", "no stock row")
    second = call(post(sku_id)).body["preDeductKey"]
    assert call(get_latest(sku_id)).body["preDeductKey"] == second
    ledger.roll_back(second)
    assert call(get_latest(sku_id)).body["preDeductKey"] == second
    third = call(post(sku_id)).body["preDeductKey"]
    # An older live row comes before a younger dead one.
    older = f"00000000-{sku_id}"
    ledger.run(
        "UPDATE seckill_pre_deduct SET pre_deduct_key = %(older)s WHERE pre_deduct_key = %(key)s",
        key=third,
        older=older,
    )
    assert call(get_latest(sku_id)).body["preDeductKey"] == older


def test_a_user_without_a_reservation_of_this_sale_has_none(sales: Sales) -> None:
    sku_id, other = sales.open(total=1), sales.open(total=1)
    call(post(sku_id, "alice"))
    for request in (get_latest(sku_id, "bob"), get_latest(other, "alice"), get_latest(fresh_sku_id(), "alice")):
        assert call(request).status == 404


def test_the_sale_must_be_named(sales: Sales) -> None:
    answer = call(get_latest(None))
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST")


# -- GET /api/seckill/reservations/{preDeductKey} -------------------------------------------------------------------


def test_another_users_key_and_an_unknown_key_look_alike(sales: Sales) -> None:
    sku_id = sales.open(total=2)
    key = call(post(sku_id, "alice")).body["preDeductKey"]
    call(post(sku_id, "bob"))
    anothers, unknown = call(get_reservation(key, "bob")), call(get_reservation(key[:-1] + "_", "bob"))
    assert (anothers.status, unknown.status) == (404, 404)
    assert anothers.body == unknown.body
    assert call(get_reservation(key, "alice")).status == 200


def test_a_rolled_back_reservation_is_shown_with_its_reason(sales: Sales, ledger_of: LedgerOf) -> None:
    sku_id = sales.open(total=2)
    key = call(post(sku_id)).body["preDeductKey"]
    ledger_of(sku_id).roll_back(key, reason="refused by the database")
    shown = call(get_reservation(key))
    assert shown.status == 200
    assert shown.body == {
        "preDeductKey": key,
        "skuId": sku_id,
        "status": "ROLLED_BACK",
        "quantity": 1,
        "reason": "refused by the database",
    }


@pytest.mark.parametrize("key", ["x", "x" * 5_000, "%00", "é", "'", "0 OR 1=1", "😀"])
def test_an_odd_key_is_nobodys(key: str) -> None:
    assert call(get_reservation(key)).status in (400, 404)


def test_without_the_database_nothing_can_be_shown(function_environment: pytest.MonkeyPatch) -> None:
    function_environment.setenv("DATABASE_URL", f"mysql://root@{nowhere()}/seckill")
    new_containers()
    for request in (get_latest(fresh_sku_id()), get_reservation("k")):
        answer = call(request)
        assert (answer.status, answer.code) == (503, "UNAVAILABLE")


# -- every route ----------------------------------------------------------------------------------------------------


def test_a_plain_correlation_id_is_echoed_and_travels_with_the_message(
    sales: Sales, sqs: Any, queue_urls: dict[str, str]
) -> None:
    sku_id = sales.open(total=1)
    empty(sqs, queue_urls["landing"])
    answer = call(post(sku_id, headers={"x-correlation-id": "trace-17.a_B"}))
    assert answer.headers["x-correlation-id"] == "trace-17.a_B"
    key = answer.body["preDeductKey"]
    assert drain(sqs, queue_urls["landing"]) == [
        {"preDeductKey": key, "skuId": sku_id, "correlationId": "trace-17.a_B"}
    ]


@pytest.mark.parametrize("given", ["x" * 65, "a b", "a\r\nset-cookie: b", "é"])
def test_any_other_correlation_id_is_replaced_by_the_gateways_request_id(given: str) -> None:
    request = post("0", headers={"x-correlation-id": given})
    assert call(request).headers["x-correlation-id"] == request["requestContext"]["requestId"]


@pytest.mark.parametrize(("method", "path"), [("DELETE", "/api/seckill/1"), ("GET", "/"), ("GET", "/api/seckill/1/2")])
def test_what_is_no_route_is_not_found(method: str, path: str) -> None:
    answer = call(event(method, path, {}, claims={"sub": "alice"}))
    assert (answer.status, answer.code) == (404, "NOT_FOUND")


def test_log_lines_name_the_reservation_and_never_the_user(sales: Sales, monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    monkeypatch.setattr(logger.registered_handler, "stream", output)
    sku_id = sales.open(total=1)
    key = call(post(sku_id, "wilhelmina", headers={"x-correlation-id": "trace-1"})).body["preDeductKey"]
    for request in (post(sku_id, "wilhelmina"), get_latest(sku_id, "wilhelmina")):
        assert call(request).status == 200
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    assert [(line["pre_deduct_key"], line["sku_id"], line["answer"]) for line in lines] == [
        (key, sku_id, "RESERVED")
    ] * 2
    assert lines[0]["correlation_id"] == "trace-1"
    assert "wilhelmina" not in output.getvalue()


def test_a_users_deadline_is_not_spent_by_an_earlier_call(sales: Sales, redis: Redis) -> None:
    """A warm container begins each call with a fresh deadline."""
    sku_id = sales.open(total=2)
    call(post(sku_id, "alice"))
    container().redis.deadline = container().database.deadline = Deadline(seconds=0)
    assert call(post(sku_id, "bob")).status == 202
