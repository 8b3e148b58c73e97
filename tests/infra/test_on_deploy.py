"""The custom resource's handler: a failed migration fails the deployment, a proxy that is not there yet does not."""

import importlib.util
import io
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from seckill.adapters.mysql import ACCESS_DENIED, DEADLOCK, LOCK_TIMEOUT, UNREACHABLE_CODES, Database, DatabaseError

SOURCE = Path(__file__).parents[2] / "infra" / "on_deploy" / "migrate.py"
Answers = list[dict[str, Any]]


def _unavailable(number: int) -> dict[str, Any]:
    """What sale_admin makes of a DatabaseError."""
    return {"ok": False, "error": "UNAVAILABLE", "detail": str(DatabaseError(number, "the server's words"))}


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answers], tuple[ModuleType, list[dict[str, Any]]]]:
    """The handler's module, with sale_admin answering so, and the calls that it got."""

    def load(answers: Answers) -> tuple[ModuleType, list[dict[str, Any]]]:
        spec = importlib.util.spec_from_file_location("migrate_on_deploy", SOURCE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        calls: list[dict[str, Any]] = []

        class SaleAdmin:
            def invoke(self, **call: Any) -> dict[str, Any]:
                calls.append(call)
                answer = answers[min(len(calls), len(answers)) - 1]
                error = {"FunctionError": "Unhandled"} if "errorMessage" in answer else {}
                return {"Payload": io.BytesIO(json.dumps(answer).encode()), **error}

        monkeypatch.setenv("SALE_ADMIN", "the-function")
        monkeypatch.setattr(module.boto3, "client", lambda *_, **__: SaleAdmin())
        monkeypatch.setattr(module.time, "sleep", lambda _seconds: None)
        return module, calls

    return load


@pytest.mark.parametrize("request_type", ["Create", "Update"])
def test_create_and_update_migrate(answered: Any, request_type: str) -> None:
    module, calls = answered([{"ok": True, "version": 1}])
    assert module.handler({"RequestType": request_type}, None)["PhysicalResourceId"] == "seckill-schema"
    assert calls == [{"FunctionName": "the-function", "Payload": '{"action": "migrate"}'}]


def test_delete_touches_nothing(answered: Any) -> None:
    module, calls = answered([{"ok": True}])
    assert module.handler({"RequestType": "Delete"}, None) == {}
    assert calls == []


@pytest.mark.parametrize("answer", [{"ok": False, "error": "INVALID_REQUEST"}, {"errorMessage": "1064: syntax"}])
def test_a_failed_migration_fails_the_deployment_at_once(answered: Any, answer: dict[str, Any]) -> None:
    module, calls = answered([answer])
    with pytest.raises(RuntimeError, match="migrate failed"):
        module.handler({"RequestType": "Update"}, None)
    assert len(calls) == 1


def test_a_proxy_that_is_not_there_yet_is_waited_for(answered: Any) -> None:
    module, calls = answered([{"ok": False, "error": "UNAVAILABLE"}] * 3 + [{"ok": True}])
    assert module.handler({"RequestType": "Create"}, None)
    assert len(calls) == 4


# 9501 is RDS Proxy's "Timed-out waiting to acquire database connection".
@pytest.mark.parametrize("number", sorted({*UNREACHABLE_CODES, ACCESS_DENIED, LOCK_TIMEOUT, DEADLOCK, 9501}))
def test_no_connection_and_a_lock_are_waited_for(answered: Any, number: int) -> None:
    module, calls = answered([_unavailable(number), {"ok": True}])
    assert module.handler({"RequestType": "Create"}, None)
    assert len(calls) == 2


@pytest.mark.parametrize("place", ["127.0.0.1:1", "no-such-proxy.invalid:3306"])
def test_nor_is_a_proxy_that_does_not_answer_or_has_no_address_a_failure(answered: Any, place: str) -> None:
    with pytest.raises(DatabaseError) as refused:  # what the adapter says, which begins with the system's own number
        Database(f"mysql://nobody@{place}/seckill").row("migrate.lock")
    module, calls = answered([{"ok": False, "error": "UNAVAILABLE", "detail": str(refused.value)}, {"ok": True}])
    assert module.handler({"RequestType": "Create"}, None)
    assert len(calls) == 2


# A plugin that is not loaded, a wrong statement, a privilege that lacks, a column that is there already.
@pytest.mark.parametrize("number", [1524, 1064, 1142, 1227, 1060])
def test_what_the_server_says_of_the_migration_fails_the_deployment_at_once(answered: Any, number: int) -> None:
    module, calls = answered([_unavailable(number)])
    with pytest.raises(RuntimeError, match=f"migrate failed.*{number}"):
        module.handler({"RequestType": "Create"}, None)
    assert len(calls) == 1


def test_but_not_for_ever(answered: Any) -> None:
    module, calls = answered([{"ok": False, "error": "UNAVAILABLE"}])
    with pytest.raises(RuntimeError, match="UNAVAILABLE"):
        module.handler({"RequestType": "Create"}, None)
    assert len(calls) == 20


def test_it_fits_into_a_template() -> None:
    assert len(SOURCE.read_text()) <= 4096  # what CloudFormation takes as inline code
