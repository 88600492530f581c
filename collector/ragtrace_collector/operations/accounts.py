"""The pages about answers: the state of one trace, and the ledger. They never show content."""

from __future__ import annotations

import re
from typing import Final

from pydantic import TypeAdapter
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ragtrace.answers.index.reading import AnswerIndex
from ragtrace.errors import InputError
from ragtrace.ports import Clock
from ragtrace_collector.judge.live import LiveConfig
from ragtrace_collector.ledger.account import Ledger
from ragtrace_collector.operations.why import TraceStatus, look_up, trace_id_in
from ragtrace_collector.store.reports import Reports
from ragtrace_collector.store.store import Store
from ragtrace_collector.web.server import JsonPage, guarded, reader_of
from ragtrace_collector.web.tokens import TokenAuth

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
    unknown = next((name for name in asked if name != _SINCE), None)
    if unknown is not None:
        raise InputError(f"`{LEDGER_PATH}` has no parameter `{unknown[:_SHOWN]}`: give `{_SINCE}` or nothing")
    texts = asked.getlist(_SINCE)
    if len(texts) > 1:
        raise InputError(f"`{_SINCE}` comes {len(texts)} times: give it once")
    if not texts:
        return None
    if not _TIME.fullmatch(texts[0]) or int(texts[0]) > _LATEST_NS:
        raise InputError(
            f"`{_SINCE}` is {texts[0][:_SHOWN]!r}: give nanoseconds since 1970 in digits, "
            f"at most {_LATEST_NS}, such as {_SINCE}=1760000000000000000"
        )
    return int(texts[0])


_SHOWN: Final = 40
"""Characters of the query that an error message repeats."""
