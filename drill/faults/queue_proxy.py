"""Faults A and B, and the timing of C: an HTTP proxy between the reserve function and the SQS endpoint.

Everything passes through unchanged, except the first SendMessage of a reservation that the plan names. A lost send is
never forwarded and never answered; one that is delivered all the same is forwarded and never answered: the sender sees
the same time-out and cannot tell which it was. A late one is answered at once, as a queue does, and delivered when the
director says so. A reservation's later sends (the product sends again when its shopper asks again) are left alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

from drill.faults.plan import FaultPlan, Hit

SEND_MESSAGE = "AmazonSQS.SendMessage"
# An unanswered sender is let go after this long; it gives up by itself long before (it waits 1 s).
SILENCE_SECONDS = 5.0
UPSTREAM_TIMEOUT_SECONDS = 10.0

Reply = tuple[int, list[tuple[str, str]], bytes]  # status, headers, body


@dataclass(frozen=True)
class HitSend:
    """One send that was hit: the reservation's key and the monotonic time."""

    hit: Hit
    key: str
    at: float


@dataclass
class HeldMessage:
    """A message the sender believes sent and the queue has not seen yet."""

    hit: Hit
    key: str
    sent_at: float
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class QueueProxy:
    """`with QueueProxy(...) as proxy:` then point AWS_ENDPOINT_URL at `proxy.url`."""

    def __init__(self, endpoint_url: str, plan: FaultPlan, units: int) -> None:
        address = urlsplit(endpoint_url)
        self._upstream = (address.hostname or "127.0.0.1", address.port or 80)
        self._plan = plan
        self._units = units
        self._lock = threading.Lock()
        self._keys: set[str] = set()
        self._under_way = 0
        self._held: list[HeldMessage] = []
        self._stopping = threading.Event()
        self.hit_sends: list[HitSend] = []
        # When the last unit's message was sent (monotonic seconds); None before. Whatever is in the queue then is all.
        self.all_sent_at: float | None = None
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_ProxyHandler,), {"owner": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, name="queue proxy", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def held(self) -> list[HeldMessage]:
        with self._lock:
            return list(self._held)

    def deliver(self, message: HeldMessage) -> None:
        """Let a held message through to the queue, once."""
        with self._lock:
            self._held.remove(message)
        self.forward("/", message.headers, message.body)

    def forward(self, path: str, headers: dict[str, str], body: bytes) -> Reply:
        connection = http.client.HTTPConnection(*self._upstream, timeout=UPSTREAM_TIMEOUT_SECONDS)
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            return (answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()

    def hit(self, key: str | None) -> Hit | None:
        """Does the plan name the send of this reservation? Only its first one counts."""
        with self._lock:
            if key is None or key in self._keys:
                return None
            hit = self._plan.hits.get(len(self._keys))
            self._keys.add(key)
            if hit is not None:
                self.hit_sends.append(HitSend(hit, key, time.monotonic()))
            return hit

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """Around a request on its way to the queue; notices when the last unit's message has gone through."""
        with self._lock:
            self._under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1
                if self.all_sent_at is None and self._under_way == 0 and len(self._keys) >= self._units:
                    self.all_sent_at = time.monotonic()

    def hold(self, message: HeldMessage) -> bytes:
        """Keep the message and make the answer that SQS would give."""
        with self._lock:
            self._held.append(message)
        text = json.loads(message.body)["MessageBody"].encode()
        digest = hashlib.md5(text, usedforsecurity=False).hexdigest()
        return json.dumps({"MessageId": str(uuid.uuid4()), "MD5OfMessageBody": digest}).encode()

    def stay_silent(self) -> None:
        self._stopping.wait(SILENCE_SECONDS)


def reservation_key(target: str | None, body: bytes) -> str | None:
    """The reservation that a request sends a landing message for; None for every other request."""
    if target != SEND_MESSAGE:
        return None
    try:
        key = json.loads(json.loads(body)["MessageBody"])["preDeductKey"]
    except (ValueError, KeyError, TypeError):
        return None
    return key if isinstance(key, str) else None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a silent sender must not delay the end of the drill
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: a sender that gave up is no event, and one whose queue is gone sees a closed connection."""


class _ProxyHandler(BaseHTTPRequestHandler):
    owner: QueueProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60  # an idle keep-alive connection, in seconds: longer than a drill pauses

    def do_POST(self) -> None:
        owner = self.owner
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        with owner.passing():
            key = reservation_key(self.headers.get("X-Amz-Target"), body)
            answer: Reply | None
            match owner.hit(key):
                case Hit.LOST:
                    answer = None
                case Hit.DELIVERED:
                    owner.forward(self.path, headers, body)
                    answer = None
                case (Hit.LATE | Hit.HELD_ROW) as hit:
                    message = HeldMessage(hit, key or "", time.monotonic(), headers, body)
                    answer = (HTTPStatus.OK, [("Content-Type", "application/x-amz-json-1.0")], owner.hold(message))
                case _:
                    answer = owner.forward(self.path, headers, body)
        if answer is None:
            self._never_answer()
        else:
            self._answer(*answer)

    def _never_answer(self) -> None:
        self.owner.stay_silent()
        self.close_connection = True

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        hop_by_hop = {"connection", "transfer-encoding", "content-length", "date", "server"}
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in hop_by_hop:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the drill's terminal is for the drill."""
