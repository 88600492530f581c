"""The HTTP server as one task among others, and what bounds its connections."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from ragtrace.errors import ConfigError
from ragtrace_collector.receivers.tls import Certificate

__all__ = ["HttpServer", "is_loopback", "open_socket"]

_MAX_CONNECTIONS: Final = 1_000
_HEADERS_TIMEOUT_S: Final = 10.0


def is_loopback(endpoint: str) -> bool:
    """Tell whether ``host:port`` can be reached from this machine alone."""
    host = endpoint.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def open_socket(endpoint: str, *, key: str = "receive.http") -> socket.socket:
    """Bind ``host:port``; ``key`` is where the configuration says it.

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
    """uvicorn as one task among others: the service owns the signals."""

    def __init__(
        self, app: Starlette, listening: socket.socket, *, certificate: Certificate | None = None
    ) -> None:
        self._listening = listening
        config = uvicorn.Config(
            app,
            http=_BoundedProtocol,
            ws="none",
            log_config=None,
            log_level="error",  # at WARNING, it has a line for each request that is no HTTP
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=5,
        )
        config.load()
        config.ssl = certificate.context if certificate else None
        super().__init__(config)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve on the socket until stopped."""
        try:
            await super().serve(sockets or [self._listening])
        finally:
            self._listening.close()  # where it is cancelled, it does not do so itself

    def stop(self) -> None:
        """Accept no more requests; ``serve`` returns when those under way are answered."""
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _BoundedProtocol(H11Protocol):
    """A connection that is closed where its sender does not say what it wants, or there are too many of them.

    uvicorn waits without end for the first request, and for the rest of a request's headers.
    """

    _impatience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > _MAX_CONNECTIONS:
            transport.abort()
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._impatience is None:
            self._wait_for_headers()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP; where an answer is already under way, hang up."""
        if self.cycle is not None:
            self.cycle.disconnected = True  # or it would answer too, and fail with a traceback in the log
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _wait_for_headers(self) -> None:
        self._impatience = self.loop.call_later(_HEADERS_TIMEOUT_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._impatience is not None:
            self._impatience.cancel()
            self._impatience = None
