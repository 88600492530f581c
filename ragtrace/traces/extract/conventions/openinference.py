"""OpenInference, as Phoenix's and Arize's instrumentations write it: lists as ``prefix.<i>.suffix``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from ragtrace import semconv
from ragtrace.model import AttributeValue, Chunk
from ragtrace.traces.extract._attributes import first_text, found_text
from ragtrace.traces.extract._content import FoundValue, best, broken_damage, parse_loosely
from ragtrace.traces.extract._documents import find_documents
from ragtrace.traces.extract._flat_lists import flat_documents, flat_messages, has_prefix, unflattened
from ragtrace.traces.extract._messages import Message, last_user_text, message_text
from ragtrace.traces.extract._payload import answer_in, prompt_in, question_in, texts_for_synthesis
from ragtrace.traces.extract._span_reader import Role, SpanReading, ToolResult
from ragtrace.traces.extract._tools import handed_documents, tool_documents
from ragtrace.traces.trace import Span

NAME: Final = "openinference"

_ROLES = {
    semconv.OI_RETRIEVER: Role.RETRIEVAL,
    semconv.OI_RERANKER: Role.RERANK,
    semconv.OI_LLM: Role.GENERATION,
    semconv.OI_TOOL: Role.TOOL,
}
_REFERENCE_KEYS = ("reference", "expected", "ground_truth", "expected_output")
_JSON = "application/json"
_PLAIN = "text/plain"


def read(span: Span) -> SpanReading:
    """Read ``openinference.span.kind`` and its attributes."""
    role = _role(span)
    return SpanReading(
        span=span,
        convention=NAME,
        role=role,
        question=_question(span, role),
        query=_query(span, role),
        documents=_documents(span, role),
        tool=first_text(span, semconv.OI_TOOL_NAME) or span.name if role is Role.TOOL else None,
        handed=_handed(span) if role is Role.GENERATION else (),
        answer=_answer(span, role),
        reference=_reference(span),
        model=first_text(
            span, semconv.OI_RESPONSE_MODEL_NAME, semconv.OI_MODEL_NAME, semconv.OI_REQUEST_MODEL_NAME
        ),
        session_id=first_text(span, semconv.SESSION_ID),
        prompt_version=first_text(span, semconv.OI_PROMPT_VERSION),
    )


def prompt(span: Span) -> FoundValue[tuple[Message, ...]] | None:
    """Read the model's input: its messages, else the whole input."""
    key = semconv.OI_INPUT_VALUE
    if span.attributes.get(semconv.OI_KIND) != semconv.OI_LLM:
        return None
    listed = prompt_in(_prompt(span), attribute=f"{semconv.OI_INPUT_MESSAGES}.*", convention=NAME)
    return listed or prompt_in(span.attributes.get(key), attribute=key, convention=NAME)


def _role(span: Span) -> Role | None:
    kind = span.attributes.get(semconv.OI_KIND)
    if kind == semconv.OI_CHAIN and texts_for_synthesis(span, semconv.OI_INPUT_VALUE):
        return Role.RERANK
    if kind in (semconv.OI_CHAIN, semconv.OI_AGENT):
        return Role.CALL if semconv.OI_INPUT_VALUE in span.attributes else None
    if isinstance(kind, str):
        return _ROLES.get(kind)
    # beyond 128 attributes the SDK drops the oldest: after a long list, the kind is gone but documents remain
    if has_prefix(span, semconv.OI_RERANKER_OUTPUT_DOCUMENTS):
        return Role.RERANK
    return Role.RETRIEVAL if has_prefix(span, semconv.OI_RETRIEVAL_DOCUMENTS) else None


def _documents(span: Span, role: Role | None) -> FoundValue[tuple[Chunk, ...]] | None:
    if role is Role.TOOL:
        key = semconv.OI_OUTPUT_VALUE
        return tool_documents(span.attributes.get(key), attribute=key, convention=NAME, span_id=span.span_id)
    if role not in (Role.RETRIEVAL, Role.RERANK):
        return None
    texts = texts_for_synthesis(span, semconv.OI_INPUT_VALUE)
    if texts:
        key = semconv.OI_INPUT_VALUE
        return find_documents(texts, attribute=key, convention=NAME, span_id=span.span_id)
    is_rerank = role is Role.RERANK
    prefix = semconv.OI_RERANKER_OUTPUT_DOCUMENTS if is_rerank else semconv.OI_RETRIEVAL_DOCUMENTS
    flat = unflattened(span.attributes, prefix, "document")
    logged = _logged_documents(span)
    named = {
        index: {**logged[index], **fields}
        if index < len(logged) and logged[index].get("page_content") == fields.get("content")
        else fields
        for index, fields in flat.items()
    }
    found = flat_documents(span, named, attribute=f"{prefix}.*", convention=NAME)
    return best(found, _whole_list(span, logged))


