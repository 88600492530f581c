"""The attributes of ragtrace's own instrumentation, besides the GenAI attributes."""

from __future__ import annotations

from typing import Final

from ragtrace import semconv
from ragtrace.model import Chunk
from ragtrace.traces.extract._attributes import found_text, strings_of
from ragtrace.traces.extract._content import FoundValue
from ragtrace.traces.extract._documents import find_documents
from ragtrace.traces.extract._span_reader import Role, SpanReading
from ragtrace.traces.trace import Span

NAME: Final = "ragtrace"
_ROLES = {
    semconv.KIND_RAG: Role.CALL,
    semconv.KIND_RETRIEVAL: Role.RETRIEVAL,
    semconv.KIND_GENERATION: Role.GENERATION,
}


def read(span: Span) -> SpanReading:
    """Read the ``ragtrace.*`` attributes. Other values of such a span are in GenAI's attributes."""
    kind = span.attributes.get(semconv.RAG_KIND)
    return SpanReading(
        span=span,
        convention=NAME,
        role=_ROLES.get(kind) if isinstance(kind, str) else None,
        question=_text(span, semconv.RAG_QUESTION),
        documents=_documents(span),
        answer=_text(span, semconv.RAG_ANSWER),
        reference=_text(span, semconv.REFERENCE_ANSWER),
        reference_chunk_ids=strings_of(span.attributes.get(semconv.REFERENCE_CONTEXT_IDS)),
    )


def _text(span: Span, key: str) -> FoundValue[str] | None:
    value = span.attributes.get(key)
    texts = strings_of(value)
    return found_text(
        "".join(texts) if texts else None, attribute=key, convention=NAME, how="its text", raw=value
    )


def _documents(span: Span) -> FoundValue[tuple[Chunk, ...]] | None:
    value = span.attributes.get(semconv.RAG_DOCUMENTS)
    if value is None:
        return None
    return find_documents(value, attribute=semconv.RAG_DOCUMENTS, convention=NAME, span_id=span.span_id)
