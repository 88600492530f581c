"""The HTTP server as a task, and the limits of its connections."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette

from ragtrace.errors import ConfigError
from ragtrace_collector.web._connection import HEADERS_TIMEOUT_S, AsgiApp, BoundedApp
from ragtrace_collector.web.certificate import Certificate


def is_loopback(endpoint: str) -> bool:
    """Say whether ``host:port`` can be reached from this machine only."""
    host = endpoint.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def open_socket(endpoint: str, *, key: str = "receive.http", is_shared: bool = False) -> socket.socket:
    """Bind ``host:port``, alone or beside other processes; ``key`` is its configuration key.

    Raises:
        ConfigError: the address cannot be bound.
    """
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, int(port)), family=family, reuse_port=is_shared)
    except (OSError, ValueError) as exc:
        raise ConfigError(f"`{key}`: cannot listen on {endpoint!r}: {exc}") from exc


class HttpServer(uvicorn.Server):
    """uvicorn as a task. The service handles the signals."""

    def __init__(
        self, app: Starlette, listening: socket.socket, *, certificate: Certificate | None = None
    ) -> None:
        self._listening = listening
        bounded = BoundedApp(app)
        context = certificate.context if certificate else None
        protocol = _protocol(app)
        super().__init__(
            _config(
                bounded,
                http=cast(
                    "type[asyncio.Protocol]", lambda **of_server: bounded.connect(protocol(**of_server))
                ),
                ssl_context_factory=(lambda *_: context) if context else None,
            )
        )

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


def _config(app: AsgiApp, **options: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        ws="none",
        log_config=None,
        log_level="error",  # at WARNING, it logs each request that is not HTTP
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=ceil(HEADERS_TIMEOUT_S),
        timeout_graceful_shutdown=5,
        **options,
    )


def _protocol(app: AsgiApp) -> Callable[..., asyncio.Protocol]:
    """Return uvicorn's own protocol."""
    config = _config(app, http="httptools")
    config.load()
    return config.http_protocol_class
