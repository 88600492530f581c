"""Langfuse's SDK, version 3 and later: observations as spans, their input and output as JSON."""

from __future__ import annotations

from typing import Final

from ragtrace import semconv
from ragtrace.model import Chunk
from ragtrace.traces.extract._attributes import first_text
from ragtrace.traces.extract._content import FoundValue, best
from ragtrace.traces.extract._messages import Message
from ragtrace.traces.extract._payload import answer_in, prompt_in, question_in
from ragtrace.traces.extract._span_reader import Role, SpanReading
from ragtrace.traces.extract._tools import returned_documents
from ragtrace.traces.trace import Span

NAME: Final = "langfuse"

_ROLES: Final = {
    "retriever": Role.RETRIEVAL,
    "generation": Role.GENERATION,
    "span": Role.CALL,
    "chain": Role.CALL,
    "agent": Role.CALL,
    "tool": Role.TOOL,
}


def read(span: Span) -> SpanReading | None:
    """Read ``langfuse.observation.*``, and the trace attributes on the root."""
    role = _role(span)
    if role is None:
        return None
    version = span.attributes.get(semconv.LANGFUSE_PROMPT_VERSION)
    return SpanReading(
        span=span,
        convention=NAME,
        role=role,
        question=_question(span) if role in (Role.CALL, Role.GENERATION) else None,
        query=_question(span) if role in (Role.RETRIEVAL, Role.TOOL) else None,
        documents=_documents(span, role),
        tool=span.name if role is Role.TOOL else None,
        answer=_answer(span) if role in (Role.CALL, Role.GENERATION) else None,
        reference=_answer_at(span, semconv.LANGFUSE_EXPECTED_OUTPUT),
        model=first_text(span, semconv.LANGFUSE_MODEL),
        session_id=first_text(span, semconv.SESSION_ID, semconv.LANGFUSE_SESSION_ID),
        prompt_version=str(version) if isinstance(version, str | int) else None,
    )


def prompt(span: Span) -> FoundValue[tuple[Message, ...]] | None:
    """Read the input of a generation."""
    key = semconv.LANGFUSE_INPUT
    return prompt_in(span.attributes.get(key), attribute=key, convention=NAME)


def _role(span: Span) -> Role | None:
    kind = span.attributes.get(semconv.LANGFUSE_OBSERVATION_TYPE)
    if not isinstance(kind, str):
        return None
    role = _ROLES.get(kind, Role.STEP)
    has_input = semconv.LANGFUSE_INPUT in span.attributes or semconv.LANGFUSE_TRACE_INPUT in span.attributes
    return Role.STEP if role is Role.CALL and not has_input else role


def _question(span: Span) -> FoundValue[str] | None:
    keys = (semconv.LANGFUSE_TRACE_INPUT, semconv.LANGFUSE_INPUT)
    return best(*(question_in(span.attributes.get(key), attribute=key, convention=NAME) for key in keys))


def _documents(span: Span, role: Role | None) -> FoundValue[tuple[Chunk, ...]] | None:
    key = semconv.LANGFUSE_OUTPUT
    output = span.attributes.get(key)
    return returned_documents(output, role, attribute=key, convention=NAME, span_id=span.span_id)


def _answer(span: Span) -> FoundValue[str] | None:
    return best(_answer_at(span, semconv.LANGFUSE_TRACE_OUTPUT), _answer_at(span, semconv.LANGFUSE_OUTPUT))


def _answer_at(span: Span, key: str) -> FoundValue[str] | None:
    return answer_in(span.attributes.get(key), attribute=key, convention=NAME)
