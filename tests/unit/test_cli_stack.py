"""`--stack NAME`: the same commands, asked of a deployed stack: moto's CloudFormation, and a Lambda that records."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest

from cli import answers, timeline
from cli.exit_code import ExitCode
from cli.main import main
from local.servers import AwsServer
from tests.conftest import FAKE_AWS
from tests.proxy import refused_port

STACK, OTHER = "seckill-dev", "seckill-dev-data"
OUTPUTS = {"SaleAdminFunction": "SaleAdmin-1A2B", "ReconcileFunction": "Reconcile-3C4D", "Endpoint": "https://x"}
ACCOUNTS = {"queueDepth": {"waiting": 0, "inFlight": 0}, "deadLetters": {"waiting": 0, "inFlight": 0}}
WORK = ("staleFound", "landed", "rolledBack", "holdsReleased", "holdsSettled", "deadLettersRescued")
PASS: dict[str, Any] = dict.fromkeys((*WORK, "deadLettersUnknown"), 0) | {
    "rebuilt": [],
    "closed": [],
    "failed": [],
    "audits": [],
}


class FakeLambda:
    """Lambda's endpoint: records each Invoke as (function, event) and gives the answer that the test has set."""

    def __init__(self) -> None:
        self.invoked: list[tuple[str, dict[str, Any]]] = []
        self.answer: bytes | None = json.dumps({"ok": True}).encode()
        """None: the connection ends without one."""
        self.function_error = ""
        self.status = 200

    def answers(self, answer: Any) -> None:
        self.answer = json.dumps(answer).encode()

    def take(self, request: BaseHTTPRequestHandler) -> None:
        event = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        self.invoked.append((request.path.split("/")[3], event))
        if self.answer is None:
            request.close_connection = True
            return
        request.send_response(self.status)
        request.send_header("Content-Length", str(len(self.answer)))
        if self.function_error:
            request.send_header("X-Amz-Function-Error", self.function_error)
        request.end_headers()
        request.wfile.write(self.answer)


