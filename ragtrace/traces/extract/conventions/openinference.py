"""OpenInference, as Phoenix's and Arize's instrumentations write it: lists as ``prefix.<i>.suffix``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ragtrace import semconv
from ragtrace.model import AttributeValue, Chunk, SkipReason
from ragtrace.traces.extract.attributes import first_text, found_text
from ragtrace.traces.extract.content import (
    Damage,
    Found,
    best,
    broken_damage,
    cut_damage,
    is_cut_by_tempo,
    parse_loosely,
)
from ragtrace.traces.extract.documents import MAX_CHUNKS, chunk_of, with_text_damage
from ragtrace.traces.extract.messages import last_answer_text, last_user_text, message_text, messages_of
from ragtrace.traces.extract.reading import Reading, Role
from ragtrace.traces.trace import Span

__all__ = ["NAME", "read"]

NAME: Final = "openinference"

_ROLES = {
    semconv.OI_RETRIEVER: Role.RETRIEVAL,
    semconv.OI_RERANKER: Role.RERANK,
    semconv.OI_LLM: Role.GENERATION,
}
_QUESTION_KEYS = ("input", "query", "question", "user_input", "query_str", "str_or_query_bundle")
_ANSWER_KEYS = ("answer", "output", "result", "response", "text", "content")
_REFERENCE_KEYS = ("reference", "expected", "ground_truth", "expected_output")
_JSON = "application/json"
_PLAIN = "text/plain"
_MAX_WRAPPERS = 4


def read(span: Span) -> Reading:
    """Read ``openinference.span.kind`` and what belongs to it."""
    role = _role(span)
    return Reading(
        span=span,
        convention=NAME,
        role=role,
        question=_question(span, role),
        query=_query(span, role),
        documents=_documents(span, role),
        answer=_answer(span, role),
        reference=_reference(span),
        model=first_text(
            span, semconv.OI_RESPONSE_MODEL_NAME, semconv.OI_MODEL_NAME, semconv.OI_REQUEST_MODEL_NAME
        ),
        session_id=first_text(span, semconv.SESSION_ID),
        prompt_version=first_text(span, semconv.OI_PROMPT_VERSION),
    )


def _role(span: Span) -> Role | None:
    kind = span.attributes.get(semconv.OI_KIND)
    if kind in (semconv.OI_CHAIN, semconv.OI_AGENT):
        return Role.CALL if semconv.OI_INPUT_VALUE in span.attributes else None
    if isinstance(kind, str):
        return _ROLES.get(kind)
    # the SDK drops the oldest attributes beyond 128: of a long list the kind goes first, the documents stay
    if _has_prefix(span, semconv.OI_RERANKER_OUTPUT_DOCUMENTS):
        return Role.RERANK
    return Role.RETRIEVAL if _has_prefix(span, semconv.OI_RETRIEVAL_DOCUMENTS) else None


def _has_prefix(span: Span, prefix: str) -> bool:
    return any(key.startswith(f"{prefix}.") for key in span.attributes)


def _documents(span: Span, role: Role | None) -> Found[tuple[Chunk, ...]] | None:
    if role not in (Role.RETRIEVAL, Role.RERANK):
        return None
    is_rerank = role is Role.RERANK
    prefix = semconv.OI_RERANKER_OUTPUT_DOCUMENTS if is_rerank else semconv.OI_RETRIEVAL_DOCUMENTS
    documents = _unflattened(span, prefix, "document")
    if not documents:
        return None
    indices = sorted(documents)[:MAX_CHUNKS]
    chunks = tuple(chunk_of(documents[index], index, span.span_id) for index in indices)
    attribute = f"{prefix}.*"
    return Found(
        value=chunks,
        attribute=attribute,
        convention=NAME,
        how=f"{len(chunks)} documents",
        damage=_dropped(span, documents, attribute) or _cut(chunks, attribute),
    )


def _unflattened(span: Span, prefix: str, item: str) -> dict[int, dict[str, AttributeValue]]:
    """Put ``prefix.<i>.item.<field>`` together again. Indices keep their gaps."""
    found: dict[int, dict[str, AttributeValue]] = {}
    for key, value in span.attributes.items():
        if not key.startswith(f"{prefix}."):
            continue
        index, _, rest = key[len(prefix) + 1 :].partition(".")
        if _is_index(index) and rest.startswith(f"{item}."):
            found.setdefault(int(index), {})[rest[len(item) + 1 :]] = value
    return found


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len("999999")


def _dropped(span: Span, documents: Mapping[int, object], attribute: str) -> Damage | None:
    missing = max(documents) + 1 - len(documents)
    if len(documents) > MAX_CHUNKS:
        detail = f"`{attribute}` holds {len(documents)} documents: ragtrace reads the first {MAX_CHUNKS}"
        return Damage(reason=SkipReason.TRUNCATED, detail=detail)
    if not missing and not span.dropped_attributes_count:
        return None
    detail = (
        f"{span.dropped_attributes_count} attributes of the span were dropped and {missing} documents of "
        f"`{attribute}` are missing: raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"
    )
    return Damage(reason=SkipReason.INCOMPLETE, detail=detail)


def _cut(chunks: tuple[Chunk, ...], attribute: str) -> Damage | None:
    if any(chunk.text and is_cut_by_tempo(chunk.text) for chunk in chunks):
        return cut_damage(attribute)
    return with_text_damage(chunks, attribute)


def _query(span: Span, role: Role | None) -> Found[str] | None:
    if role is Role.RETRIEVAL:
        return _from_value(span, semconv.OI_INPUT_VALUE, semconv.OI_INPUT_MIME_TYPE, _QUESTION_KEYS)
    if role is Role.RERANK:
        key = semconv.OI_RERANKER_QUERY
        return found_text(first_text(span, key), attribute=key, convention=NAME, how="its text")
    return None


def _question(span: Span, role: Role | None) -> Found[str] | None:
    if role is Role.CALL:
        return _from_value(span, semconv.OI_INPUT_VALUE, semconv.OI_INPUT_MIME_TYPE, _QUESTION_KEYS)
    if role is Role.GENERATION:
        return _last_user_message(span)
    return None


def _answer(span: Span, role: Role | None) -> Found[str] | None:
    if role is Role.CALL:
        return _from_value(span, semconv.OI_OUTPUT_VALUE, semconv.OI_OUTPUT_MIME_TYPE, _ANSWER_KEYS)
    if role is Role.GENERATION:
        value = _from_value(span, semconv.OI_OUTPUT_VALUE, semconv.OI_OUTPUT_MIME_TYPE, _ANSWER_KEYS)
        return best(_first_output_message(span), _completion(span)) or value
    return None


def _last_user_message(span: Span) -> Found[str] | None:
    messages = _unflattened(span, semconv.OI_INPUT_MESSAGES, "message")
    for index in sorted(messages, reverse=True):
        if messages[index].get("role") in ("user", "human"):
            return _message(messages[index], f"{semconv.OI_INPUT_MESSAGES}.{index}.message", "its text")
    return None


def _first_output_message(span: Span) -> Found[str] | None:
    messages = _unflattened(span, semconv.OI_OUTPUT_MESSAGES, "message")
    if not messages:
        return None
    first = min(messages)
    return _message(
        messages[first], f"{semconv.OI_OUTPUT_MESSAGES}.{first}.message", "text of the first choice"
    )


def _message(fields: Mapping[str, AttributeValue], attribute: str, how: str) -> Found[str] | None:
    texts = [fields.get("content")] if "content" in fields else _content_parts(fields)
    raw = "\n".join(text for text in texts if isinstance(text, str))
    return found_text(raw or None, attribute=f"{attribute}.*", convention=NAME, how=how, raw=raw)


def _content_parts(fields: Mapping[str, AttributeValue]) -> Iterable[AttributeValue]:
    """Read ``contents.<j>.message_content.{type,text}`` in order."""
    indices = {key.split(".")[1] for key in fields if key.startswith("contents.") and key.count(".") >= 2}
    for index in sorted(filter(_is_index, indices), key=int):
        if fields.get(f"contents.{index}.message_content.type", "text") == "text":
            yield fields.get(f"contents.{index}.message_content.text")


def _completion(span: Span) -> Found[str] | None:
    key = "llm.choices.0.completion.text"
    return found_text(
        first_text(span, key), attribute=key, convention=NAME, how="its text", raw=span.attributes.get(key)
    )


def _reference(span: Span) -> Found[str] | None:
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


def _from_value(span: Span, key: str, mime_key: str, names: tuple[str, ...]) -> Found[str] | None:
    """Read ``input.value`` or ``output.value``: plain text, or JSON that holds it under a usual name."""
    raw = first_text(span, key)
    if raw is None:
        return None
    mime = span.attributes.get(mime_key)
    parsed = raw if mime == _PLAIN else parse_loosely(raw)
    if isinstance(parsed, str):
        if mime == _JSON and parsed == raw and raw.lstrip()[:1] in ("{", "["):
            damage = broken_damage(raw, key)
            return Found(value=None, attribute=key, convention=NAME, how="its text", damage=damage)
        return found_text(parsed, attribute=key, convention=NAME, how="its text", raw=raw)
    is_answer = names is _ANSWER_KEYS
    text, name = _named_text(parsed, names, is_answer=is_answer)
    return found_text(text, attribute=key, convention=NAME, how=f"{name} in its JSON")


def _named_text(value: AttributeValue, names: tuple[str, ...], *, is_answer: bool) -> tuple[str | None, str]:
    """Find a text under one of the names, in wrappers of a few levels; else in the messages of a chat."""
    path: list[str] = []
    node = value
    while isinstance(node, Mapping) and len(path) < _MAX_WRAPPERS:
        name = next((name for name in names if node.get(name)), None)
        if name is None:
            break
        path.append(name)
        node = node[name]
    if isinstance(node, str):
        return node, f"`{'.'.join(path)}`"
    messages, _ = messages_of(node)
    text = last_answer_text(messages) if is_answer else last_user_text(messages)
    if text is None and is_answer and isinstance(node, Mapping):
        text = message_text(node) or _generation_text(node)
    return text, "the last message"


def _generation_text(node: Mapping[str, AttributeValue]) -> str | None:
    """Read LangChain's ``{"generations": [[{"text": …}]]}``."""
    generations = node.get("generations")
    while isinstance(generations, tuple) and generations:
        generations = generations[0]
    text = generations.get("text") if isinstance(generations, Mapping) else None
    return text if isinstance(text, str) else None
