"""The HTTP server as a task, and the limits of its connections."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, cast

import httptools
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ragtrace.errors import ConfigError
from ragtrace_collector.web.certificate import Certificate
from ragtrace_collector.web.connections import Connections, on_admission

_HEADERS_TIMEOUT_S: Final = 10.0
_MAX_HEAD_BYTES: Final = 16 << 10


def is_loopback(endpoint: str) -> bool:
    """Say whether ``host:port`` can be reached from this machine only."""
    host = endpoint.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def open_socket(endpoint: str, *, key: str = "receive.http") -> socket.socket:
    """Bind ``host:port``; ``key`` is its configuration key.

    Raises:
        ConfigError: the address cannot be bound.
    """
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, int(port)), family=family)
    except (OSError, ValueError) as exc:
        raise ConfigError(f"`{key}`: cannot listen on {endpoint!r}: {exc}") from exc


class HttpServer(uvicorn.Server):
    """uvicorn as a task. The service handles the signals."""

    def __init__(
        self, app: Starlette, listening: socket.socket, *, certificate: Certificate | None = None
    ) -> None:
        self._listening = listening
        config = uvicorn.Config(
            app,
            ws="none",
            log_config=None,
            log_level="error",  # at WARNING, it logs each request that is not HTTP
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=5,
        )
        config.load()
        config.http_protocol_class = partial(_BoundedProtocol, Connections())  # type: ignore[assignment]
        config.ssl = certificate.context if certificate else None
        super().__init__(config)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve on the socket until stopped."""
        try:
            await super().serve(sockets or [self._listening])
        finally:
            self._listening.close()  # uvicorn does not if it is cancelled

    def stop(self) -> None:
        """Accept no more requests; ``serve`` returns after answering the open ones."""
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _BoundedProtocol(HttpToolsProtocol):
    """A connection that accepts one request at a time, and closes if its sender exceeds a limit.

    uvicorn waits forever for a request, its headers, and the rest of an answered body. It queues pipelined
    requests, and httptools keeps headers of any length.
    """

    def __init__(self, connections: Connections, **of_server: Any) -> None:
        super().__init__(**of_server)
        self._connections = connections

    _impatience: asyncio.TimerHandle | None = None
    _unfinished_bytes = 0
    """Bytes since the last whole head or piece of a body: headers, trailers, chunk extensions."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_headers()
        self._connections.join(self, self.client)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._connections.leave(self)
        super().connection_lost(exc)

    def is_idle(self) -> bool:
        """Say whether no request is being answered on this connection."""
        return not self._is_answering()

    def hang_up(self) -> None:
        """Close this connection at once, because there are too many."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self._unfinished_bytes += len(data)
        self._parse(data)
        if self._is_answering():
            self._stop_waiting()
        elif self._impatience is None:
            self._wait_for_headers()

    def on_message_begin(self) -> None:
        if self._is_answering():
            raise ValueError("one request at a time")
        super().on_message_begin()
        self._connections.note_request(self)
        on_admission(cast("dict[str, Any]", self.scope), partial(self._connections.admit, self))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.cycle is None or not self.cycle.more_body:  # after a body, it is a trailer
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._unfinished_bytes = 0
        self._check_head()
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unfinished_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished_bytes = 0
        if not self.parser.should_upgrade():
            super().on_message_complete()
            self.cycle.more_body = False  # uvicorn does not set it if the answer came first

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP. If another answer is due or under way, make that the last one."""
        cycle = self.cycle
        if self._is_answering() and not cycle.more_body:  # refuse only what follows the request
            cycle.keep_alive = False
            return
        if cycle is not None:
            cycle.disconnected = True  # else it would answer too
            cycle.message_event.set()
        if cycle is None or not cycle.response_started or not cycle.more_body:
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:  # also raised by the methods above
            self.send_400_response("Invalid HTTP request received.")
        except httptools.HttpParserUpgrade as stopped:
            self._decline_upgrade(data[stopped.args[0] :])
        else:
            if self._unfinished_bytes > _MAX_HEAD_BYTES:
                self.send_400_response("Headers are too long.")

    def _decline_upgrade(self, rest: bytes) -> None:
        """Parse the request without `Upgrade`: with it, the parser expects the body in that protocol.

        A client may ask for HTTP/2 in its first request, whose body is HTTP/1.1 (RFC 7540, section 3.2).
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.send_400_response("This is not a proxy.")
            return
        head = [b"%s %s HTTP/%s" % (method, self.url, self.parser.get_http_version().encode())]
        head += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self._parse(b"\r\n".join([*head, b"", rest]))

    def _check_head(self) -> None:
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > _MAX_HEAD_BYTES:
            raise ValueError("headers are too long")
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() == "1.1"):
            raise ValueError("RFC 9112, section 3.2: a request names one host")

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait_for_headers(self) -> None:
        self._impatience = self.loop.call_later(_HEADERS_TIMEOUT_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._impatience is not None:
            self._impatience.cancel()
            self._impatience = None
