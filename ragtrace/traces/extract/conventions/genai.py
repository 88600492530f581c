"""OpenTelemetry's GenAI conventions: 1.36 (messages as span events) to 1.42 (messages as attributes)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from ragtrace import semconv
from ragtrace.model import AttributeValue, Chunk
from ragtrace.traces.extract._attributes import first_text, found_text
from ragtrace.traces.extract._content import FoundValue, broken_damage, parse_loosely
from ragtrace.traces.extract._documents import find_documents
from ragtrace.traces.extract._messages import Message, answer_text, last_user_text, messages_of
from ragtrace.traces.extract._payload import prompt_in, question_in
from ragtrace.traces.extract._span_reader import Role, SpanReading, ToolResult
from ragtrace.traces.extract._tools import handed_documents, tool_documents
from ragtrace.traces.trace import Span

NAME: Final = "otel-genai"

_TOOL_IS_DATASTORE = "datastore"
_TOOL_EVENT = "gen_ai.tool.message"
_USER_MESSAGE_EVENT = "gen_ai.user.message"
_SYSTEM_MESSAGE_EVENT = "gen_ai.system.message"
_CHOICE_EVENT = "gen_ai.choice"
_WITHOUT_TALK = (Role.RETRIEVAL, Role.TOOL)


def read(span: Span) -> SpanReading:
    """Read the ``gen_ai.*`` attributes and events."""
    role = _role(span)
    return SpanReading(
        span=span,
        convention=NAME,
        role=role,
        question=_question(span) if role not in _WITHOUT_TALK else None,
        query=_query(span, role),
        documents=_documents(span, role),
        tool=first_text(span, semconv.TOOL_NAME) if role is Role.TOOL else None,
        handed=_handed(span) if role is Role.GENERATION else (),
        answer=_answer(span) if role not in _WITHOUT_TALK else None,
        model=first_text(span, semconv.RESPONSE_MODEL, semconv.REQUEST_MODEL),
        response_id=first_text(span, semconv.RESPONSE_ID),
        session_id=first_text(span, semconv.SESSION_ID),
        conversation_id=first_text(span, semconv.CONVERSATION_ID),
        prompt_version=first_text(span, semconv.PROMPT_VERSION),
    )


def prompt(span: Span) -> FoundValue[tuple[Message, ...]] | None:
    """Read the model's input, with the system instructions, which may be a separate attribute."""
    for source in _sources(span, semconv.INPUT_MESSAGES, semconv.PROMPT_DEPRECATED, _USER_MESSAGE_EVENT):
        if source.messages:
            messages = (*_instructions(span), *source.messages)
            found = prompt_in(messages, attribute=source.attribute, convention=NAME)
            damage = None if source.is_whole else broken_damage(source.raw, source.attribute)
            return replace(found, damage=damage) if found and damage else found
    return None


def _instructions(span: Span) -> Iterator[Message]:
    for attributes in (span.attributes, *(event.attributes for event in span.events)):
        if semconv.SYSTEM_INSTRUCTIONS in attributes:
            parts = parse_loosely(attributes[semconv.SYSTEM_INSTRUCTIONS])
            yield {"role": "system", "parts": parts}
    for event in span.events:
        if event.name == _SYSTEM_MESSAGE_EVENT:
            yield _event_message(event.attributes, "system")


def _role(span: Span) -> Role | None:
    operation = first_text(span, semconv.OPERATION_NAME)
    if operation in semconv.ROOT_OPERATIONS:
        return Role.CALL
    if operation in semconv.GENERATION_OPERATIONS:
        return Role.GENERATION
    if operation in (semconv.OP_RETRIEVAL, semconv.OP_SEARCH_MEMORY):
        return Role.RETRIEVAL
    is_datastore = span.attributes.get(semconv.TOOL_TYPE) == _TOOL_IS_DATASTORE
    is_tool = operation == semconv.OP_EXECUTE_TOOL
    if is_tool or span.attributes.get(semconv.MCP_METHOD) == semconv.MCP_TOOL_CALL:
        return Role.RETRIEVAL if is_datastore else Role.TOOL
    # SDKs drop the oldest attributes first: the operation may be gone while the documents are present
    return Role.RETRIEVAL if operation is None and semconv.RETRIEVAL_DOCUMENTS in span.attributes else None


