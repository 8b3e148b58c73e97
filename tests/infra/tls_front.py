"""TLS in front of a server that was built without it: what reaches the port must speak TLS."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def tls_front(target_port: int, certificate: Path, key: Path) -> Iterator[int]:
    """A port of 127.0.0.1 whose TLS connections are handed on to `target_port` in plain."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(
            lambda reader, writer: _hand_on(reader, writer, target_port), "127.0.0.1", 0, ssl=context
        )

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(timeout=10)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=10)
        loop.close()


async def _hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()
