"""The local stack with the real functions, real servers and moto's queue, over HTTP as a shop would call it."""

import http.client
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
import psutil
import pytest

import local.state
from cli.main import main
from local.environment import REGION
from local.servers import Servers, free_port, wait_until
from local.stack import Stack, StackError, StackOptions, running_stack
from local.state import CHECKOUT, claimed_state
from tests.books import assert_books_balance
from tests.redis_client import redis_client
from tests.sales import fresh_sku_id

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

# Far above what anything here takes on a busy machine.
DEADLINE_SECONDS = 60


# So far apart that only the pass at the start of a stack happens during a test.
SELDOM_SECONDS = 600.0


@pytest.fixture(scope="module")
def stack(servers: Servers) -> Iterator[Stack]:
    with running_stack(servers, StackOptions(workers=2, reconcile_seconds=SELDOM_SECONDS)) as running:
        yield running


def call(base_url: str, method: str, path: str, **headers: str) -> tuple[int, Any]:
    """The status and the JSON body of one request on a connection of its own."""
    connection = http.client.HTTPConnection(urlsplit(base_url).netloc, timeout=DEADLINE_SECONDS)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def open_sale(stack: Stack, total: int) -> int:
    sku_id = fresh_sku_id()
    answer = stack.sale_admin({"action": "open_sale", "skuId": sku_id, "total": total})
    assert answer == {"ok": True, "skuId": sku_id, "loaded": True}
    return sku_id


def landed(base_url: str, key: str, **headers: str) -> bool:
    status, reservation = call(base_url, "GET", f"/api/seckill/reservations/{key}", **headers)
    assert status == 200
    return bool(reservation["status"] == "LANDED")


def test_a_reservation_made_over_http_lands(stack: Stack) -> None:
    sku_id = open_sale(stack, 10)
    user = {"Authorization": f"Bearer {stack.token('alice')}"}
    status, body = call(stack.base_url, "POST", f"/api/seckill/{sku_id}", **user)
    assert (status, body["status"], body["skuId"]) == (202, "RESERVED", sku_id)
    assert wait_until(lambda: landed(stack.base_url, body["preDeductKey"], **user), DEADLINE_SECONDS)
    status, again = call(stack.base_url, "POST", f"/api/seckill/{sku_id}", **user)
    assert (status, again["preDeductKey"], again["status"]) == (200, body["preDeductKey"], "LANDED")


def test_the_token_says_whose_reservation_it_is(stack: Stack) -> None:
    sku_id = open_sale(stack, 10)
    alice, bob = ({"Authorization": f"Bearer {stack.token(user)}"} for user in ("alice", "bob"))
    key = call(stack.base_url, "POST", f"/api/seckill/{sku_id}", **alice)[1]["preDeductKey"]
    assert call(stack.base_url, "GET", f"/api/seckill/reservations/{key}", **alice)[0] == 200
    assert call(stack.base_url, "GET", f"/api/seckill/reservations/{key}", **bob)[0] == 404


def test_a_storm_on_many_connections_sells_every_unit_once_and_all_lands(stack: Stack, servers: Servers) -> None:
    sku_id = open_sale(stack, 50)

    def buy(number: int) -> tuple[int, Any]:
        user = {"X-Debug-User": f"user-{number}"}
        return call(stack.base_url, "POST", f"/api/seckill/{sku_id}", **user)

    with ThreadPoolExecutor(100) as shoppers:
        answers = list(shoppers.map(buy, range(200)))
    won = [body["preDeductKey"] for status, body in answers if status == 202]
    lost = [body["code"] for status, body in answers if status != 202]
    assert (len(set(won)), lost) == (50, ["SOLD_OUT"] * 150)

    def accounts() -> Any:
        return stack.sale_admin({"action": "status", "skuId": sku_id})

    assert wait_until(lambda: accounts()["ledger"]["landed"] == 50, DEADLINE_SECONDS)
    final = accounts()
    assert (final["orders"], final["remaining"], final["redis"]["stock"]) == (50, 0, 0)
    assert_books_balance(servers.database_url, sku_id)


def test_what_the_front_refuses_never_reaches_the_function(stack: Stack) -> None:
    assert call(stack.base_url, "GET", "/") == (404, {"message": "Not Found"})
    assert call(stack.base_url, "POST", "/api/seckill/1") == (401, {"message": "Unauthorized"})


# Reconcile


