"""A proxy on loopback that answers for the hosts behind it, with certificates of a test's own authority."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Intercepted", "Interceptor", "intercepting"]


@dataclass(frozen=True, kw_only=True)
class Intercepted:
    """What was asked of a host."""

    host: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(kw_only=True)
class Interceptor:
    """Answers by a rule, and keeps what it was asked."""

    rule: Callable[[Intercepted], Any]
    """Returns the JSON of an answer; ``None`` is a 404."""
    tls: ssl.SSLContext
    url: str = ""
    asked: list[Intercepted] = field(default_factory=list)
    connected: list[str] = field(default_factory=list)
    """The hosts that it was told to connect to, with their ports."""
    open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        try:
            opening = await reader.readuntil(b"\r\n\r\n")
            method, target = opening.decode().split()[:2]
            if method == "CONNECT":
                self.connected.append(target)
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                await writer.drain()
                await writer.start_tls(self.tls)
            host = target.partition(":")[0]
            while True:
                asked = await _read(reader, host)
                self.asked.append(asked)
                answer = self.rule(asked)
                sent = json.dumps(answer).encode()
                status = "404 X" if answer is None else "200 OK"
                head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(sent)}"
                writer.write(f"{head}\r\n\r\n".encode() + sent)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            self.open.discard(writer)
            writer.transport.abort()  # a farewell by TLS would outlast the test


async def _read(reader: asyncio.StreamReader, host: str) -> Intercepted:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Intercepted(host=host, target=first.split()[1], headers=headers, body=body)


@asynccontextmanager
async def intercepting(rule: Callable[[Intercepted], Any], tls: ssl.SSLContext) -> AsyncIterator[Interceptor]:
    """Serve on loopback."""
    proxy = Interceptor(rule=rule, tls=tls)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        for writer in [*proxy.open]:
            writer.transport.abort()
