"""Spans of vector database clients from OpenLLMetry's instrumentations, with results as events."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from ragtrace import semconv
from ragtrace.model import AttributeValue, Chunk, SkipReason
from ragtrace.traces.extract._attributes import first_text
from ragtrace.traces.extract._content import (
    ContentDamage,
    FoundValue,
    cut_damage,
    is_cut_by_tempo,
    parse_loosely,
)
from ragtrace.traces.extract._documents import find_documents
from ragtrace.traces.extract._span_reader import Role, SpanReading
from ragtrace.traces.trace import Span, SpanEvent

NAME: Final = "vector-db"

_EVENTS = (semconv.DB_QUERY_RESULT, semconv.DB_SEARCH_RESULT)
_SYSTEMS = frozenset(
    {"chroma", "lancedb", "marqo", "milvus", "pinecone", "qdrant", "turbopuffer", "weaviate"}
)
_SDK_EVENTS: Final = 128
_READS = re.compile(r"quer(y|ies)|search|retrieve|near_|hybrid|bm25|recommend|discover", re.IGNORECASE)
_INNER = re.compile(r"segment|embed|count", re.IGNORECASE)
"""Internal operations of a client for a query: their spans are not retrievals."""


def read(span: Span) -> SpanReading | None:
    """Read the events with the results of a query; these spans never hold the question."""
    results = [event for event in span.events if event.name in _EVENTS]
    if not results and not _is_query(span):
        return None
    return SpanReading(span=span, convention=NAME, role=Role.RETRIEVAL, documents=_documents(span, results))


def _is_query(span: Span) -> bool:
    system = first_text(span, semconv.DB_SYSTEM, semconv.DB_SYSTEM_NAME)
    if system is None or system.lower() not in _SYSTEMS:
        return False
    operation = first_text(span, semconv.DB_OPERATION, semconv.DB_OPERATION_NAME) or span.name
    return bool(_READS.search(operation)) and not _INNER.search(span.name)


def _documents(span: Span, results: list[SpanEvent]) -> FoundValue[tuple[Chunk, ...]]:
    if results:
        items = tuple(_document(event) for event in results)
        found = find_documents(items, attribute=results[0].name, convention=NAME, span_id=span.span_id)
        return replace(found, damage=found.damage or _loss(span, found))
    detail = (
        f"span {span.name!r} records a query without its results: record the chunks with "
        "`ragtrace.retrieval`, or turn on the content of the database's instrumentation if it has any"
    )
    return FoundValue(
        value=None,
        attribute=semconv.DB_QUERY_RESULT,
        convention=NAME,
        how="no results",
        damage=ContentDamage(reason=SkipReason.NO_CONTENT, detail=detail),
    )


def _loss(span: Span, found: FoundValue[tuple[Chunk, ...]]) -> ContentDamage | None:
    if any(chunk.text and is_cut_by_tempo(chunk.text) for chunk in found.value or ()):
        return cut_damage(found.attribute)
    if len(span.events) < _SDK_EVENTS:
        return None
    detail = f"the span has {_SDK_EVENTS} events, the limit of SDKs: raise OTEL_SPAN_EVENT_COUNT_LIMIT"
    return ContentDamage(reason=SkipReason.INCOMPLETE, detail=detail)


def _document(event: SpanEvent) -> AttributeValue:
    """Strip the event's name from the keys. Some clients write the whole record as JSON or a repr."""
    fields = {key.removeprefix(f"{event.name}."): value for key, value in event.attributes.items()}
    entity = fields.get("entity")
    return fields | {"entity": parse_loosely(entity)} if isinstance(entity, str) else fields