def test_a_reservation_whose_message_is_lost_is_landed_by_the_schedule(servers: Servers) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    options = StackOptions(
        workers=1,
        reconcile_seconds=1,
        stale_after_seconds=1,
        reserve_environment={"AWS_ENDPOINT_URL": nobody},
    )
    with running_stack(servers, options) as running:
        sku_id = open_sale(running, 10)
        user = {"X-Debug-User": "alice"}
        status, body = call(running.base_url, "POST", f"/api/seckill/{sku_id}", **user)
        assert (status, body["status"]) == (202, "RESERVED")
        assert wait_until(lambda: landed(running.base_url, body["preDeductKey"], **user), DEADLINE_SECONDS)
        log = running.poller.log.read_text()
    assert body["preDeductKey"] not in log, "the landing queue brought it"
    books = assert_books_balance(servers.database_url, sku_id)
    assert (books.landed, books.ordered, books.remaining) == (1, 1, 9)


def test_a_lost_copy_is_rebuilt_on_request_without_waiting_for_a_beat(stack: Stack, servers: Servers) -> None:
    sku_id = open_sale(stack, 10)
    path = f"/api/seckill/{sku_id}"
    alice, bob = {"X-Debug-User": "alice"}, {"X-Debug-User": "bob"}
    key = call(stack.base_url, "POST", path, **alice)[1]["preDeductKey"]
    redis_client(servers).delete(*(f"seckill:{{{sku_id}}}:{name}" for name in ("sale", "held", "buyers")))
    status, body = call(stack.base_url, "POST", path, **bob)
    assert (status, body["code"]) == (503, "UNAVAILABLE")

    def sells_again() -> bool:
        status, body = call(stack.base_url, "POST", path, **bob)
        assert status in (202, 503), body
        return status == 202

    assert wait_until(sells_again, DEADLINE_SECONDS)
    status, again = call(stack.base_url, "POST", path, **alice)
    assert (status, again["preDeductKey"]) == (200, key)
    assert_books_balance(servers.database_url, sku_id)


def test_a_dead_letter_that_was_looked_at_stays_out_of_the_way_for_ten_minutes(stack: Stack, servers: Servers) -> None:
    answer = sqs_of(servers).get_queue_attributes(
        QueueUrl=stack.queues.landing_dlq_url, AttributeNames=["VisibilityTimeout"]
    )
    assert int(answer["Attributes"]["VisibilityTimeout"]) >= 600


# Containers


def note_begin_and_end(event: Any, context: Any) -> Any:
    """Stands in for reserve: says which container served the call, and from when to when."""
    begin = time.monotonic()
    time.sleep(0.05)
    return {"pid": os.getpid(), "begin": begin, "end": time.monotonic()}


def die(event: Any, context: Any) -> Any:
    """Stands in for reserve: a container that dies in the middle of a call, if told so."""
    if event["pathParameters"]["skuId"] == "666":
        os._exit(1)
    return {"pid": os.getpid()}


def stack_with(servers: Servers, handler: Callable[[Any, Any], Any], **more: Any) -> Any:
    name = f"tests.integration.test_local_stack.{handler.__name__}"
    return running_stack(servers, StackOptions(reserve_handler=name, **{"migrate": False, "reconcile": False} | more))


def test_a_container_serves_one_call_at_a_time(servers: Servers) -> None:
    with stack_with(servers, note_begin_and_end, workers=2) as running:

        def ask(number: int) -> Any:
            return call(running.base_url, "GET", "/api/seckill/1")[1]

        with ThreadPoolExecutor(20) as callers:
            calls = list(callers.map(ask, range(40)))
    pids = {served["pid"] for served in calls}
    assert len(pids) == 2
    for pid in pids:
        own = sorted((served["begin"], served["end"]) for served in calls if served["pid"] == pid)
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(own))


def test_a_container_that_dies_is_replaced(servers: Servers) -> None:
    with stack_with(servers, die, workers=1) as running:
        before = call(running.base_url, "GET", "/api/seckill/1")[1]["pid"]
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            call(running.base_url, "GET", "/api/seckill/666")

        def answers_again() -> bool:
            try:
                return bool(call(running.base_url, "GET", "/api/seckill/1")[1]["pid"] != before)
            except (http.client.HTTPException, ConnectionError):
                return False

        assert wait_until(answers_again, DEADLINE_SECONDS)


def test_containers_end_with_a_gateway_that_is_killed(servers: Servers) -> None:
    with stack_with(servers, die, workers=2) as running:
        children = psutil.Process(running.gateway.pid).children()
        containers = [child for child in children if child.cmdline()[0] == sys.executable]
        assert len(containers) == 2
        running.gateway.send_signal(signal.SIGKILL)
        assert wait_until(lambda: not any(map(_lives, containers)), DEADLINE_SECONDS)