class _Source(NamedTuple):
    """Messages with their attribute or event."""

    messages: tuple[Message, ...]
    is_whole: bool
    attribute: str
    raw: AttributeValue


def _question(span: Span) -> FoundValue[str] | None:
    for source in _sources(span, semconv.INPUT_MESSAGES, semconv.PROMPT_DEPRECATED, _USER_MESSAGE_EVENT):
        text = last_user_text(source.messages)
        if text or not source.is_whole:
            return _found(text, source, "the last message of the user")
    return None


def _answer(span: Span) -> FoundValue[str] | None:
    for source in _sources(span, semconv.OUTPUT_MESSAGES, semconv.COMPLETION_DEPRECATED, _CHOICE_EVENT):
        text = answer_text(source.messages)
        if text or not source.is_whole:
            return _found(text, source, "text parts of the first choice")
    return None


def _sources(span: Span, key: str, deprecated_key: str, event_name: str) -> Iterator[_Source]:
    """Yield every possible source of the messages, the newest convention first."""
    for attributes in (span.attributes, *(event.attributes for event in span.events)):
        if key in attributes:
            yield _source(attributes[key], key)
    for attributes in (span.attributes, *(event.attributes for event in span.events)):
        value = attributes.get(deprecated_key)
        if isinstance(value, str) and value:
            yield _deprecated_source(value, deprecated_key)
    role = "tool" if event_name == _TOOL_EVENT else "user"
    events = tuple(
        _event_message(event.attributes, role) for event in span.events if event.name == event_name
    )
    if events:
        yield _Source(events, True, event_name, None)


def _source(value: AttributeValue, attribute: str) -> _Source:
    messages, is_whole = messages_of(value)
    return _Source(messages, is_whole, attribute, value)


def _deprecated_source(value: str, attribute: str) -> _Source:
    source = _source(value, attribute)
    if source.is_whole or value.lstrip()[:1] in ("[", "{"):
        return source
    return _Source(({"role": "user", "content": value},), True, attribute, value)


def _event_message(attributes: Mapping[str, AttributeValue], role: str) -> Message:
    messages, _ = messages_of(attributes.get("message"))
    return messages[0] if messages else {"role": role, **attributes}


def _found(text: str | None, source: _Source, how: str) -> FoundValue[str] | None:
    if source.is_whole:
        return found_text(text, attribute=source.attribute, convention=NAME, how=how)
    damage = broken_damage(source.raw, source.attribute)
    return FoundValue(value=None, attribute=source.attribute, convention=NAME, how=how, damage=damage)


def _query(span: Span, role: Role | None) -> FoundValue[str] | None:
    key = semconv.TOOL_ARGUMENTS
    if role in _WITHOUT_TALK and key in span.attributes:
        return question_in(span.attributes[key], attribute=key, convention=NAME)
    raw = span.attributes.get(semconv.RETRIEVAL_QUERY)
    return found_text(
        first_text(span, semconv.RETRIEVAL_QUERY),
        attribute=semconv.RETRIEVAL_QUERY,
        convention=NAME,
        how="its text",
        raw=raw,
    )


def _documents(span: Span, role: Role | None) -> FoundValue[tuple[Chunk, ...]] | None:
    key = semconv.RETRIEVAL_DOCUMENTS
    if key in span.attributes:
        return find_documents(span.attributes[key], attribute=key, convention=NAME, span_id=span.span_id)
    key = semconv.TOOL_RESULT
    if role not in _WITHOUT_TALK or key not in span.attributes:
        return None
    return tool_documents(span.attributes[key], attribute=key, convention=NAME, span_id=span.span_id)


def _handed(span: Span) -> tuple[ToolResult, ...]:
    for source in _sources(span, semconv.INPUT_MESSAGES, semconv.PROMPT_DEPRECATED, _TOOL_EVENT):
        found = handed_documents(
            source.messages, attribute=source.attribute, convention=NAME, span_id=span.span_id
        )
        if found:
            return found
    return ()
