"""Turns whose answers lean on earlier ones, and a judge that says what it was shown of those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import BaseModel

from ragtrace import semconv
from ragtrace.judge import JudgeSettings, ScriptedJudge
from ragtrace.judge_forms import ExtractedClaim, ExtractInput, ExtractReply
from ragtrace.ports import Judge, JudgeRequest
from ragtrace.traces.trace import Span
from tests.rag_spans import START_NS, rag_trace


def open_resolving(settings: JudgeSettings) -> Judge:
    """Open a judge that puts the last earlier question in place of "it" in a claim."""

    def reply(request: JudgeRequest[Any]) -> BaseModel:
        given = request.inputs
        if not isinstance(given, ExtractInput):
            return scripted.reply_to(request)
        asked = [turn.question for turn in given.earlier]
        text = given.sentences[0].text.replace("It", f"[{' '.join(one or '' for one in asked)}]")
        claim = ExtractedClaim(id=1, sentence_ids=[1], text=text, kind="factual")
        return ExtractReply(claims=[claim], refusal=False)

    scripted = ScriptedJudge()
    return ScriptedJudge(reply)


RESOLVING: Final = {"use": f"{__name__}:open_resolving"}


def leaning(number: int, question: str, **turn_of: Any) -> list[Span]:
    """Return a turn whose answer leans on those before it."""
    spans = rag_trace(number, question=question, answer="It takes 3 days.", start_ns=at_minute(number))
    session = {semconv.SESSION_ID: "chat-1", **turn_of}
    return [replace(span, attributes={**span.attributes, **session}) for span in spans]


def at_minute(number: int) -> int:
    return START_NS + number * 60 * 10**9


def claims_by_trace(carriers: Sequence[Span]) -> dict[str, Any]:
    """Return the claim of each judged answer by its trace."""
    return {
        span.trace_id: event.attributes[semconv.CLAIM_ASSERTION]
        for span in carriers
        for event in span.events
        if event.name.startswith(semconv.CLAIM_EVENT_PREFIX) and semconv.CLAIM_INDEX in event.attributes
    }
