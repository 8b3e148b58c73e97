"""What is uploaded runs: in a clean process, from Lambda's paths only, against real servers."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from local.servers import Servers
from seckill.adapters.mysql import Database
from seckill.domain.deadline import Deadline
from tests.infra.artefacts import FIRST_OF_1980, Artefacts
from tests.infra.runtime_api import RuntimeApi, running_function
from tests.sales import Sales

Start = Callable[..., AbstractContextManager[RuntimeApi]]


@pytest.fixture
def start(
    artefacts: Artefacts, servers: Servers, queue_urls: dict[str, str], tmp_path: Path
) -> Callable[..., AbstractContextManager[RuntimeApi]]:
    """Starts one of the functions, told what the local stack's servers are."""
    settings = {
        "DATABASE_URL": servers.database_url,
        "REDIS_URL": servers.redis_url,
        "LANDING_QUEUE_URL": queue_urls["landing"],
        "LANDING_DLQ_URL": queue_urls["dead_letters"],
        "RECONCILE_QUEUE_URL": queue_urls["reconcile"],
        "AWS_ENDPOINT_URL": servers.aws_endpoint_url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "eu-west-1",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }

    def start(name: str, **changes: str) -> AbstractContextManager[RuntimeApi]:
        return running_function(
            artefacts.python,
            f"functions.{name}.handler.lambda_handler",
            paths=artefacts.paths(name),
            environment={**settings, **changes},
            log=tmp_path / f"{name}.log",
        )

    return start


def http_event(sku_id: int, user: str) -> dict[str, Any]:
    """API Gateway's payload 2.0 for POST /api/seckill/{skuId}, its authorizer having spoken."""
    return {
        "version": "2.0",
        "routeKey": "POST /api/seckill/{skuId}",
        "rawPath": f"/api/seckill/{sku_id}",
        "rawQueryString": "",
        "headers": {"host": "api.example"},
        "pathParameters": {"skuId": str(sku_id)},
        "requestContext": {
            "http": {"method": "POST", "path": f"/api/seckill/{sku_id}", "sourceIp": "192.0.2.1"},
            "authorizer": {"jwt": {"claims": {"sub": user}, "scopes": None}},
            "requestId": "r",
            "routeKey": "POST /api/seckill/{skuId}",
            "stage": "$default",
        },
        "isBase64Encoded": False,
    }


def sqs_event(*keys: str) -> dict[str, Any]:
    return {
        "Records": [
            {
                "messageId": f"m-{key}",
                "receiptHandle": "h",
                "body": json.dumps({"preDeductKey": key}),
                "attributes": {"ApproximateReceiveCount": "1"},
                "messageAttributes": {},
                "md5OfBody": "",
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:eu-west-1:123456789012:landing",
                "awsRegion": "eu-west-1",
            }
            for key in keys
        ]
    }


def test_an_http_event_reserves_and_an_sqs_event_lands(start: Start, sales: Sales, database: Database) -> None:
    sku_id = sales.open(total=1)
    with start("reserve") as api:
        answer = api.invoke(http_event(sku_id, "user-1"))
        assert answer["statusCode"] == 202, answer
        key = json.loads(answer["body"])["preDeductKey"]
        sold_out = api.invoke(http_event(sku_id, "user-2"))
        assert json.loads(sold_out["body"])["code"] == "SOLD_OUT"
    with start("land_order") as api:
        assert api.invoke(sqs_event(key)) == {"batchItemFailures": []}
        unknown = api.invoke(sqs_event("a-key-without-a-row"))
        assert unknown == {"batchItemFailures": [{"itemIdentifier": "m-a-key-without-a-row"}]}
    with start("reserve") as api:
        again = api.invoke(http_event(sku_id, "user-1"))
        assert (again["statusCode"], json.loads(again["body"])["status"]) == (200, "LANDED")


