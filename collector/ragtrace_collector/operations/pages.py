"""The operator's pages, on their own listener, apart from the receivers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ragtrace.errors import InputError, RagtraceError
from ragtrace_collector.operations._index import show_index
from ragtrace_collector.operations.health import Readiness
from ragtrace_collector.operations.metrics import SelfMetrics
from ragtrace_collector.web.server import JsonPage, Status, guarded, reader_of
from ragtrace_collector.web.tokens import TokenAuth


def pages_app(
    *,
    readiness: Callable[[], Awaitable[Readiness]],
    status: Status,
    metrics: SelfMetrics,
    access: TokenAuth,
    accounts: Sequence[Route] = (),
) -> Starlette:
    """Build the application of the pages.

    ``/livez``, ``/readyz`` and the list of pages need no token: probes carry none, and these pages show no
    numbers.
    """

    async def livez(_: Request) -> Response:
        return JsonPage({"status": "alive"})  # the response itself proves that the event loop runs

    async def readyz(_: Request) -> Response:
        state = await readiness()
        told = {
            "ready": state.is_ready,
            "judging": state.is_judging,
            "reasons": list(state.reasons),
            "notes": list(state.notes),
        }
        return JsonPage(told, status_code=200 if state.is_ready else 503)

    async def show_metrics(request: Request) -> Response:
        text, content_type = await metrics.page(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    async def show_status(request: Request) -> Response:
        return JsonPage(await status(reader_of(request)))

    return Starlette(
        routes=[
            Route("/", show_index, methods=["GET"]),
            Route("/livez", livez, methods=["GET"]),
            Route("/readyz", readyz, methods=["GET"]),
            Route("/metrics", guarded(show_metrics, access, of_all=True), methods=["GET"]),
            Route("/status", guarded(show_status, access), methods=["GET"]),
            *accounts,
        ],
        exception_handlers={InputError: _wrong_question, RagtraceError: _no_answer},
    )


async def _wrong_question(_: Request, exc: Exception) -> Response:
    return JsonPage({"error": str(exc)}, status_code=400)


async def _no_answer(_: Request, exc: Exception) -> Response:
    """Answer with the reason why the page cannot be shown, such as an unreadable store."""
    return JsonPage({"error": str(exc)}, status_code=503)
