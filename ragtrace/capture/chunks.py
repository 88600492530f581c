"""Retrieved chunks of any shape, read and written as JSON: each chunk once."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from json import JSONEncoder
from typing import Any, NamedTuple

from ragtrace.capture.guard import guarded
from ragtrace.capture.policy import Passage, cut, json_string, plain_text
from ragtrace.model import Chunk, Part

__all__ = ["ChunkDocuments", "chunk_documents"]

MAX_CHUNKS = 5_000
"""Of one retrieval: the rest is left out and ``context`` marked as truncated."""

_TEXT_NAMES = ("text", "content", "page_content")
_ID_NAMES = ("id", "chunk_id", "node_id", "id_", "document_id", "doc_id")
_METADATA_ID_NAMES = ("id", "chunk_id")
_METADATA_NAMES = ("metadata", "meta")
_PAIR = 2


class ChunkDocuments(NamedTuple):
    """The documents of one retrieval in the two forms that are written."""

    elements: list[str]
    """One JSON object a chunk; a score that is not known is left out."""
    document: str
    """A JSON list of the same objects, in which ``score`` always stands, ``null`` where it is not known: the
    pinned schema of ``gen_ai.retrieval.documents`` allows it, and 0 would be an invented number."""


def chunk_documents(items: Iterable[object], passage: Passage) -> ChunkDocuments:
    """Write the chunks as JSON, within the limits of the policy.

    An item is a [`Chunk`][ragtrace.model.Chunk], a mapping, an object with ``text``, ``content`` or
    ``page_content``, a pair of one of these and a score, or a string. A chunk without an id is named
    ``sha256(text)[:16]``.
    """
    elements: list[str] = []
    listed: list[str] = []
    budget = passage.policy.max_chunks_total_bytes
    for rank, item in enumerate(items):
        if rank == MAX_CHUNKS:
            passage.truncated(Part.CONTEXT)
            break
        found = _read(item) or _Found()
        element, used = _element(found, rank, budget, passage)
        budget -= used
        elements.append(element)
        is_scored = found.score is not None and found.score_key == "score"
        listed.append(element if is_scored else '{"score":null,' + element[1:])
    return ChunkDocuments(elements, "[" + ",".join(listed) + "]")


class _Found(NamedTuple):
    id: object = None
    text: object = None
    score: float | None = None
    metadata: Mapping[Any, object] | None = None
    truncated: bool = False
    score_key: str = "score"


def _element(found: _Found, rank: int, budget: int, passage: Passage) -> tuple[str, int]:
    """Write one chunk; return it with the bytes of the budget it took."""
    text = passage.redacted(found.text, Part.CONTEXT)
    fields = [f'{{"id":{json_string(_id_of(found, text, rank))}']
    limit = min(passage.policy.max_chunk_bytes, budget)
    used, is_cut = 0, found.truncated
    if found.score is not None:
        fields.append(f'"{found.score_key}":{found.score!r}')
    if text is not None:
        kept, used, shortened = cut(text, limit)
        fields.append(f'"content":{json_string(kept)}')
        is_cut = is_cut or shortened
    if found.metadata and passage.policy.capture:
        metadata = _encode(_plain(found.metadata, passage))
        size = len(metadata.encode())
        if used + size <= limit:
            fields.append(f'"metadata":{metadata}')
            used += size
        else:
            is_cut = True
    if is_cut:
        fields.append('"truncated":true')
        passage.truncated(Part.CONTEXT)
    return ",".join(fields) + "}", used


def _id_of(found: _Found, text: str | None, rank: int) -> str:
    if found.id is not None:
        return plain_text(found.id)
    known = text if text is not None else (plain_text(found.text) if found.text is not None else None)
    if known is None:
        return f"unnamed-{rank}"
    return hashlib.sha256(known.encode()).hexdigest()[:16]


@guarded
def _read(item: object) -> _Found:
    if type(item) is dict:  # by far the most frequent, and asking for a Mapping is slow
        return _from_mapping(item)
    if isinstance(item, Chunk):
        key = "distance" if item.score_kind == "distance" else "score"
        return _Found(item.id, item.text, _number(item.score), item.metadata, item.truncated, key)
    if isinstance(item, str | bytes):
        return _Found(text=item)
    if isinstance(item, Mapping):
        return _from_mapping(item)
    if isinstance(item, Sequence) and len(item) == _PAIR:
        score = _number(item[1])
        return (_read(item[0]) or _Found())._replace(score=score)
    return _from_object(item)


def _from_mapping(item: Mapping[Any, object]) -> _Found:
    get = item.get
    identity, text, metadata = get("id"), get("text"), get("metadata")
    return _found(
        identity if identity is not None else _first(map(get, _ID_NAMES)),
        text if text is not None else _first(map(get, _TEXT_NAMES)),
        get("score"),
        metadata if metadata is not None else get("meta"),
    )


def _from_object(item: object) -> _Found:
    held = getattr(item, "node", item)  # a node held together with its score
    return _found(
        _first_attribute(held, _ID_NAMES),
        _first_attribute(held, _TEXT_NAMES),
        getattr(item, "score", None),
        _first_attribute(held, _METADATA_NAMES),
    )


def _first(values: Iterable[object]) -> object:
    for value in values:
        if value is not None:
            return value
    return None


def _found(identity: object, text: object, score: object, metadata: object) -> _Found:
    known = metadata if metadata is not None and isinstance(metadata, Mapping) else None
    if identity is None and known is not None:
        identity = next((known[name] for name in _METADATA_ID_NAMES if known.get(name) is not None), None)
    return _Found(identity, text, _number(score), known)


def _first_attribute(item: object, names: Sequence[str]) -> object:
    for name in names:
        value = getattr(item, name, None)
        if value is not None and not callable(value):
            return value
    return None


def _number(value: object) -> float | None:
    if type(value) is float:
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | bytes | bool):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]  # numpy and decimal numbers know how
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


_DEEPEST = 8
_INT64 = 2**63


def _plain(value: object, passage: Passage, depth: int = 0) -> object:
    """Return metadata as JSON values, its strings redacted."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < _INT64:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth < _DEEPEST:
        if isinstance(value, Mapping):
            return {plain_text(key): _plain(inner, passage, depth + 1) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [_plain(inner, passage, depth + 1) for inner in value]
    return passage.redacted(value, Part.CONTEXT)


_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
