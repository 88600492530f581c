"""The HTTP server of receivers and pages."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from math import ceil
from typing import Any, cast

import uvicorn
from google.rpc import code_pb2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ragtrace.errors import ConfigError
from ragtrace.escaping import escaped_json
from ragtrace_collector.web._connection import HEADERS_TIMEOUT_S, AsgiApp, BoundedApp
from ragtrace_collector.web.certificate import Certificate
from ragtrace_collector.web.errors import RequestRefused, error_answer
from ragtrace_collector.web.tokens import TokenAuth


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


Status = Callable[[str | None], Awaitable[Mapping[str, object]]]
"""Returns the collector's status. A tenant sees only its own part."""
PageHandler = Callable[[Request], Awaitable[Response]]


class JsonPage(JSONResponse):
    """A JSON response in which control characters and lone surrogates are escaped."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return escaped_json(json.dumps(content, ensure_ascii=False, separators=(",", ":"))).encode()


def guarded(page: PageHandler, access: TokenAuth, *, of_all: bool = False) -> PageHandler:
    """Show a page to those alone whose token may read, where tokens are asked for.

    ``of_all`` says that the page tells of all tenants at once: to a token of one of them it is not shown.
    """

    async def shown(request: Request) -> Response:
        try:
            access.check_host(request.headers.get("host"))
            sender = access.admit(request.headers.get("authorization"), "read")
            request.state.tenant = sender.tenant if sender else None
            if of_all and request.state.tenant is not None:
                raise RequestRefused(
                    code_pb2.PERMISSION_DENIED,
                    "this token reads what is of its tenant alone, and this page tells of all: "
                    "read it by a token without a `tenant`",
                )
        except RequestRefused as exc:
            return error_answer("json", exc)
        return await page(request)

    return shown


def reader_of(request: Request) -> str | None:
    """Return the tenant that a page is shown to; ``None`` for one who may see those of all."""
    tenant: str | None = request.state.tenant
    return tenant
