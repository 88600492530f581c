"""Sessions: the list, and one conversation with its turns and what they say against each other."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ragtrace.answers.port import AnswerGone, SessionKey
from ragtrace.answers.summary import (
    AnswerKey,
    AnswerSummary,
    FaultKind,
    SessionFault,
    SessionSummary,
    fault_texts,
)
from ragtrace.errors import InputError, ReadError
from ragtrace.model import Label, Verdict, VerdictLabel
from ragtrace_collector.ui.security import open_own, own_tenant
from ragtrace_collector.ui.site import Site, check_parameters, render, site_of

_PAGE: Final = 50
_MOST_TURNS: Final = 1_000
_MOST_ID: Final = 2_000
_MOST_OPENED: Final = 100
_AT_ONCE: Final = 20
_MOST_S: Final = 2.0
_WRONG: Final = (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED)
LABELS: Final = (Label.FAIL, Label.PASS, Label.SKIPPED)


def conversation_routes() -> list[Route]:
    """Return the routes ``sessions`` and ``session``."""
    return [
        Route("/sessions", show_sessions, methods=["GET"], name="sessions"),
        Route("/sessions/{session:path}", show_session, methods=["GET"], name="session"),
    ]


Texts = Sequence[tuple[str, str]]
"""Claims of a later turn with quotes of an earlier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """One session: what its span tells, and the answers that the index has of it."""

    judged: SessionSummary
    faults: Mapping[SessionFault, Texts]
    """Each with its texts, if the trace of the session's last answer has them."""
    notice: str = ""
    """Why texts are missing; empty if none are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLine:
    """One session of the list."""

    key: SessionKey
    turns: Sequence[AnswerSummary]
    judged: SessionSummary | None
    """Its verdict as a whole, if there is one."""

    @property
    def time_ns(self) -> int:
        """When its last answer was given, as far as the index knows."""
        return self.turns[-1].time_ns if self.turns else self.judged.time_ns if self.judged else 0

    @property
    def failing(self) -> int:
        """Number of turns that fail."""
        return sum(turn.label is Label.FAIL for turn in self.turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTurn:
    """One turn of a conversation, with its texts if they can be read."""

    answer: AnswerSummary
    number: int
    question: str = ""
    reply: str = ""
    wrong: Sequence[Verdict] = ()
    notice: str = ""
    """Why the texts are missing."""


async def show_sessions(request: Request) -> Response:
    """Show a page of the list, of one label if the query names it."""
    check_parameters(request, "label", "tenant", "after")
    site, named = site_of(request), request.query_params.get("label", "")
    if named and named not in LABELS:
        raise InputError(f"a session is {', '.join(LABELS[:-1])} or {LABELS[-1]}: choose one of them")
    tenant = own_tenant(request, request.query_params.get("tenant") or None)
    found = await site.index.sessions(
        tenant=tenant,
        label=Label(named) if named else None,
        after=request.query_params.get("after"),
        limit=_PAGE,
    )
    return render(
        request,
        "sessions.html",
        page="sessions",
        found=found,
        lines=[await _line(site, key) for key in found.sessions],
        label=named,
        labels=LABELS,
        tenant=tenant or "",
        session_url=session_url,
    )


async def show_session(request: Request) -> Response:
    """Show the turns of a session, and its faults with links to the answers."""
    check_parameters(request, "tenant")
    site, name = site_of(request), request.path_params["session"]
    tenant = own_tenant(request, request.query_params.get("tenant"))
    if not name or len(name) > _MOST_ID:
        raise HTTPException(404)
    judged = await site.index.judged_sessions(name, tenant=tenant)
    turns = await site.index.session(name, tenant=tenant, limit=_MOST_TURNS)
    if not judged and not turns:
        raise HTTPException(404)
    return render(
        request,
        "session.html",
        page="sessions",
        name=name,
        views=[await _view(request, summary) for summary in judged],
        turns=await _shown_turns(request, turns, _numbers(judged, turns)),
        is_cut=len(turns) >= _MOST_TURNS,
        kinds=FaultKind,
        session_url=session_url,
    )


async def _line(site: Site, key: SessionKey) -> SessionLine:
    judged = await site.index.judged_sessions(key.session, tenant=key.tenant)
    turns = await site.index.session(key.session, tenant=key.tenant, limit=_MOST_TURNS)
    return SessionLine(key=key, turns=turns, judged=judged[0] if judged else None)


async def _shown_turns(
    request: Request, turns: Sequence[AnswerSummary], numbers: Mapping[AnswerKey, int]
) -> Sequence[ShownTurn]:
    """Open the turns, some at a time, until there are many or the time is over."""
    shown: list[ShownTurn] = []
    begun = time.monotonic()
    for first in range(0, len(turns), _AT_ONCE):
        batch = turns[first : first + _AT_ONCE]
        if first >= _MOST_OPENED or time.monotonic() - begun > _MOST_S:
            shown += (ShownTurn(answer=one, number=numbers[one.key], question=one.question) for one in batch)
        else:
            shown += await asyncio.gather(*(_opened_turn(request, one, numbers[one.key]) for one in batch))
    return shown


async def _opened_turn(request: Request, answer: AnswerSummary, number: int) -> ShownTurn:
    plain = ShownTurn(answer=answer, number=number, question=answer.question)
    try:
        async with asyncio.timeout(_MOST_S):
            opened = await open_own(request, answer.key)
    except HTTPException:
        return plain
    except AnswerGone as exc:
        return replace(plain, notice=str(exc))
    except (ReadError, TimeoutError):
        return replace(plain, notice="The place that holds the texts cannot be read now")
    wrong = {
        verdict.claim.index: verdict
        for version in opened.versions[:1]
        for result in version.judged.evaluation.results
        for verdict in result.verdicts
        if verdict.label in _WRONG
    }
    return replace(
        plain,
        question=opened.record.question or "",
        reply=opened.record.answer or "",
        wrong=[verdict for _, verdict in sorted(wrong.items())],
    )


def session_url(request: Request, session: str, tenant: str = "") -> str:
    """Return where a session is shown, whatever its id has in it."""
    path = f"{request.url_for('sessions').path}/{quote(session, safe='', errors='replace')}"
    return f"{path}?tenant={quote(tenant, safe='')}" if tenant else path


async def _view(request: Request, judged: SessionSummary) -> SessionView:
    try:
        texts = await _texts(request, judged) if judged.faults else {}
    except ReadError:
        texts, notice = {}, "The place that holds the texts cannot be read now."
    else:
        notice = "The texts are on the session's span, in the trace of its last answer."
    faults = {fault: texts.get(fault, ()) for fault in judged.faults}
    return SessionView(judged=judged, faults=faults, notice="" if all(faults.values()) else notice)


async def _texts(request: Request, judged: SessionSummary) -> Mapping[SessionFault, Texts]:
    """Read claims and quotes from the session's span.

    Raises:
        ReadError: its trace is gone, or the place cannot be read.
    """
    try:
        opened = await open_own(request, judged.last)
    except HTTPException:
        return {}
    spans = opened.trace.spans if opened.trace else ()
    own = next((span for span in spans if span.span_id == judged.span_id), None)
    return fault_texts(own, tenant=judged.tenant) if own else {}


def _numbers(judged: Sequence[SessionSummary], turns: Sequence[AnswerSummary]) -> Mapping[AnswerKey, int]:
    """Return the numbers of turns: those that the session's span tells, else by their order."""
    told = {
        key: number
        for summary in judged
        for fault in summary.faults
        for key, number in ((fault.answer, fault.turn), (fault.earlier, fault.earlier_turn))
    }
    places: Counter[str] = Counter()
    numbers: dict[AnswerKey, int] = {}
    for turn in turns:
        places[turn.key.tenant] += 1
        numbers[turn.key] = told.get(turn.key, places[turn.key.tenant])
    return numbers
