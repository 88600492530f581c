"""Convert retrieved documents to chunks, whatever their keys."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ragtrace import semconv
from ragtrace.model import AttributeValue, Chunk, SkipReason
from ragtrace.traces.extract._content import (
    ContentDamage,
    FoundValue,
    broken_damage,
    clean,
    is_broken_json,
    number_of,
    parse_loosely,
    recover_elements,
    text_damage,
    without_excess,
)

MAX_CHUNKS = 1_000
_ID_KEYS = ("id", "doc_id", "chunk_id", "node_id", "document_id", "id_", "file_id", "source")
_TEXT_KEYS = (
    "content",
    "text",
    "page_content",
    "pageContent",
    "document",
    "chunk",
    "body",
    "passage",
    "snippet",
    "chunk_text",
)
_METADATA_KEYS = ("metadata", "meta")
_SCORE_KEYS = ("score", "relevance_score", "similarity", "certainty")
_INNER_KEYS = ("node", "kwargs", "document", "payload", "entity")
_FIRST_KEY = re.compile(
    rf'\{{"({"|".join((*_ID_KEYS, *_TEXT_KEYS, *_METADATA_KEYS, *_SCORE_KEYS, *_INNER_KEYS))})"'
)


def find_documents(
    value: AttributeValue, *, attribute: str, convention: str, span_id: str
) -> FoundValue[tuple[Chunk, ...]]:
    """Read a list of documents: structured, as one JSON string, or as one JSON string per element."""
    items, damage = _items(value, attribute)
    parsed = [parse_loosely(item) for item in items[:MAX_CHUNKS]]
    broken = _broken(items, parsed)
    chunks = tuple(
        chunk_of(item if isinstance(item, Mapping) else {"text": item}, rank, span_id)
        for rank, item in enumerate(parsed)
        if rank not in broken
    )
    if broken:
        detail = f"{len(broken)} of {len(items)} documents in `{attribute}` are incomplete JSON"
        damage = ContentDamage(reason=SkipReason.TRUNCATED, detail=detail)
    if len(items) > MAX_CHUNKS:
        damage = ContentDamage(
            reason=SkipReason.TRUNCATED,
            detail=f"`{attribute}` holds {len(items)} documents: ragtrace reads the first {MAX_CHUNKS}",
        )
    return FoundValue(
        value=without_marks(chunks) or (None if damage else ()),
        attribute=attribute,
        convention=convention,
        how=f"{len(chunks)} documents",
        damage=damage or with_text_damage(chunks, attribute),
    )


def chunk_of(document: Mapping[str, AttributeValue], rank: int, span_id: str) -> Chunk:
    """Read one document. Without an id, it gets one from a hash of its text."""
    document = _unwrapped(document)
    metadata = _metadata(document)
    text, is_cut = _text(document)
    if text is None:
        text, is_cut = _text(metadata)
    score = next((found for key in _SCORE_KEYS if (found := number_of(document.get(key))) is not None), None)
    distance = number_of(document.get("distance"))
    return Chunk(
        id=_first_id(document) or _first_id(metadata) or _id_from(text, rank),
        text=text,
        rank=rank,
        score=score if score is not None else distance,
        score_kind="distance" if score is None and distance is not None else "similarity",
        metadata=metadata,
        truncated=is_cut or document.get("truncated") is True,
        span_id=span_id,
    )


def has_text(document: Mapping[str, AttributeValue]) -> bool:
    """Return whether the document has its text under a usual key."""
    inner = _unwrapped(document)
    return _text(inner)[0] is not None or _text(_metadata(inner))[0] is not None


def is_unnamed(chunk: Chunk) -> bool:
    """Return whether the chunk's id is a hash of its text."""
    return chunk.id == _id_from(chunk.text, chunk.rank)


def with_text_damage(chunks: Sequence[Chunk], attribute: str) -> ContentDamage | None:
    """Return the damage of the chunks' texts, if any."""
    redacted = next(
        (damage for chunk in chunks if (damage := text_damage(chunk.text or "", attribute))), None
    )
    without_text = sum(chunk.text is None for chunk in chunks)
    cut = sum(chunk.truncated for chunk in chunks)
    if redacted:
        return redacted
    if without_text:
        detail = (
            f"{without_text} of {len(chunks)} documents in `{attribute}` have no text: {_remedy(attribute)}"
        )
        return ContentDamage(reason=SkipReason.NO_CONTENT, detail=detail)
    if cut:
        detail = f"{cut} of {len(chunks)} documents in `{attribute}` were cut"
        return ContentDamage(reason=SkipReason.TRUNCATED, detail=detail)
    return None


