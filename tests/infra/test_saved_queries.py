"""The saved queries ask for fields that the functions' own log lines have, and find the lines they are meant for."""

import io
import json
from types import SimpleNamespace
from typing import Any

import pytest

from functions.land_order import handler as land_order
from functions.reconcile import handler as reconcile
from functions.reserve import handler as reserve
from functions.sale_admin import handler as sale_admin
from local.lambda_context import LambdaContext
from seckill.domain.answer import Answer, Refusal, Refused, Reserved
from seckill.domain.event import Event
from seckill.domain.reservation import Status
from seckill.protocol.land import Landing
from seckill.protocol.reconcile import Pass
from seckill.protocol.stale_rows import StaleRows
from tests.http_events import call, post
from tests.infra.deployment import Deployment, text

KEY = "0198c0de-0000-7000-8000-000000000001"
HANDLERS: dict[str, Any] = {
    "reserve": reserve,
    "land_order": land_order,
    "reconcile": reconcile,
    "sale_admin": sale_admin,
}
# Lambda's own line at the end of an invocation when logs are JSON (the Telemetry API's platform.report).
PLATFORM_REPORT = {
    "time": "2026-11-11T12:00:00.000Z",
    "type": "platform.report",
    "record": {
        "requestId": "5b0d51d1-1b5a-4f0b-8d4b-0f6f6d2f1c11",
        "metrics": {"durationMs": 41.5, "billedDurationMs": 42, "memorySizeMB": 512, "maxMemoryUsedMB": 130},
        "status": "success",
    },
}


class Lines:
    """The functions without stores: what they log of an answer that is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        # Lambda sets it for a traced invocation.
        monkeypatch.setenv("_X_AMZN_TRACE_ID", "Root=1-6912c5c0-0123456789abcdef01234567;Sampled=1")
        self._context = LambdaContext.starting_now("test", "eu-west-1", timeout_seconds=10)

    def reserve(self, answer: Answer) -> list[dict[str, Any]]:
        stub = SimpleNamespace(reserve=lambda sku_id, user, correlation_id: answer)
        self._patch.setattr(reserve, "container", lambda: stub)
        output = self._output("reserve")
        call(post(7))
        return _parsed(output)

    def land_order(self) -> list[dict[str, Any]]:
        store = SimpleNamespace(new_call=lambda deadline: None)
        self._patch.setattr(land_order, "stores", lambda: (store, store))
        self._patch.setattr(land_order, "land", lambda database, redis, keys, count: {KEY: Landing.LANDED})
        body = json.dumps({"preDeductKey": KEY, "skuId": 7, "correlationId": "c"})
        output = self._output("land_order")
        record = {"messageId": "1", "eventSource": "aws:sqs", "body": body}
        assert land_order.lambda_handler({"Records": [record]}, self._context) == {"batchItemFailures": []}
        return _parsed(output)

    def reconcile(self) -> list[dict[str, Any]]:
        done = Pass(stale=StaleRows(events=[Event(KEY, 7, "landed by reconcile")]))
        self._patch.setattr(reconcile, "reconcile", lambda: lambda deadline: done)
        output = self._output("reconcile")
        reconcile.lambda_handler({}, self._context)
        return _parsed(output)

    def sale_admin(self) -> list[dict[str, Any]]:
        self._patch.setattr(sale_admin, "stores", lambda: SimpleNamespace(new_call=lambda deadline: None))
        self._patch.setitem(sale_admin.ACTIONS, "resolve", lambda stores, event: {"decided": True})
        output = self._output("sale_admin")
        asked = {"action": "resolve", "preDeductKey": KEY, "decision": "land", "reason": "a whim", "skuId": 7}
        assert sale_admin.lambda_handler(asked, self._context)["ok"]
        return _parsed(output)

    def _output(self, function: str) -> io.StringIO:
        output = io.StringIO()
        self._patch.setattr(HANDLERS[function].logger.registered_handler, "stream", output)
        return output


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    return Lines(monkeypatch)


def test_the_timeline_finds_what_every_function_says_of_the_key(dev: Deployment, lines: Lines) -> None:
    query = _query(dev, "One reservation's timeline")
    assert query["groups"] == {_log_group(dev, name) for name in HANDLERS}
    said = [
        *lines.reserve(Reserved(KEY, Status.RESERVED, 1, new=True)),
        *lines.land_order(),
        *lines.reconcile(),
        *lines.sale_admin(),
    ]
    asked = query["filter"].replace("PUT THE KEY HERE", KEY)
    found = [line for line in said if _holds(asked, line)]
    assert [line["service"] for line in found] == list(HANDLERS)
    assert not any(_holds(query["filter"], line) for line in said), "the key is put in by hand"
    assert query["fields"] <= {"@timestamp"}.union(*found)


def test_unknown_outcomes_are_found_and_no_other_answer(dev: Deployment, lines: Lines) -> None:
    query = _query(dev, "Unknown outcomes")
    assert query["groups"] == {_log_group(dev, "reserve")}
    [unknown] = lines.reserve(Refused(Refusal.OUTCOME_UNKNOWN, KEY))
    assert _holds(query["filter"], unknown), unknown
    assert query["fields"] <= {"@timestamp"} | unknown.keys()
    for other in (Refused(Refusal.UNAVAILABLE, KEY), Reserved(KEY, Status.RESERVED, 1, new=True)):
        [line] = lines.reserve(other)
        assert not _holds(query["filter"], line)


def test_the_slowest_landings_are_read_from_lambdas_own_reports(deployment: Deployment) -> None:
    query = _query(deployment, "Slowest landings")
    assert query["groups"] == {_log_group(deployment, "land_order")}
    # Only JSON logs have it: text logs say "REPORT RequestId: ...".
    assert deployment.function("land_order").properties["LoggingConfig"]["LogFormat"] == "JSON"
    report = _flat(PLATFORM_REPORT)
    assert _holds(query["filter"], report)
    assert query["fields"] | {query["sort"].removesuffix(" desc")} <= {"@timestamp"} | report.keys()


def _query(deployment: Deployment, name: str) -> dict[str, Any]:
    """A saved query by its commands, and the log groups it looks at."""
    [found] = [
        query.properties
        for query in deployment.resources("AWS::Logs::QueryDefinition")
        if query.properties["Name"].rpartition("/")[2] == name
    ]
    commands = dict(part.split(" ", 1) for part in found["QueryString"].split("\n| "))
    fields = set(commands.pop("fields").split(", "))
    return commands | {"fields": fields, "groups": {text(group) for group in found["LogGroupNames"]}}


def _log_group(deployment: Deployment, function: str) -> str:
    return text(deployment.function(function).properties["LoggingConfig"]["LogGroup"])


def _holds(condition: str, line: dict[str, Any]) -> bool:
    """`field = "value"` and comparisons of numbers, joined by `or`. A list is no number: Logs Insights takes it apart
    into fields of other names."""
    return any(_one_holds(part, line) for part in condition.split(" or "))


def _one_holds(condition: str, line: dict[str, Any]) -> bool:
    field, comparison, value = condition.split(" ", 2)
    wanted, found = json.loads(value), line.get(field)
    if comparison == "=":
        return bool(found == wanted)
    assert comparison == ">", f"this test does not know {comparison}"
    return isinstance(found, int | float) and bool(found > wanted)


def _flat(line: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested fields by Logs Insights' names, with points."""
    found: dict[str, Any] = {}
    for name, value in line.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def _parsed(output: io.StringIO) -> list[dict[str, Any]]:
    return [_flat(json.loads(line)) for line in output.getvalue().splitlines()]
