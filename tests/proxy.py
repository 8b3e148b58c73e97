"""A TCP proxy on 127.0.0.1: what a network, a fail-over or a dying server does between a function and a store."""

import contextlib
import re
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Self
from urllib.parse import urlsplit

from tests.certificate import Certificate

# One read takes a whole request of these tests; a pattern must not be cut in two.
READ_BYTES = 1 << 20
# A thread ends as soon as its sockets are closed; one that does not is a bug of this file.
THREAD_END_SECONDS = 10
# More than the kernel lets wait in front of a listener with a backlog of 0.
FILLERS = 8


class Fate(Enum):
    """What becomes of a request that was waited for."""

    PASS = "it goes on"
    LOSE_REPLY = "it goes on, its reply is lost with the connection"
    CUT = "the connection ends before it goes on"


@dataclass
class _Trap:
    """Set for one request, after `skip` others like it; `first` is run before the request goes on."""

    request: re.Pattern[bytes]
    fate: Fate
    skip: int = 0
    first: Callable[[], object] = lambda: None
    reply_delay_seconds: float = 0.0

    def springs_at(self, request: bytes) -> bool:
        if not self.request.search(request):
            return False
        self.skip -= 1
        return self.skip < 0


@dataclass(eq=False)
class _Link:
    """One connection: the function's side and the store's. Closed as a whole."""

    near: socket.socket
    far: socket.socket
    lose_reply: bool = False
    reply_delay_seconds: float = 0.0
    closed: bool = field(default=False)

    def close(self) -> None:
        self.closed = True
        for end in (self.near, self.far):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Proxy:
    """`with Proxy(store_url) as proxy:` then connect to `proxy.url`.

    It forwards everything until told otherwise. A request is awaited by a regular expression over its bytes. `upstream`
    may be changed: new connections go there, as after a fail-over behind a name.
    """

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self.upstream = (self._url.hostname or "127.0.0.1", self._url.port or 0)
        self.silent = False  # accepts and takes requests, but no reply passes
        self.reply_delay_seconds = 0.0  # each reply takes that much longer
        self.sprung = 0  # how many of the awaited requests have come
        self.connections = 0
        self._requests: list[bytes] = []
        self._traps: list[_Trap] = []
        self._links: list[_Link] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        """The store's URL with this proxy in its place."""
        return through(self._url.geturl(), self.port)

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept(), which close() alone does not
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(THREAD_END_SECONDS)
            assert not thread.is_alive(), f"{thread.name} hangs"

    # -- what shall happen ------------------------------------------------------------------------------------------

    def lose_reply_to(self, request: bytes, skip: int = 0, first: Callable[[], object] = lambda: None) -> None:
        """The next such request is carried out, and its reply lost with the connection."""
        self._set_trap(_Trap(re.compile(request), Fate.LOSE_REPLY, skip, first))

    def cut_at(self, request: bytes, skip: int = 0) -> None:
        """The connection ends before the next such request goes on."""
        self._set_trap(_Trap(re.compile(request), Fate.CUT, skip))

    def before(self, request: bytes, first: Callable[[], object]) -> None:
        """Something happens just before the next such request goes on."""
        self._set_trap(_Trap(re.compile(request), Fate.PASS, first=first))

    def delay_reply_to(self, request: bytes, seconds: float) -> None:
        """The reply to the next such request is late."""
        self._set_trap(_Trap(re.compile(request), Fate.PASS, reply_delay_seconds=seconds))

    def cut(self) -> None:
        """Every connection ends."""
        with self._lock:
            links, self._links = self._links, []
        for link in links:
            link.close()

    def requests_with(self, request: bytes) -> int:
        """How many such requests have come."""
        with self._lock:
            return sum(1 for seen in self._requests if re.search(request, seen))

    # -- how it happens ---------------------------------------------------------------------------------------------

    def _set_trap(self, trap: _Trap) -> None:
        with self._lock:
            self._traps.append(trap)

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=f"proxy {self.port} {work}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # the end
            self._connect(near)

    def _connect(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(self.upstream, timeout=THREAD_END_SECONDS)
        except OSError:
            near.close()  # nobody there
            return
        far.settimeout(None)
        link = _Link(near, far)
        with self._lock:
            self._links.append(link)
            self.connections += 1
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._start(lambda: self._carry(link, near, self._request))
        self._start(lambda: self._carry(link, far, self._reply))

    def _carry(self, link: _Link, source: socket.socket, hand_on: Callable[[_Link, bytes], None]) -> None:
        with contextlib.suppress(OSError):
            while not link.closed and (data := source.recv(READ_BYTES)):
                hand_on(link, data)
        link.close()

    def _request(self, link: _Link, data: bytes) -> None:
        with self._lock:
            self._requests.append(data)
            trap = next((trap for trap in self._traps if trap.springs_at(data)), None)
            if trap:
                self._traps.remove(trap)
                self.sprung += 1
        if trap:
            trap.first()
            link.lose_reply = trap.fate is Fate.LOSE_REPLY
            link.reply_delay_seconds = trap.reply_delay_seconds
            if trap.fate is Fate.CUT:
                return link.close()
        link.far.sendall(data)

    def _reply(self, link: _Link, data: bytes) -> None:
        if link.lose_reply:
            return link.close()
        self._stopping.wait(self.reply_delay_seconds + link.reply_delay_seconds)
        link.reply_delay_seconds = 0.0
        if not self.silent:
            link.near.sendall(data)


def through(url: str, port: int) -> str:
    """The same URL at a port of 127.0.0.1."""
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return parts._replace(netloc=f"{login}@127.0.0.1:{port}" if login else f"127.0.0.1:{port}").geturl()


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """A port that accepts connections (the kernel does) and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener.getsockname()[1]


@contextlib.contextmanager
def full_port() -> Iterator[int]:
    """A port at which connecting itself hangs: its queue of connections is full, and nobody takes one out."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as fillers:
        for _ in range(FILLERS):
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def refused_port() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def tls_front(port: int, upstream_port: int, certificate: Certificate) -> Iterator[None]:
    """TLS at `port` of 127.0.0.1 in front of a server that speaks none, as a managed Redis has it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    open_sockets: list[socket.socket] = []

    def serve(raw: socket.socket) -> None:
        with contextlib.suppress(OSError), raw, socket.create_connection(("127.0.0.1", upstream_port)) as far:
            open_sockets.append(far)
            with context.wrap_socket(raw, server_side=True) as near:
                open_sockets.append(near)
                shuttle(near, far)

    def accept() -> None:
        with contextlib.suppress(OSError):  # the end
            while True:
                raw, _ = listener.accept()
                threading.Thread(target=serve, args=(raw,), daemon=True).start()

    with socket.create_server(("127.0.0.1", port)) as listener:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield
        for each in (listener, *open_sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
    accepting.join(THREAD_END_SECONDS)
    assert not accepting.is_alive()


def shuttle(near: ssl.SSLSocket, far: socket.socket) -> None:
    """Both ways in one thread, since a TLS connection must not be read and written at once. Ends with either side."""
    while True:
        readable, _, _ = select.select([near, far], [], [], 0 if near.pending() else None)
        if far in readable:
            if not (data := far.recv(READ_BYTES)):
                return
            near.sendall(data)
        if near in readable or near.pending():
            if not (data := near.recv(READ_BYTES)):
                return
            far.sendall(data)