def without_marks(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """Remove texts that are only a redaction mark."""
    return tuple(
        replace(chunk, text=None, id=f"unnamed-{chunk.rank}" if is_unnamed(chunk) else chunk.id)
        if chunk.text and text_damage(chunk.text, "")
        else chunk
        for chunk in chunks
    )


def _remedy(attribute: str) -> str:
    if attribute == semconv.RETRIEVAL_DOCUMENTS:
        return "OpenTelemetry's convention has ids and scores only, record it with `@ragtrace.retrieval`"
    return "turn on content capture in the instrumentation"


def joined(lists: Iterable[Sequence[Chunk]]) -> tuple[Chunk, ...]:
    """Join the chunks of several retrievals, each chunk once, with unique ids.

    The same id with another text is another chunk, because many producers use the file as the id of all its
    chunks: its id gets a number as suffix.
    """
    chosen: dict[str, Chunk] = {}
    texts: set[str] = set()
    offset = 0
    for chunks in lists:
        for chunk in chunks:
            if chunk.text in texts or (chunk.text is None and chunk.id in chosen):
                continue
            texts.update([chunk.text] if chunk.text is not None else [])
            unique = _unused(chunk.id, chosen)
            chosen[unique] = replace(chunk, id=unique, rank=offset + chunk.rank)
        offset += max((chunk.rank + 1 for chunk in chunks), default=0)
    return tuple(chosen.values())


def _broken(items: Sequence[AttributeValue], parsed: Sequence[AttributeValue]) -> frozenset[int]:
    """Find the elements that are truncated JSON documents: SDKs truncate each string of a list.

    A plain text may look like truncated JSON. It counts as a document if its neighbors do, or by its first
    key.
    """
    among_documents = any(isinstance(each, Mapping) for each in parsed)
    return frozenset(
        rank
        for rank, (raw, item) in enumerate(zip(items, parsed, strict=False))
        if isinstance(raw, str)
        and is_broken_json(raw, item)
        and (among_documents or _FIRST_KEY.match(raw.lstrip()))
    )


def _items(value: AttributeValue, attribute: str) -> tuple[Sequence[AttributeValue], ContentDamage | None]:
    parsed = parse_loosely(value)
    if isinstance(parsed, Mapping):
        listed = next((parsed[key] for key in ("documents", "nodes") if key in parsed), None)
        return (listed, None) if isinstance(listed, tuple) else ((parsed,), None)
    if isinstance(parsed, tuple):
        return parsed, None
    if not isinstance(parsed, str):
        return (), None
    return recover_elements(parsed), broken_damage(parsed, attribute)


def _unwrapped(document: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
    """Merge the fields of a wrapped document with the outer ones: LlamaIndex's node, LangChain's kwargs."""
    wrapped = (document[key] for key in _INNER_KEYS if key in document)
    inner = next((each for each in wrapped if isinstance(each, Mapping)), None)
    return {**document, **inner} if isinstance(inner, Mapping) else document


def _metadata(document: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
    value = next((document[key] for key in _METADATA_KEYS if document.get(key)), None)
    parsed = parse_loosely(value)
    return parsed if isinstance(parsed, Mapping) else {}


def _text(document: Mapping[str, AttributeValue]) -> tuple[str | None, bool]:
    value = next((document[key] for key in _TEXT_KEYS if isinstance(document.get(key), str)), None)
    if value is None:
        parts = next(
            (document[key] for key in _TEXT_KEYS if isinstance(document.get(key), tuple | Mapping)), None
        )
        value = _joined_parts(parts)
    if not isinstance(value, str) or not value:
        return None, False
    text, is_cut = without_excess(clean(value))
    return text, is_cut


def _joined_parts(parts: AttributeValue) -> str | None:
    """Join a text that is written as parts: ``[{"text": …}]``, ``{"text": …}``."""
    items = parts if isinstance(parts, tuple) else (parts,)
    texts = [
        text
        for each in items
        if isinstance(each, Mapping)
        for text in (each.get("text", each.get("content")),)
        if isinstance(text, str)
        and str(each.get("type", "text")).lower() in ("text", "output_text", "input_text")
    ]
    return "\n".join(texts) if texts and len(texts) == len(items) else None


def _first_id(document: Mapping[str, AttributeValue]) -> str | None:
    values = (document.get(key) for key in _ID_KEYS)
    return next((clean(str(value)) for value in values if _is_id(value)), None)


def _is_id(value: AttributeValue) -> bool:
    return (isinstance(value, str) and value != "") or (
        isinstance(value, int) and not isinstance(value, bool)
    )


def _id_from(text: str | None, rank: int) -> str:
    return f"unnamed-{rank}" if text is None else hashlib.sha256(text.encode()).hexdigest()[:16]


def _unused(identity: str, chosen: Mapping[str, Chunk]) -> str:
    if identity not in chosen:
        return identity
    number = 2
    while f"{identity}#{number}" in chosen:
        number += 1
    return f"{identity}#{number}"
