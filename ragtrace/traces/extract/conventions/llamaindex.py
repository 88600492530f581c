"""LlamaIndex's own OpenTelemetry export: what happened stands in span events, one a kind of event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ragtrace.model import AttributeValue, Chunk
from ragtrace.traces.extract.content import Found, best
from ragtrace.traces.extract.payload import answer_in, documents_in, question_in
from ragtrace.traces.extract.reading import Reading, Role
from ragtrace.traces.trace import Span

__all__ = ["NAME", "read"]

NAME: Final = "llamaindex"

_Attributes = Mapping[str, AttributeValue]

_ROLES: Final = {
    "QueryStartEvent": Role.CALL,
    "RetrievalStartEvent": Role.RETRIEVAL,
    "ReRankStartEvent": Role.RERANK,
    "LLMPredictStartEvent": Role.GENERATION,
    "LLMChatStartEvent": Role.GENERATION,
    "LLMCompletionStartEvent": Role.GENERATION,
}
_QUESTIONS: Final = (
    ("QueryStartEvent", "query"),
    ("QueryStartEvent", "query.query_str"),
    ("LLMPredictStartEvent", "template.kwargs.query_str"),
    ("LLMChatStartEvent", "messages"),
)
_QUERIES: Final = (
    ("RetrievalStartEvent", "str_or_query_bundle"),
    ("RetrievalStartEvent", "str_or_query_bundle.query_str"),
    ("ReRankStartEvent", "query"),
    ("ReRankStartEvent", "query.query_str"),
)
_ANSWERS: Final = (
    ("QueryEndEvent", "response.response"),
    ("QueryEndEvent", "response"),
    ("LLMPredictEndEvent", "output"),
    ("LLMChatEndEvent", "response.message.blocks"),
    ("LLMChatEndEvent", "response.message.content"),
    ("LLMCompletionEndEvent", "response.text"),
)
_MODELS: Final = ("response.raw.model", "model_dict.model_name", "model_dict.model")


def read(span: Span) -> Reading:
    """Read the start and end events of queries, retrievals and models."""
    events = {event.name: event.attributes for event in span.events if event.name.endswith("Event")}
    role = next((role for name, role in _ROLES.items() if name in events), None)
    if role is None:
        return Reading(span=span, convention=NAME)
    is_answering = role in (Role.CALL, Role.GENERATION)
    return Reading(
        span=span,
        convention=NAME,
        role=role,
        question=_asked(events, _QUESTIONS) if is_answering else None,
        query=None if is_answering else _asked(events, _QUERIES),
        documents=None if is_answering else _documents(span, events),
        answer=best(*(_answer(events, *place) for place in _ANSWERS)) if is_answering else None,
        model=_first_text(events, *_MODELS) if role is Role.GENERATION else None,
        response_id=_first_text(events, "response.raw.id") if role is Role.GENERATION else None,
    )


def _asked(events: Mapping[str, _Attributes], places: tuple[tuple[str, str], ...]) -> Found[str] | None:
    return best(
        *(
            question_in(events.get(event, {}).get(key), attribute=f"{event}.{key}", convention=NAME)
            for event, key in places
        )
    )


def _answer(events: Mapping[str, _Attributes], event: str, key: str) -> Found[str] | None:
    value = events.get(event, {}).get(key)
    return answer_in(value, attribute=f"{event}.{key}", convention=NAME)


def _documents(span: Span, events: Mapping[str, _Attributes]) -> Found[tuple[Chunk, ...]] | None:
    event = next((name for name in ("ReRankEndEvent", "RetrievalEndEvent") if name in events), None)
    if event is None:
        return None
    return documents_in(
        events[event].get("nodes"), attribute=f"{event}.nodes", convention=NAME, span_id=span.span_id
    )


def _first_text(events: Mapping[str, _Attributes], *keys: str) -> str | None:
    values = (attributes.get(key) for key in keys for attributes in events.values())
    return next((value for value in values if isinstance(value, str) and value), None)