@pytest.fixture(scope="module")
def cloudformation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of moto's CloudFormation, with a stack that has the functions and one that has not."""
    with AwsServer(tmp_path_factory.mktemp("aws")) as server:
        client = boto3.client(
            "cloudformation",
            endpoint_url=server.url,
            region_name=FAKE_AWS["AWS_REGION"],
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        for stack, outputs in ((STACK, OUTPUTS), (OTHER, {})):
            template = {
                "Resources": {"Something": {"Type": "AWS::SQS::Queue"}},
                "Outputs": {name: {"Value": value} for name, value in outputs.items()},
            }
            client.create_stack(StackName=stack, TemplateBody=json.dumps(template))
        yield server.url


@pytest.fixture
def fake_lambda() -> Iterator[tuple[FakeLambda, str]]:
    fake = FakeLambda()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            fake.take(self)

        def log_message(self, format: str, *args: object) -> None:
            """Not into the test's output."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield fake, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def deployed(
    cloudformation: str, fake_lambda: tuple[FakeLambda, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> FakeLambda:
    """An AWS account that has the stack; nothing of the local stack may be asked."""
    fake, url = fake_lambda
    for name, value in FAKE_AWS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDFORMATION", cloudformation)
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", url)
    for module in (answers, timeline):
        monkeypatch.setattr(module, "read_state", lambda: pytest.fail("the local stack was asked"))
    return fake


@pytest.mark.parametrize(
    ("line", "function", "event"),
    [
        ("sale close 7", "SaleAdmin-1A2B", {"action": "close_sale", "skuId": 7}),
        (
            "sale top-up 7 20 --operation-id o",
            "SaleAdmin-1A2B",
            {"action": "top_up", "skuId": 7, "units": 20, "operationId": "o"},
        ),
        ("audit", "SaleAdmin-1A2B", {"action": "audit"}),
        ("dead-letters", "SaleAdmin-1A2B", {"action": "dead_letters"}),
        (
            "resolve k --decision roll-back --reason lost",
            "SaleAdmin-1A2B",
            {"action": "resolve", "preDeductKey": "k", "decision": "roll_back", "reason": "lost"},
        ),
        ("timeline k", "SaleAdmin-1A2B", {"action": "timeline", "preDeductKey": "k"}),
        ("reconcile", "Reconcile-3C4D", {}),
    ],
)
@pytest.mark.parametrize("where", ["in front", "behind"])
def test_every_command_that_asks_asks_the_stacks_function(
    line: str, function: str, event: dict[str, Any], where: str, deployed: FakeLambda
) -> None:
    deployed.answers({"ok": False, "error": "UNAVAILABLE", "detail": "none"} if event else PASS | ACCOUNTS)
    words = ["--stack", STACK, *line.split()] if where == "in front" else [*line.split(), "--stack", STACK]
    assert main(words) == (ExitCode.UNREACHABLE if event else ExitCode.ALL_WELL)
    assert deployed.invoked == [(function, event)]


def test_what_the_function_answers_is_shown(deployed: FakeLambda, capsys: pytest.CaptureFixture[str]) -> None:
    deployed.answers({"ok": True, "skuId": 7, "loaded": True})
    assert main(["--stack", STACK, "sale", "open", "7", "--total", "3"]) == ExitCode.ALL_WELL
    assert capsys.readouterr().out == "SKU 7 is on offer\n"


def test_a_refusal_is_told_and_is_the_exit_status(deployed: FakeLambda, capsys: pytest.CaptureFixture[str]) -> None:
    deployed.answers({"ok": False, "error": "NO_SUCH_SALE", "detail": "there is no sale of SKU 7"})
    assert main(["sale", "status", "7", "--stack", STACK]) == ExitCode.WRONG_USE
    assert capsys.readouterr().err == "NO_SUCH_SALE: there is no sale of SKU 7\n"


def test_a_timeline_has_the_books_part_and_says_where_the_logs_are(
    deployed: FakeLambda, capsys: pytest.CaptureFixture[str]
) -> None:
    order = {"orderId": 12, "skuId": 7, "quantity": 1, "createdAt": "2030-01-01T08:00:00.500+00:00"}
    deployed.answers({"ok": True, "preDeductKey": "k", "ledger": None, "order": order, "notice": None})
    assert main(["timeline", "k", "--json", "--stack", STACK]) == ExitCode.ALL_WELL
    shown = capsys.readouterr()
    assert [event["what"] for event in json.loads(shown.out)["events"]] == ["order 12 of 1 units"]
    assert f"{STACK}/One reservation's timeline" in shown.err


def test_a_key_that_the_books_do_not_know_is_wrong_use(
    deployed: FakeLambda, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed.answers({"ok": True, "preDeductKey": "k", "ledger": None, "order": None, "notice": None})
    assert main(["timeline", "k", "--stack", STACK]) == ExitCode.WRONG_USE
    assert "the books do not know k" in capsys.readouterr().err


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on standard error, and nothing beside it."""
    shown = capsys.readouterr()
    assert shown.out == ""
    [line] = shown.err.splitlines()
    return line


def test_a_function_that_fails_is_one_line_and_exit_3(deployed: FakeLambda, capsys: pytest.CaptureFixture[str]) -> None:
    deployed.function_error = "Unhandled"
    deployed.answers({"errorType": "ValueError", "errorMessage": "wrong environment:\nREDIS_URL", "stackTrace": ["…"]})
    assert main(["sale", "list", "--stack", STACK]) == ExitCode.UNREACHABLE
    assert one_line(capsys) == f"{STACK}: SaleAdmin-1A2B failed: wrong environment: REDIS_URL"


def test_an_invocation_that_brings_no_answer_is_not_repeated(
    deployed: FakeLambda, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed.answer = None
    assert main(["sale", "close", "7", "--stack", STACK]) == ExitCode.UNREACHABLE
    assert one_line(capsys).startswith(f"{STACK}: ")
    assert len(deployed.invoked) == 1


@pytest.mark.parametrize(("status", "code"), [(403, "AccessDeniedException"), (429, "TooManyRequestsException")])
def test_a_refused_invocation_is_one_line_and_exit_3(
    status: int, code: str, deployed: FakeLambda, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed.status = status
    deployed.answers({"__type": code, "message": "no"})
    assert main(["audit", "--stack", STACK]) == ExitCode.UNREACHABLE
    assert one_line(capsys).startswith(f"{STACK}: An error occurred")
    assert len(deployed.invoked) == 1


def test_an_answer_that_is_not_json_is_one_line_and_exit_3(
    deployed: FakeLambda, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed.answer = b"<html>"
    assert main(["audit", "--stack", STACK]) == ExitCode.UNREACHABLE
    assert one_line(capsys) == f"{STACK}: SaleAdmin-1A2B answered what is not JSON"


@pytest.mark.parametrize("service", ["CLOUDFORMATION", "LAMBDA"])
def test_an_aws_that_cannot_be_reached_is_one_line_and_exit_3(
    service: str, deployed: FakeLambda, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", f"http://127.0.0.1:{refused_port()}")
    assert main(["audit", "--stack", STACK]) == ExitCode.UNREACHABLE
    assert "Could not connect" in one_line(capsys)
    assert deployed.invoked == []


@pytest.mark.parametrize(("stack", "says"), [("nowhere", "does not exist"), (OTHER, "no output SaleAdminFunction")])
def test_a_stack_without_the_functions_is_one_line_and_exit_3(
    stack: str, says: str, deployed: FakeLambda, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "--stack", stack]) == ExitCode.UNREACHABLE
    assert says in one_line(capsys)
    assert deployed.invoked == []


@pytest.mark.parametrize("line", ["local", "token alice", "drill"])
def test_what_is_about_this_machine_takes_no_stack(
    line: str, deployed: FakeLambda, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(["--stack", STACK, *line.split()])
    assert exit_info.value.code == ExitCode.WRONG_USE
    assert "--stack" in capsys.readouterr().err
