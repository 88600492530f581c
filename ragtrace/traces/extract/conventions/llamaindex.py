"""LlamaIndex's own OpenTelemetry export: span events, one per kind of event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ragtrace.model import AttributeValue, Chunk, SkipReason
from ragtrace.traces.extract._content import ContentDamage, FoundValue, best
from ragtrace.traces.extract._payload import answer_in, documents_in, question_in
from ragtrace.traces.extract._span_reader import Role, SpanReading
from ragtrace.traces.trace import Span

NAME: Final = "llamaindex"

_Attributes = Mapping[str, AttributeValue]

_ROLES: Final = {
    "QueryStartEvent": Role.CALL,
    "RetrievalStartEvent": Role.RETRIEVAL,
    "ReRankStartEvent": Role.RERANK,
    "SynthesizeEndEvent": Role.RERANK,
    "LLMPredictEndEvent": Role.GENERATION,
    "LLMChatEndEvent": Role.GENERATION,
    "LLMCompletionEndEvent": Role.GENERATION,
    "LLMPredictStartEvent": Role.STEP,
    "LLMChatStartEvent": Role.STEP,
}
"""Roles by the first present event. A synthesis takes the nodes that postprocessors kept; a streaming model
ends without an event."""
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
_DOCUMENTS: Final = (
    ("ReRankEndEvent", "nodes"),
    ("RetrievalEndEvent", "nodes"),
    ("SynthesizeEndEvent", "response.source_nodes"),
)
_MODELS: Final = ("response.raw.model", "model_dict.model_name", "model_dict.model")


def read(span: Span) -> SpanReading | None:
    """Read the start and end events of queries, retrievals and models."""
    events = {event.name: event.attributes for event in span.events if event.name.endswith("Event")}
    role = next((role for name, role in _ROLES.items() if name in events), None)
    if role is None:
        return None
    is_answering = role in (Role.CALL, Role.GENERATION)
    return SpanReading(
        span=span,
        convention=NAME,
        role=role,
        question=_asked(events, _QUESTIONS) if is_answering else None,
        query=_asked(events, _QUERIES) if role in (Role.RETRIEVAL, Role.RERANK) else None,
        documents=_documents(span, events) if role in (Role.RETRIEVAL, Role.RERANK) else None,
        answer=_answer(events) if is_answering else None,
        model=_first_text(events, *_MODELS),
        response_id=_first_text(events, "response.raw.id") if role is Role.GENERATION else None,
    )


def _asked(events: Mapping[str, _Attributes], places: tuple[tuple[str, str], ...]) -> FoundValue[str] | None:
    return best(
        *(
            question_in(events.get(event, {}).get(key), attribute=f"{event}.{key}", convention=NAME)
            for event, key in places
        )
    )


def _answer(events: Mapping[str, _Attributes]) -> FoundValue[str] | None:
    found = (
        answer_in(events.get(event, {}).get(key), attribute=f"{event}.{key}", convention=NAME)
        for event, key in _ANSWERS
    )
    return best(*found) or _streamed(events)


def _streamed(events: Mapping[str, _Attributes]) -> FoundValue[str] | None:
    event, key = "QueryEndEvent", "response.response_gen"
    if key not in events.get(event, {}):
        return None
    detail = (
        "the answer was streamed, which LlamaIndex's own export does not record: use another "
        "instrumentation, such as `ragtrace.instrument()`"
    )
    damage = ContentDamage(reason=SkipReason.NO_CONTENT, detail=detail)
    return FoundValue(
        value=None, attribute=f"{event}.{key}", convention=NAME, how="a generator", damage=damage
    )


def _documents(span: Span, events: Mapping[str, _Attributes]) -> FoundValue[tuple[Chunk, ...]] | None:
    place = next((place for place in _DOCUMENTS if place[0] in events), None)
    if place is None:
        return None
    event, key = place
    return documents_in(
        events[event].get(key), attribute=f"{event}.{key}", convention=NAME, span_id=span.span_id
    )


def _first_text(events: Mapping[str, _Attributes], *keys: str) -> str | None:
    values = (attributes.get(key) for key in keys for attributes in events.values())
    return next((value for value in values if isinstance(value, str) and value), None)
