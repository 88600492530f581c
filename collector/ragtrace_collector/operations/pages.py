"""The operator's pages, on their own listener, apart from the receivers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ragtrace.answers.index import AnswerIndex
from ragtrace.errors import InputError, RagtraceError
from ragtrace.ports import Clock
from ragtrace_collector.judge import LiveConfig
from ragtrace_collector.ledger import Ledger
from ragtrace_collector.operations.metrics import SelfMetrics
from ragtrace_collector.operations.why import TraceStatus, look_up, trace_id_in
from ragtrace_collector.store.ledger import Reports
from ragtrace_collector.store.store import Store
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


PAGES: Final = {
    "/livez": "the event loop turns (for a liveness probe)",
    "/readyz": "whether spans are accepted, or why not (for a readiness probe)",
    "/metrics": "metrics, as Prometheus or OpenMetrics text",
    "/status": "the collector's state, as JSON",
    "/ledger": "all answers by state, as JSON",
    "/why/TRACE_ID": "why an answer has a score or has none, as JSON",
}


async def show_index(_: Request) -> Response:
    """Return the list, which contains nothing about answers."""
    return PlainTextResponse("".join(f"{path:<16}{says}\n" for path, says in PAGES.items()))


_BEAT_S: Final = 1.0


class Phase(StrEnum):
    """The process's phase."""

    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Why the collector accepts no spans (``reasons``), and what senders need not act on (``notes``)."""

    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_judging: bool = True
    """Whether answers are judged. If not, they wait on disk, and spans are still accepted."""

    @property
    def is_ready(self) -> bool:
        """Whether spans are accepted."""
        return not self.reasons


@dataclass(slots=True)
class LoopLag:
    """How late the event loop woke from its last sleep. Every request waited as long."""

    seconds: float = 0.0

    async def watch(self) -> None:
        """Measure once a second, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _BEAT_S
            await asyncio.sleep(_BEAT_S)
            self.seconds = max(0.0, loop.time() - due)


WHY_PATH: Final = "/why/"
LEDGER_PATH: Final = "/ledger"

trace_status_form: Final[TypeAdapter[TraceStatus]] = TypeAdapter(TraceStatus)
ledger_form: Final[TypeAdapter[Ledger]] = TypeAdapter(Ledger)


def account_routes(
    live: LiveConfig, store: Store | Reports, index: AnswerIndex, *, clock: Clock, access: TokenAuth
) -> tuple[Route, ...]:
    """Build ``GET /why/<trace id>`` and ``GET /ledger?since_ns=…``, which commands read with ``--url``."""

    async def show_why(request: Request) -> Response:
        wanted = trace_id_in(request.path_params["trace"])
        status = await look_up(
            store,
            index,
            wanted,
            config=live.now.config,
            sampler=live.now.sampler,
            now_ns=clock.now_ns(),
            tenant=reader_of(request),
        )
        return JsonPage(trace_status_form.dump_python(status, mode="json"))

    async def show_ledger(request: Request) -> Response:
        ledger = await store.ledger(reader_of(request), since_ns=_since_ns(request.query_params))
        return JsonPage(ledger_form.dump_python(ledger, mode="json"))

    return (
        Route(f"{WHY_PATH}{{trace}}", guarded(show_why, access), methods=["GET"]),
        Route(LEDGER_PATH, guarded(show_ledger, access), methods=["GET"]),
    )


_SINCE: Final = "since_ns"
_TIME: Final = re.compile(r"[0-9]{1,19}")
_LATEST_NS: Final = 2**63 - 1
"""The store's largest integer: a time in the year 2262."""


def _since_ns(asked: QueryParams) -> int | None:
    """Read the ledger's one parameter. Reject unknown ones rather than ignore them."""
    given = asked.multi_items()
    if not given:
        return None
    name, text = given[0]
    if len(given) > 1 or name != _SINCE or not _TIME.fullmatch(text) or int(text) > _LATEST_NS:
        raise InputError(
            f"`{LEDGER_PATH}` takes nothing, or `{_SINCE}` once: give nanoseconds since 1970 in digits, "
            f"such as {_SINCE}=1760000000000000000"
        )
    return int(text)
