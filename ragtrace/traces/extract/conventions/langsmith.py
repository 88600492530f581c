"""LangSmith's OpenTelemetry export: its own span kinds; inputs and outputs in GenAI's oldest attributes."""

from __future__ import annotations

from typing import Final

from ragtrace import semconv
from ragtrace.model import Chunk
from ragtrace.traces.extract._attributes import first_text
from ragtrace.traces.extract._content import FoundValue
from ragtrace.traces.extract._payload import answer_in, question_in
from ragtrace.traces.extract._span_reader import Role, SpanReading
from ragtrace.traces.extract._tools import returned_documents
from ragtrace.traces.trace import Span

NAME: Final = "langsmith"

_ROLES: Final = {
    "retriever": Role.RETRIEVAL,
    "llm": Role.GENERATION,
    "chain": Role.CALL,
    "tool": Role.TOOL,
}
_SESSION_KEYS: Final = tuple(
    f"{semconv.LANGSMITH_METADATA_PREFIX}{name}" for name in ("session_id", "thread_id", "conversation_id")
)
"""LangSmith's thread. Its ``langsmith.trace.session_*`` name the project."""


def read(span: Span) -> SpanReading | None:
    """Read ``langsmith.span.kind``, because a retriever's ``gen_ai.operation.name`` is ``embeddings``."""
    kind = first_text(span, semconv.LANGSMITH_KIND)
    if kind is None:
        return None
    role = _ROLES.get(kind, Role.STEP)
    has_answer = role in (Role.CALL, Role.GENERATION)
    prompt, completion = semconv.PROMPT_DEPRECATED, semconv.COMPLETION_DEPRECATED
    outputs = span.attributes.get(completion)
    asked = question_in(span.attributes.get(prompt), attribute=prompt, convention=NAME)
    return SpanReading(
        span=span,
        convention=NAME,
        role=role,
        question=asked if has_answer else None,
        query=asked if role in (Role.RETRIEVAL, Role.TOOL) else None,
        documents=_documents(span, role),
        tool=span.name if role is Role.TOOL else None,
        answer=answer_in(outputs, attribute=completion, convention=NAME) if has_answer else None,
        model=first_text(span, semconv.RESPONSE_MODEL, semconv.REQUEST_MODEL),
        session_id=first_text(span, *_SESSION_KEYS),
    )


def _documents(span: Span, role: Role | None) -> FoundValue[tuple[Chunk, ...]] | None:
    key = semconv.COMPLETION_DEPRECATED
    output = span.attributes.get(key)
    return returned_documents(output, role, attribute=key, convention=NAME, span_id=span.span_id)