def test_nothing_of_a_stack_stays_behind(servers: Servers) -> None:
    with stack_with(servers, die, workers=2, reconcile=True) as running:
        assert len(running.programs) == 4
        processes = _with_children(*(program.pid for program in running.programs))
        assert len(processes) >= 10
        directory = running.log_directory
        queue_url = running.queues.landing_url
        assert queue_url in sqs_of(servers).list_queues()["QueueUrls"]
    assert wait_until(lambda: not any(map(_lives, processes)), DEADLINE_SECONDS)
    assert not directory.exists()
    assert queue_url not in sqs_of(servers).list_queues().get("QueueUrls", [])


def test_a_stack_whose_handler_cannot_be_loaded_says_so(servers: Servers) -> None:
    options = StackOptions(reserve_handler="no.such.handler", migrate=False)
    with pytest.raises(StackError, match=r"the local gateway ended at once: .*No module named 'no'"):
        running_stack(servers, options).__enter__()


def sqs_of(servers: Servers) -> "SQSClient":
    return boto3.client(
        "sqs",
        endpoint_url=servers.aws_endpoint_url,
        region_name=REGION,
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )


def _with_children(*pids: int) -> list[psutil.Process]:
    parents = [psutil.Process(pid) for pid in pids]
    return [*parents, *(child for parent in parents for child in parent.children(recursive=True))]


def _lives(process: psutil.Process) -> bool:
    try:
        # An orphan that was killed stays a zombie until init gets round to it.
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


# The program


class Program:
    """`seckill`, with its state file elsewhere: the checkout's own may belong to a stack that somebody uses."""

    CODE = (
        "import pathlib, sys; import local.state; local.state.STATE_FILE = pathlib.Path(sys.argv.pop(1));"
        "from cli.main import main; sys.exit(main())"
    )

    def __init__(self, directory: Path) -> None:
        self.state = directory / "stack.json"
        self.output = directory / "output"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", self.CODE, str(self.state), *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*arguments), cwd=CHECKOUT, capture_output=True, text=True, check=False)

    def start_local(self) -> subprocess.Popen[bytes]:
        with self.output.open("wb") as output:
            process = subprocess.Popen(self.command("local"), cwd=CHECKOUT, stdout=output, stderr=output)
        up = wait_until(lambda: process.poll() is not None or self.said("Ctrl-C"), DEADLINE_SECONDS)
        assert up, self.output.read_text()
        assert process.poll() is None, self.output.read_text()
        return process

    def said(self, text: str) -> bool:
        return text in self.output.read_text()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_the_program_runs_a_sale_and_ends_without_a_trace(program: Program) -> None:
    sku = str(fresh_sku_id())
    process = program.start_local()
    try:
        everything = _with_children(process.pid)
        opened = program.run("sale", "open", sku, "--total", "3")
        assert (opened.returncode, opened.stdout) == (0, f"SKU {sku} is on offer\n"), opened.stderr
        token = program.run("token", "alice").stdout.strip()
        base_url = json.loads(program.state.read_text())["base_url"]
        user = {"Authorization": f"Bearer {token}"}
        status, body = call(base_url, "POST", f"/api/seckill/{sku}", **user)
        assert status == 202
        assert wait_until(lambda: landed(base_url, body["preDeductKey"], **user), DEADLINE_SECONDS)
        shown = program.run("sale", "status", sku, "--json")
        accounts = json.loads(shown.stdout)
        assert (shown.returncode, accounts["orders"], accounts["remaining"]) == (0, 1, 2)
        reconciled = program.run("reconcile")
        audits = [line for line in reconciled.stdout.splitlines() if line.startswith("SKU ")]
        assert f"SKU {sku}, open, 3 units: ok" in audits
        # On somebody's own servers other tests' sales are looked at too, some of them broken on purpose.
        assert (reconciled.returncode == 0) is all(line.endswith(": ok") for line in audits)
        assert program.run("local").returncode == 2
    finally:
        process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE_SECONDS) == 0
    assert wait_until(lambda: not any(map(_lives, everything)), DEADLINE_SECONDS)
    assert not program.state.exists()


def test_nothing_survives_a_program_that_is_killed(program: Program) -> None:
    process = program.start_local()
    everything = _with_children(process.pid)
    assert len(everything) > 12
    process.kill()
    process.wait()
    assert wait_until(lambda: not any(map(_lives, everything)), DEADLINE_SECONDS)
    asked = program.run("sale", "list")
    assert (asked.returncode, asked.stdout) == (3, "")
    assert "killed" in asked.stderr


# Its commands, run in this process against the module's stack


class Commands:
    """Runs commands of the program against a stack."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def says(self, *arguments: str) -> str:
        """What it prints when all is well."""
        status, output, error = self.run(*arguments)
        assert status == 0, (arguments, output, error)
        return output

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, standard output and standard error."""
        status = main(arguments)
        return status, *self._capsys.readouterr()