def _logged_documents(span: Span) -> tuple[Mapping[str, AttributeValue], ...]:
    """Read LangChain's documents from ``output.value``, with the ids that the flat list omits."""
    raw = first_text(span, semconv.OI_OUTPUT_VALUE)
    parsed = parse_loosely(raw) if raw else None
    listed = parsed.get("documents") if isinstance(parsed, Mapping) else None
    items = listed if isinstance(listed, tuple) else ()
    documents = tuple(each for each in items if isinstance(each, Mapping))
    return documents if len(documents) == len(items) else ()


def _whole_list(
    span: Span, logged: tuple[Mapping[str, AttributeValue], ...]
) -> FoundValue[tuple[Chunk, ...]] | None:
    if not logged:
        return None
    return find_documents(logged, attribute=semconv.OI_OUTPUT_VALUE, convention=NAME, span_id=span.span_id)


def _query(span: Span, role: Role | None) -> FoundValue[str] | None:
    if role in (Role.RETRIEVAL, Role.TOOL):
        return _from_input(span)
    if role is Role.RERANK:
        key = semconv.OI_RERANKER_QUERY
        return found_text(first_text(span, key), attribute=key, convention=NAME, how="its text")
    return None


def _question(span: Span, role: Role | None) -> FoundValue[str] | None:
    if role is Role.CALL:
        return _from_input(span)
    if role is not Role.GENERATION:
        return None
    text = last_user_text(_prompt(span))
    return _from_messages(text, semconv.OI_INPUT_MESSAGES, "the last message of the user")


def _answer(span: Span, role: Role | None) -> FoundValue[str] | None:
    if role is Role.CALL:
        return _from_output(span)
    if role is not Role.GENERATION:
        return None
    spoken = flat_messages(span, semconv.OI_OUTPUT_MESSAGES, "message")
    text = next((text for each in spoken if (text := message_text(each))), None)
    first = _from_messages(text, semconv.OI_OUTPUT_MESSAGES, "text of the first choice")
    if spoken and first is None:
        return None  # a tool call: `output.value` holds no answer
    return best(first, _completion(span)) or _from_output(span)


def _prompt(span: Span) -> tuple[Message, ...]:
    return flat_messages(span, semconv.OI_INPUT_MESSAGES, "message")


def _handed(span: Span) -> tuple[ToolResult, ...]:
    return handed_documents(
        _prompt(span), attribute=f"{semconv.OI_INPUT_MESSAGES}.*", convention=NAME, span_id=span.span_id
    )


def _from_messages(text: str | None, prefix: str, how: str) -> FoundValue[str] | None:
    return found_text(text, attribute=f"{prefix}.*", convention=NAME, how=how, raw=text)


def _completion(span: Span) -> FoundValue[str] | None:
    key = "llm.choices.0.completion.text"
    return found_text(
        first_text(span, key), attribute=key, convention=NAME, how="its text", raw=span.attributes.get(key)
    )


def _reference(span: Span) -> FoundValue[str] | None:
    metadata = first_text(span, semconv.OI_METADATA)
    parsed = parse_loosely(metadata) if metadata else None
    if not isinstance(parsed, Mapping):
        return None
    text = next((parsed[key] for key in _REFERENCE_KEYS if isinstance(parsed.get(key), str)), None)
    return found_text(
        text if isinstance(text, str) else None,
        attribute=semconv.OI_METADATA,
        convention=NAME,
        how="the reference in it",
    )


def _from_input(span: Span) -> FoundValue[str] | None:
    return _from_value(span, semconv.OI_INPUT_VALUE, semconv.OI_INPUT_MIME_TYPE, question_in)


def _from_output(span: Span) -> FoundValue[str] | None:
    return _from_value(span, semconv.OI_OUTPUT_VALUE, semconv.OI_OUTPUT_MIME_TYPE, answer_in)


def _from_value(span: Span, key: str, mime_key: str, text_in: _TextIn) -> FoundValue[str] | None:
    raw, mime = first_text(span, key), span.attributes.get(mime_key)
    if raw is None or mime == _PLAIN:
        return found_text(raw, attribute=key, convention=NAME, how="its text", raw=raw)
    if mime == _JSON and raw.lstrip()[:1] in ("{", "[") and parse_loosely(raw) == raw:
        damage = broken_damage(raw, key)
        return FoundValue(value=None, attribute=key, convention=NAME, how="its text", damage=damage)
    return text_in(raw, attribute=key, convention=NAME)


class _TextIn(Protocol):
    def __call__(
        self, value: AttributeValue, *, attribute: str, convention: str
    ) -> FoundValue[str] | None: ...
