"""Pages: JSON responses for readers whose token allows it, safe to print in a terminal, as with curl."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from google.rpc import code_pb2
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ragtrace.escaping import escaped_json
from ragtrace_collector.web.answers import error_answer
from ragtrace_collector.web.errors import RequestRefused
from ragtrace_collector.web.tokens import TokenAuth

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