@pytest.fixture
def commands(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Commands]:
    monkeypatch.setattr(local.state, "STATE_FILE", tmp_path / "stack.json")
    with claimed_state() as publish:
        publish(stack.state)
        yield Commands(capsys)


@pytest.mark.parametrize("line", ["sale list", "audit", "reconcile", "timeline k", "dead-letters", "token alice"])
def test_without_a_stack_a_command_says_how_to_start_one(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(local.state, "STATE_FILE", tmp_path / "stack.json")
    status, output, error = Commands(capsys).run(*line.split())
    assert (status, output) == (3, "")
    assert "seckill local" in error


def test_a_sale_is_opened_once_and_shown(commands: Commands) -> None:
    sku = str(fresh_sku_id())
    assert commands.says("sale", "open", sku, "--total", "3") == f"SKU {sku} is on offer\n"
    status, output, error = commands.run("sale", "open", sku, "--total", "4")
    assert (status, output, error.split(":")[0]) == (2, "", "ALREADY_OPEN")
    assert "database stock  3 of 3\n" in commands.says("sale", "status", sku)
    assert sku in commands.says("sale", "list")


def test_a_sale_is_changed_by_commands(commands: Commands, stack: Stack) -> None:
    sku = str(open_sale(stack, 2))
    topped_up = commands.says("sale", "top-up", sku, "3", "--operation-id", f"o-{sku}")
    assert topped_up == f"SKU {sku} has 3 more units by o-{sku}\n"
    audited = commands.says("audit", sku)
    assert audited.startswith(f"SKU {sku}, open, 5 units: ok\n  Redis     stock 5, ticket 0, epoch 2, holds 0\n")
    assert "I2: remaining 5 + ordered 0 = total: 5 = 5" in audited
    assert commands.says("sale", "close", sku) == f"SKU {sku} is closed\n"
    assert commands.says("sale", "reopen", sku) == f"SKU {sku} is open again\n"
    status, output, error = commands.run("sale", "archive", sku)
    assert (status, output, error.split(":")[0]) == (2, "", "NOT_ARCHIVABLE")


def test_an_audit_of_redis_raised_behind_our_back_names_the_drift_and_exits_with_1(
    commands: Commands, stack: Stack, servers: Servers
) -> None:
    sku = open_sale(stack, 10)
    redis_client(servers).hincrby(f"seckill:{{{sku}}}:sale", "stock", 7)
    status, output, _ = commands.run("audit", str(sku))
    assert (status, output.splitlines()[0]) == (1, f"SKU {sku}, open, 10 units: gap 7, drift 14, an equation is off")
    assert "\n! I3: stock 17" in output
    commands.says("sale", "rebuild", str(sku))
    assert commands.says("audit", str(sku))


def test_a_timeline_follows_a_reservation_through_books_and_logs(commands: Commands, stack: Stack) -> None:
    sku = str(open_sale(stack, 2))
    user = {"X-Debug-User": "alice"}
    key = call(stack.base_url, "POST", f"/api/seckill/{sku}", **user)[1]["preDeductKey"]
    assert wait_until(lambda: landed(stack.base_url, key, **user), DEADLINE_SECONDS)
    # The row says so before the function logs it.
    assert wait_until(lambda: key in stack.poller.log.read_text(), DEADLINE_SECONDS)
    told = json.loads(commands.says("timeline", key, "--json"))
    assert [told["events"][number]["source"] for number in (0, -1)] == ["ledger", "land_order"]
    assert {event["source"] for event in told["events"]} == {"ledger", "reserve", "order", "land_order"}
    assert f"SKU {sku}, 1 units" in commands.says("timeline", key)
    status, _, error = commands.run("timeline", "no-such-key")
    assert (status, error) == (2, "neither the books nor the logs know no-such-key\n")


def test_an_unknown_dead_letter_is_shown_and_resolved(commands: Commands, stack: Stack, servers: Servers) -> None:
    key = f"never-written-{fresh_sku_id()}"
    sqs_of(servers).send_message(
        QueueUrl=stack.queues.landing_dlq_url, MessageBody=json.dumps({"preDeductKey": key, "skuId": 1})
    )
    shown = json.loads(commands.says("dead-letters", "--json"))
    assert [(letter["preDeductKey"], letter["ledger"]) for letter in shown["letters"]] == [(key, None)]
    assert f"key     {key}\n  ledger  does not know it\n" in commands.says("dead-letters")
    status, _, error = commands.run("resolve", key, "--decision", "land", "--reason", "a test")
    assert (status, error.split(":")[0]) == (2, "NO_SUCH_RESERVATION")
    commands.says("resolve", key, "--decision", "discard", "--reason", "a test")
    assert commands.says("dead-letters") == "0 dead letters can be seen, 0 are being looked at\n"
    assert "reason=a test" in commands.says("timeline", key)
