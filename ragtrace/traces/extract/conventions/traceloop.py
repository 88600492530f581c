"""OpenLLMetry's instrumentations and Traceloop's SDK: their attributes outside GenAI's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ragtrace import semconv
from ragtrace.model import AttributeValue, Chunk
from ragtrace.traces.extract._attributes import first_text, found_text
from ragtrace.traces.extract._content import FoundValue, parse_loosely
from ragtrace.traces.extract._documents import find_documents, has_text
from ragtrace.traces.extract._flat_lists import flat_messages
from ragtrace.traces.extract._messages import Message, last_user_text, message_text
from ragtrace.traces.extract._payload import (
    answer_in,
    documents_in,
    listed_documents,
    prompt_in,
    question_in,
    texts_for_synthesis,
)
from ragtrace.traces.extract._span_reader import Role, SpanReading, ToolResult
from ragtrace.traces.extract._tools import handed_documents, tool_documents
from ragtrace.traces.trace import Span

NAME: Final = "openllmetry"

_ROLES_OF_KINDS = {"workflow": Role.CALL, "agent": Role.CALL, "tool": Role.TOOL}
_ROLES_OF_OPERATIONS = {semconv.OP_VECTOR_DB_RETRIEVE: Role.RETRIEVAL, semconv.OP_RERANK: Role.RERANK}
_ROLES_OF_REQUESTS = {"chat": Role.GENERATION, "completion": Role.GENERATION, "rerank": Role.RERANK}
_RETRIEVER = re.compile(r"retriever(\.task)?$|\bretrieve(\.task)?$", re.IGNORECASE)
_RERANKER = re.compile(r"re-?rank(er)?(\.task)?$", re.IGNORECASE)
_SESSION_KEYS = tuple(
    f"{semconv.TRACELOOP_PROPERTIES_PREFIX}{key}"
    for key in ("session_id", "conversation_id", "thread_id", "chat_id")
)


def read(span: Span) -> SpanReading | None:
    """Read ``traceloop.*``, and the ``gen_ai.prompt.<i>`` and ``gen_ai.completion.<i>`` of older versions."""
    role, session_id = _role(span), first_text(span, *_SESSION_KEYS)
    if role is None:
        return SpanReading(span=span, convention=NAME, session_id=session_id) if session_id else None
    return SpanReading(
        span=span,
        convention=NAME,
        role=role,
        question=_question(span, role),
        query=_query(span, role),
        documents=_documents(span, role),
        tool=first_text(span, semconv.TOOL_NAME, semconv.TRACELOOP_ENTITY_NAME)
        if role is Role.TOOL
        else None,
        handed=_handed(span) if role is Role.GENERATION else (),
        answer=_answer(span, role),
        model=first_text(span, semconv.RESPONSE_MODEL, semconv.REQUEST_MODEL),
        session_id=session_id,
        prompt_version=first_text(span, semconv.TRACELOOP_PROMPT_VERSION),
    )


def prompt(span: Span) -> FoundValue[tuple[Message, ...]] | None:
    """Read ``gen_ai.prompt.<i>``."""
    messages = flat_messages(span, semconv.PROMPT_DEPRECATED)
    return prompt_in(messages, attribute=f"{semconv.PROMPT_DEPRECATED}.*", convention=NAME)


def _role(span: Span) -> Role | None:
    operation = first_text(span, semconv.OPERATION_NAME)
    if operation in _ROLES_OF_OPERATIONS:
        return _ROLES_OF_OPERATIONS[operation]
    kind = first_text(span, semconv.TRACELOOP_KIND)
    if kind in _ROLES_OF_KINDS:
        return _ROLES_OF_KINDS[kind] if _is_of_interest(span, kind) else None
    if kind == "task":
        return _role_of_task(span)
    request = first_text(span, semconv.LLM_REQUEST_TYPE)
    return _ROLES_OF_REQUESTS.get(request) if request else None


def _is_of_interest(span: Span, kind: str) -> bool:
    """Return whether it is a real call: LlamaIndex's instrumentation calls every root span a workflow."""
    name = first_text(span, semconv.TRACELOOP_ENTITY_NAME) or ""
    return kind == "tool" or not name.removesuffix(".workflow").endswith(("Embedding", "Splitter", "Parser"))


