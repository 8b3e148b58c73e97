"""The load side: what a shopper does with the answers, what is recorded, and how the load is bounded."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from drill import storm as storm_module
from drill.answers import Answer, read_answers
from drill.shoppers import Shopper
from drill.storm import Connection, Storm

Reply = tuple[int, bytes]
SOLD_OUT: Reply = (409, b'{"code": "SOLD_OUT"}')
RESERVED: Reply = (202, b'{"preDeductKey": "k", "status": "RESERVED"}')


@contextmanager
def front(reply: Callable[[str], Reply | None], idle_seconds: float = 5.0) -> Iterator[str]:
    """A front that answers as `reply(user)` says; None closes the connection without an answer."""

    class Front(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        timeout = idle_seconds

        def do_POST(self) -> None:
            answer = reply(self.headers["X-Debug-User"])
            if answer is None:
                self.close_connection = True
                return
            self.send_response(answer[0])
            self.send_header("Content-Length", str(len(answer[1])))
            self.end_headers()
            self.wfile.write(answer[1])

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Front)
    server.daemon_threads = True
    server.block_on_close = False
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def shopper(double_clicks: bool = False, first_click_at: float = 0.0) -> Shopper:
    return Shopper("shopper", 0.0, first_click_at, (0.02, 0.02), double_clicks)


def storm(base_url: str, log_path: Path, *shoppers: Shopper, seconds: float = 0.6) -> list[Answer]:
    return Storm(
        base_url=base_url,
        sku_id=1001,
        shoppers=shoppers,
        ramp_seconds=0.1,
        storm_seconds=seconds,
        log_path=log_path,
        on_open=lambda _: None,
        on_progress=lambda _: None,
    ).run()


def test_a_shopper_told_sold_out_tries_three_times(tmp_path: Path) -> None:
    with front(lambda _: SOLD_OUT) as url:
        answers = storm(url, tmp_path / "log", shopper())
    assert [(answer.attempt, answer.status, answer.code) for answer in answers] == [
        (attempt, 409, "SOLD_OUT") for attempt in (1, 2, 3)
    ]


def test_a_shopper_told_reserved_stops_and_the_key_is_recorded(tmp_path: Path) -> None:
    with front(lambda _: RESERVED) as url:
        answers = storm(url, tmp_path / "log", shopper())
    assert [(answer.status, answer.code, answer.key) for answer in answers] == [(202, "RESERVED", "k")]
    assert read_answers(tmp_path / "log") == answers


def test_a_double_click_is_two_requests_at_the_same_moment(tmp_path: Path) -> None:
    both_under_way = threading.Barrier(2, timeout=5)  # breaks, and fails the test, if they come one after the other

    def reply(_: str) -> Reply:
        both_under_way.wait()
        return RESERVED

    with front(reply) as url:
        assert len(storm(url, tmp_path / "log", shopper(double_clicks=True))) == 2


def test_a_closed_connection_is_recorded_and_tried_again_on_a_new_one(tmp_path: Path) -> None:
    replies = iter([None, RESERVED])
    with front(lambda _: next(replies)) as url:
        answers = storm(url, tmp_path / "log", shopper())
    assert [(answer.status, answer.code) for answer in answers] == [(0, "NO_CONNECTION"), (202, "RESERVED")]


def test_a_connection_that_the_front_closed_while_idle_costs_no_try(tmp_path: Path) -> None:
    with front(lambda _: RESERVED, idle_seconds=0.1) as url:
        answers = storm(url, tmp_path / "log", shopper(first_click_at=0.4))
    assert [(answer.attempt, answer.status) for answer in answers] == [(1, 202)]


def test_an_answer_that_does_not_come_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storm_module, "ANSWER_TIMEOUT_SECONDS", 0.1)
    ended = threading.Event()
    with front(lambda _: RESERVED if ended.wait(2) else None) as url:
        answers = storm(url, tmp_path / "log", shopper())
        ended.set()
    assert {(answer.status, answer.code) for answer in answers} == {(0, "NO_ANSWER")}


def test_nobody_clicks_after_the_storm_s_end(tmp_path: Path) -> None:
    with front(lambda _: SOLD_OUT) as url:
        began = time.monotonic()
        assert storm(url, tmp_path / "log", shopper(first_click_at=0.5), seconds=0.2) == []
        assert time.monotonic() - began < 2


def test_a_front_that_is_not_there_is_recorded_too(tmp_path: Path) -> None:
    with front(lambda _: SOLD_OUT) as url:
        pass
    answers = storm(url, tmp_path / "log", shopper())
    assert {(answer.status, answer.code) for answer in answers} == {(0, "NO_CONNECTION")}


@pytest.mark.parametrize("host", ["10.0.0.1", "93.184.216.34", "192.168.1.1"])
def test_a_storm_refuses_any_machine_but_this_one(host: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="this machine only"):
        storm(f"http://{host}:80", tmp_path / "log", shopper())


def test_an_answer_that_comes_in_pieces_is_one_answer() -> None:
    class Transport(asyncio.Transport):
        def write(self, data: Any) -> None:
            """Nowhere."""

    async def exchange() -> tuple[int, bytes]:
        connection = Connection()
        connection.connection_made(Transport())
        answer = asyncio.ensure_future(connection.exchange(b"POST"))
        await asyncio.sleep(0)
        for piece in (b"HTTP/1.1 409 Con", b"flict\r\ncontent-length: 4\r", b"\n\r\nab", b"cd"):
            assert not answer.done()
            connection.data_received(piece)
        return await answer

    assert asyncio.run(exchange()) == (409, b"abcd")