def test_reconcile_reconciles_and_audits(start: Start, sales: Sales) -> None:
    sku_id = sales.open(total=3)
    with start("reconcile") as api:
        summary = api.invoke({})
        assert {"staleFound", "landed", "rolledBack", "audits"} <= set(summary)
        audit = api.invoke({"job": "audit"})
        assert {found["ok"] for found in audit["audits"] if found["skuId"] == sku_id} == {True}
        beat = {"Records": [{**sqs_event("x")["Records"][0], "body": json.dumps({"job": "beat"})}]}
        assert api.invoke(beat) == {"batchItemFailures": []}


@pytest.fixture
def empty_database(servers: Servers) -> Iterator[str]:
    """The URL of a database without a table."""
    if servers.database is None:
        pytest.skip("SECKILL_TEST_DATABASE_URL names the user's own server: no database is made there")
    yield servers.database.create_database("artefact_migrate")
    cleaner = Database(servers.database_url)
    cleaner.new_call(Deadline(seconds=30, longest_wait=30))
    cleaner.run_script("DROP DATABASE artefact_migrate;")
    cleaner.close()


def test_migrate_migrates_and_a_second_time_changes_nothing(start: Start, empty_database: str) -> None:
    with start("sale_admin", DATABASE_URL=empty_database) as api:
        first = api.invoke({"action": "migrate"})
        assert first["ok"] is True
        assert first["applied"]
        assert api.invoke({"action": "migrate"})["applied"] == []
        refused = api.invoke({"action": "status", "skuId": 1})
        assert (refused["ok"], refused["error"]) == (False, "NO_SUCH_SALE")


LOOK = """
import importlib, json, pkgutil, sys
importlib.import_module(sys.argv[1])
import seckill, hiredis, redis
for found in pkgutil.walk_packages(seckill.__path__, "seckill."):
    importlib.import_module(found.name)
files = {m.__name__: m.__file__ for m in list(sys.modules.values()) if getattr(m, "__file__", None)}
print(json.dumps({
    "hiredis": [hiredis.__file__, redis.utils.HIREDIS_AVAILABLE],
    "runtime": sorted(name for name, file in files.items() if file.startswith(sys.argv[2])),
    "ours": sum(file.endswith(".py") and not file.startswith(sys.prefix) for file in files.values()),
}))
"""


@pytest.fixture
def without_sources(artefacts: Artefacts, tmp_path: Path) -> Artefacts:
    """The artefacts with every source replaced by one that fails: what runs all the same is the byte code."""
    copied = Artefacts(artefacts.python, tmp_path / "opt", {}, artefacts.runtime)
    shutil.copytree(artefacts.opt, copied.opt)
    for name, task in artefacts.tasks.items():
        copied.tasks[name] = shutil.copytree(task, tmp_path / "var" / name)
    for source in tmp_path.rglob("*.py"):
        source.write_text("raise ImportError('compiled anew')\n")
        os.utime(source, (FIRST_OF_1980, FIRST_OF_1980))
    return copied


@pytest.mark.parametrize("name", ["reserve", "land_order", "reconcile", "sale_admin"])
def test_the_byte_code_is_used_though_every_file_is_of_1980_and_hiredis_is_there(
    without_sources: Artefacts, name: str
) -> None:
    paths = without_sources.paths(name)
    done = subprocess.run(
        [without_sources.python, "-c", LOOK, f"functions.{name}.handler", str(without_sources.runtime)],
        cwd=paths[0],
        env={"PYTHONPATH": os.pathsep.join(map(str, paths)), "POWERTOOLS_TRACE_DISABLED": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["ours"] > 50
    assert seen["hiredis"] == [seen["hiredis"][0], True]
    assert seen["hiredis"][0].startswith(str(without_sources.opt))
    # Powertools looks whether botocore is there; its clients are imported on first use, not before.
    assert set(seen["runtime"]) <= {"botocore"}


def test_a_source_newer_than_its_byte_code_would_be_noticed_here(without_sources: Artefacts) -> None:
    """The proof above can fail: without byte code the failing source is what runs."""
    for cached in (without_sources.opt / "python" / "seckill").rglob("*.pyc"):
        cached.unlink()
    paths = without_sources.paths("reserve")
    done = subprocess.run(
        [without_sources.python, "-c", "import functions.reserve.handler"],
        cwd=paths[0],
        env={"PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "compiled anew" in done.stderr
