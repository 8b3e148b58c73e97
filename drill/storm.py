"""The load side: every shopper on a connection of his own, all open at once, every answer recorded.

Plain asyncio streams of bytes, no HTTP library: the load shares two cores with the servers it measures, so it must cost
little. It is bounded in count (users x tries, doubled for double-clickers) and in time (nobody clicks after the storm's
end, nobody waits longer than ANSWER_TIMEOUT_SECONDS), and it refuses any address but this machine's.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from drill.answers import NO_ANSWER, NO_CONNECTION, Answer, AnswerLog
from drill.shoppers import TRIES, Shopper

# Longer than any answer of the product (3 s) plus its turn in the queue before a handful of local containers.
ANSWER_TIMEOUT_SECONDS = 10.0
CONNECT_TIMEOUT_SECONDS = 10.0
PROGRESS_EVERY_SECONDS = 0.25


class Connection(asyncio.Protocol):
    """One keep-alive HTTP/1.1 connection that has at most one request under way."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # what a TCP connection gives

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head_end = self._buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = bytes(self._buffer[:head_end])
        body_start, body_length = head_end + 4, _content_length(head)
        if len(self._buffer) < body_start + body_length:
            return
        body = bytes(self._buffer[body_start : body_start + body_length])
        self._buffer.clear()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((int(head[9:12]), body))
        if b"\r\nconnection: close" in head.lower():
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("closed before the answer came"))

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        if self._transport is None:
            raise ConnectionResetError("not connected")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


@dataclass
class Progress:
    """What a watcher may print while the storm runs."""

    phase: str = "ramp"  # ramp | storm | done
    seconds: float = 0.0  # since the phase began
    connections: int = 0  # open now
    answers: int = 0
    promised: int = 0  # different keys
    sold_out: int = 0
    unanswered: int = 0


@dataclass
class Storm:
    """One storm against `base_url`. `opened_at` is the monotonic time at which the sale opened, set when it does."""

    base_url: str
    sku_id: int
    shoppers: Sequence[Shopper]
    ramp_seconds: float
    storm_seconds: float
    log_path: Path
    on_open: Callable[[float], None]
    on_progress: Callable[[Progress], None]
    answers: list[Answer] = field(default_factory=list)
    opened_at: float = 0.0
    most_connections: int = 0  # open at the same moment
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        address = urlsplit(self.base_url)
        host = address.hostname or ""
        if not ipaddress.ip_address(host).is_loopback:
            raise ValueError(f"a storm goes to this machine only, not to {host}")
        self._host, self._port = host, address.port or 80
        self._promised: set[str] = set()
        self._connections: list[Connection] = []
        self._log = AnswerLog(self.log_path)

    def run(self) -> list[Answer]:
        """Every answer, in the order in which they came."""
        try:
            asyncio.run(self._run())
        finally:
            self._log.close()
        return self.answers

    async def _run(self) -> None:
        self._ramp_began_at = time.monotonic()
        self._opening = asyncio.Event()
        self._closing = asyncio.Event()
        watcher = asyncio.create_task(self._watch())
        shops = [asyncio.create_task(self._shop(shopper)) for shopper in self.shoppers]
        await asyncio.sleep(self.ramp_seconds)
        self.opened_at = time.monotonic()
        self.on_open(self.opened_at)
        self.progress.phase = "storm"
        self._opening.set()
        # Shoppers keep their connection until the storm is over, so that all stay open at once.
        await asyncio.sleep(self.storm_seconds)
        self._closing.set()
        await asyncio.gather(*shops)
        self.progress.phase = "done"
        watcher.cancel()
        self._tell()

    async def _watch(self) -> None:
        while True:  # cancelled by _run, which is bounded
            self._tell()
            self._log.flush()
            await asyncio.sleep(PROGRESS_EVERY_SECONDS)

    def _tell(self) -> None:
        began_at = self._ramp_began_at if self.progress.phase == "ramp" else self.opened_at
        self.progress.seconds = time.monotonic() - began_at
        if not self._closing.is_set():
            self.progress.connections = sum(connection.is_open for connection in self._connections)
            self.most_connections = max(self.most_connections, self.progress.connections)
        self.on_progress(self.progress)

    async def _shop(self, shopper: Shopper) -> None:
        await asyncio.sleep(max(0.0, self._ramp_began_at + shopper.arrives_at - time.monotonic()))
        connection = await self._connect()
        second = await self._connect() if shopper.double_clicks else None
        await self._opening.wait()
        await self._sleep_until(self.opened_at + shopper.first_click_at)
        for attempt in range(1, TRIES + 1):
            if self._closing.is_set():
                break
            # A front may close a connection that was idle for long; like a browser, the shopper opens another one.
            connection = connection if connection.is_open else await self._connect()
            second = second if second is None or second.is_open else await self._connect()
            # A double click is two requests at the same moment, so the second has a connection of its own.
            clicked = [connection] if second is None else [connection, second]
            told = await asyncio.gather(*(self._click(each, shopper.user, attempt) for each in clicked))
            if any(told) or attempt == TRIES:
                break
            await self._sleep_until(time.monotonic() + shopper.retry_gaps[attempt - 1])
        await self._closing.wait()
        for each in (connection, second):
            if each is not None:
                each.close()

    async def _sleep_until(self, moment: float) -> None:
        await asyncio.sleep(max(0.0, moment - time.monotonic()))

    async def _connect(self) -> Connection:
        """A connection that may be closed already: then its next click is recorded as NO_CONNECTION."""
        connection = Connection()
        self._connections.append(connection)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                await loop.create_connection(lambda: connection, self._host, self._port)
        except (OSError, TimeoutError):
            connection.close()
        return connection

    async def _click(self, connection: Connection, user: str, attempt: int) -> bool:
        """One request; True if the shopper was told "reserved" and need not try again."""
        request = (
            f"POST /api/seckill/{self.sku_id} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            f"X-Debug-User: {user}\r\nContent-Length: 0\r\n\r\n"
        ).encode()
        started = time.monotonic()
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                status, body = await connection.exchange(request)
            code, key = _read_body(body)
        except TimeoutError:
            connection.close()  # a late answer on it could be taken for the next one's
            status, code, key = 0, NO_ANSWER, None
        except OSError:
            status, code, key = 0, NO_CONNECTION, None
        answer = Answer(
            user=user,
            attempt=attempt,
            status=status,
            code=code,
            key=key,
            start=round(started - self.opened_at, 6),
            latency=round(time.monotonic() - started, 6),
        )
        self._record(answer)
        return answer.promised

    def _record(self, answer: Answer) -> None:
        self.answers.append(answer)
        self._log.write(answer)
        self.progress.answers += 1
        if answer.promised and answer.key is not None:
            self._promised.add(answer.key)
        self.progress.promised = len(self._promised)
        self.progress.sold_out += answer.sold_out
        self.progress.unanswered += answer.status == 0


def _read_body(body: bytes) -> tuple[str, str | None]:
    """The code of an answer (`status` of a success, `code` of a problem) and the key it names."""
    try:
        fields = json.loads(body)
    except ValueError:
        return "NOT_JSON", None
    if not isinstance(fields, dict):
        return "NOT_JSON", None
    key = fields.get("preDeductKey")
    code = fields.get("code") or fields.get("status") or ""
    return str(code), key if isinstance(key, str) else None
