"""Vercel's AI SDK: ``ai.generateText`` and its steps, the same text on parent and child."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ragtrace import semconv
from ragtrace.model import AttributeValue, Chunk
from ragtrace.traces.extract._attributes import first_text
from ragtrace.traces.extract._content import FoundValue, best, parse_loosely
from ragtrace.traces.extract._documents import find_documents
from ragtrace.traces.extract._messages import Message
from ragtrace.traces.extract._payload import answer_in, prompt_in, question_in
from ragtrace.traces.extract._span_reader import Role, SpanReading
from ragtrace.traces.extract._tools import tool_documents
from ragtrace.traces.trace import Span

NAME: Final = "vercel"

_CALLS: Final = frozenset({"ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject"})
_STEPS: Final = {"ai.rerank": Role.RERANK, "ai.toolCall": Role.TOOL}
_ANSWER_KEYS: Final = (
    semconv.VERCEL_RESPONSE_TEXT,
    semconv.VERCEL_RESPONSE_OBJECT,
    semconv.VERCEL_RESULT_TEXT_DEPRECATED,
)
_SESSION_KEYS: Final = tuple(
    f"{semconv.VERCEL_METADATA_PREFIX}{name}" for name in ("sessionId", "session_id", "chatId", "threadId")
)


def read(span: Span) -> SpanReading | None:
    """Read ``ai.operationId`` and its attributes."""
    role = _role(span)
    if role is None:
        return None
    is_answering = role in (Role.CALL, Role.GENERATION)
    return SpanReading(
        span=span,
        convention=NAME,
        role=role,
        question=_question(span) if is_answering else None,
        query=question_in(
            span.attributes.get(semconv.VERCEL_TOOL_ARGUMENTS),
            attribute=semconv.VERCEL_TOOL_ARGUMENTS,
            convention=NAME,
        ),
        documents=_returned(span) if role is Role.TOOL else _documents(span),
        tool=first_text(span, semconv.VERCEL_TOOL_NAME),
        answer=best(*(_text(span, key) for key in _ANSWER_KEYS)) if is_answering else None,
        model=first_text(span, semconv.VERCEL_RESPONSE_MODEL, semconv.VERCEL_MODEL),
        response_id=first_text(span, semconv.VERCEL_RESPONSE_ID),
        session_id=first_text(span, *_SESSION_KEYS),
    )


def prompt(span: Span) -> FoundValue[tuple[Message, ...]] | None:
    """Read the model's input of a step, or of the enclosing call."""
    keys = (semconv.VERCEL_PROMPT_MESSAGES, semconv.VERCEL_PROMPT)
    return best(*(prompt_in(span.attributes.get(key), attribute=key, convention=NAME) for key in keys))


def _role(span: Span) -> Role | None:
    operation = first_text(span, semconv.VERCEL_OPERATION)
    if operation is None:
        return None
    if operation in _CALLS:
        return Role.CALL
    if operation.endswith((".doGenerate", ".doStream")):
        return Role.GENERATION
    return _STEPS.get(operation, Role.STEP)


def _question(span: Span) -> FoundValue[str] | None:
    keys = (semconv.VERCEL_PROMPT_MESSAGES, semconv.VERCEL_PROMPT)
    return best(*(question_in(_prompt(span, key), attribute=key, convention=NAME) for key in keys))


def _prompt(span: Span, key: str) -> AttributeValue:
    """Return ``{"system", "prompt", "messages"}`` without the system prompt."""
    text = first_text(span, key)
    value = parse_loosely(text) if text else None
    if not isinstance(value, Mapping):
        return text if value is None or isinstance(value, str) else value
    return value.get("prompt") or value.get("messages")


def _text(span: Span, key: str) -> FoundValue[str] | None:
    return answer_in(span.attributes.get(key), attribute=key, convention=NAME)


def _returned(span: Span) -> FoundValue[tuple[Chunk, ...]] | None:
    key = semconv.VERCEL_TOOL_RESULT
    return tool_documents(span.attributes.get(key), attribute=key, convention=NAME, span_id=span.span_id)


def _documents(span: Span) -> FoundValue[tuple[Chunk, ...]] | None:
    """Sort the documents by ``ai.ranking``: a list of ``{"index", "relevanceScore"}``."""
    documents, ranking = (
        [parse_loosely(each) for each in value]
        if isinstance(value := span.attributes.get(key), tuple)
        else []
        for key in (semconv.VERCEL_DOCUMENTS, semconv.VERCEL_RANKING)
    )
    ranked = tuple(
        {**_as_document(documents[index]), "score": each.get("relevanceScore")}
        for each in ranking
        if isinstance(each, Mapping)
        and isinstance(index := each.get("index"), int)
        and 0 <= index < len(documents)
    )
    if not ranked:
        return None
    attribute = semconv.VERCEL_DOCUMENTS
    return find_documents(ranked, attribute=attribute, convention=NAME, span_id=span.span_id)


def _as_document(value: AttributeValue) -> Mapping[str, AttributeValue]:
    return value if isinstance(value, Mapping) else {"text": value}