def _role_of_task(span: Span) -> Role | None:
    name = first_text(span, semconv.TRACELOOP_ENTITY_NAME) or span.name
    if _RETRIEVER.search(name):
        return Role.RETRIEVAL
    # LlamaIndex's retriever spans are empty, but the synthesizer's input lists its chunks
    if _RERANKER.search(name) or texts_for_synthesis(span, semconv.TRACELOOP_INPUT):
        return Role.RERANK
    if _returns_documents(span):
        return Role.TOOL
    return Role.STEP if _handed_on(span) else None


def _handed_on(span: Span) -> AttributeValue:
    """Return the input documents of a LangChain step, with the ids that retrievers' spans omit."""
    raw = first_text(span, semconv.TRACELOOP_INPUT) or ""
    parsed = parse_loosely(raw) if '"page_content"' in raw else None
    return listed_documents(parsed.get("inputs")) if isinstance(parsed, Mapping) else None


def _returns_documents(span: Span) -> bool:
    """Return whether a decorated function returned documents: then its name decides, like a tool's."""
    listed = listed_documents(first_text(span, semconv.TRACELOOP_OUTPUT))
    items = listed if isinstance(listed, tuple) else ()
    return bool(items) and all(isinstance(each, Mapping) and has_text(each) for each in items)


def _question(span: Span, role: Role | None) -> FoundValue[str] | None:
    if role is Role.CALL:
        return _input(span)
    if role is not Role.GENERATION:
        return None
    text = last_user_text(flat_messages(span, semconv.PROMPT_DEPRECATED))
    return _spoken(text, semconv.PROMPT_DEPRECATED, "the last message of the user")


def _query(span: Span, role: Role | None) -> FoundValue[str] | None:
    return _input(span) if role in (Role.RETRIEVAL, Role.RERANK, Role.TOOL) else None


def _input(span: Span) -> FoundValue[str] | None:
    key = semconv.TRACELOOP_INPUT
    return question_in(span.attributes.get(key), attribute=key, convention=NAME)


def _answer(span: Span, role: Role | None) -> FoundValue[str] | None:
    if role is Role.CALL:
        key = semconv.TRACELOOP_OUTPUT
        return answer_in(span.attributes.get(key), attribute=key, convention=NAME)
    if role is not Role.GENERATION:
        return None
    spoken = flat_messages(span, semconv.COMPLETION_DEPRECATED)
    text = message_text(spoken[0]) if spoken else None
    return _spoken(text, semconv.COMPLETION_DEPRECATED, "text of the first choice")


def _spoken(text: str | None, prefix: str, how: str) -> FoundValue[str] | None:
    return found_text(text or None, attribute=f"{prefix}.*", convention=NAME, how=how, raw=text)


def _documents(span: Span, role: Role | None) -> FoundValue[tuple[Chunk, ...]] | None:
    key, output = semconv.TRACELOOP_OUTPUT, span.attributes.get(semconv.TRACELOOP_OUTPUT)
    if role is Role.TOOL:
        return tool_documents(output, attribute=key, convention=NAME, span_id=span.span_id)
    if role is Role.STEP:
        key = semconv.TRACELOOP_INPUT
        return find_documents(_handed_on(span), attribute=key, convention=NAME, span_id=span.span_id)
    if role not in (Role.RETRIEVAL, Role.RERANK):
        return None
    texts = texts_for_synthesis(span, semconv.TRACELOOP_INPUT)
    if texts:
        key = semconv.TRACELOOP_INPUT
        return find_documents(texts, attribute=key, convention=NAME, span_id=span.span_id)
    return documents_in(output, attribute=key, convention=NAME, span_id=span.span_id)


def _handed(span: Span) -> tuple[ToolResult, ...]:
    prompt = flat_messages(span, semconv.PROMPT_DEPRECATED)
    key = f"{semconv.PROMPT_DEPRECATED}.*"
    return handed_documents(prompt, attribute=key, convention=NAME, span_id=span.span_id)
