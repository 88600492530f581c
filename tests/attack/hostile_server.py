"""A server that answers every request with the bytes that an attack has it send, as slowly as it likes."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from tests.attack.serving import QuietHandler, serving

__all__ = ["MIB", "Hostile", "Sent", "bomb_of", "dripping", "dripping_head", "hostile_server", "packed"]

MIB: Final = 1 << 20
_PAUSE_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What it sends. A body of pieces is sent until the client leaves or the server ends."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Iterable[bytes] = b""
    slow_head: bool = False
    """Whether one more header never ends."""


@dataclass(slots=True)
class Hostile:
    """Its address, and what came."""

    url: str = ""
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    """First line, headers with lower-case names, body."""
    ended: threading.Event = field(default_factory=threading.Event)


@contextmanager
def hostile_server(answer: Sent | Callable[[str], Sent]) -> Iterator[Hostile]:
    """Serve on a free loopback port until the block ends; an answer may depend on the path."""
    hostile = Hostile()

    class Handler(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802 -- the name in http.server
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            hostile.requests.append((self.requestline, {k.lower(): v for k, v in self.headers.items()}, body))
            sent = answer if isinstance(answer, Sent) else answer(self.path)
            try:
                self._send(sent)
            except OSError:  # the client left, which is what is wanted of it
                self.close_connection = True

        do_POST = do_GET  # noqa: N815 -- the base class calls it so

        def _send(self, sent: Sent) -> None:
            self.close_connection = True
            self.send_response(sent.status)
            for name, value in sent.headers.items():
                self.send_header(name, value)
            if isinstance(sent.body, bytes):
                self.send_header("content-length", str(len(sent.body)))
            self.send_header("connection", "close")
            if sent.slow_head:
                self.flush_headers()
                self._write(dripping(b"x-slow: "))
                return
            self.end_headers()
            self._write([sent.body] if isinstance(sent.body, bytes) else sent.body)

        def _write(self, pieces: Iterable[bytes]) -> None:
            for piece in pieces:
                self.wfile.write(piece)
                if hostile.ended.wait(_PAUSE_S if len(piece) == 1 else 0):
                    return

    with serving(Handler) as hostile.url:
        try:
            yield hostile
        finally:
            hostile.ended.set()


def dripping(begin: bytes = b"") -> Iterator[bytes]:
    """Yield what comes byte by byte, and never to an end."""
    if begin:
        yield begin
    while True:
        yield b" "


@cache
def bomb_of(mib: int) -> bytes:
    """Pack so many MiB of blanks, which are JSON as far as they go, into a thousandth, as gzip does."""
    packing = zlib.compressobj(9, zlib.DEFLATED, 31)
    begin = packing.compress(b" " * MIB) + packing.flush(zlib.Z_FULL_FLUSH)
    block = packing.compress(b" " * MIB) + packing.flush(zlib.Z_FULL_FLUSH)
    return begin + block * (mib - 1) + packing.flush()


def packed(body: bytes) -> bytes:
    """Pack as gzip does."""
    packing = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packing.compress(body) + packing.flush()


dripping_head = Sent(slow_head=True)
