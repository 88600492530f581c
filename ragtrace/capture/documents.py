"""Read retrieved documents and messages of any shape, and write them as JSON within the content policy.

Documents of an application, a framework or a vector store are known by the names of their fields. A distance
stays a distance, not a score. Messages get the parts form of the OpenTelemetry GenAI conventions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, islice, zip_longest
from numbers import Number
from typing import Any, NamedTuple

from ragtrace.capture._guard import guarded, note_unread
from ragtrace.capture.privacy.policy import MESSAGES, ContentFilter
from ragtrace.capture.values import (
    MAX_VALUES,
    answer_in,
    compact_json,
    cut,
    field,
    finite,
    first_field,
    json_string,
    name,
    plain,
    plain_text,
)
from ragtrace.model import Chunk, Part

_TEXT_NAMES = ("text", "content", "page_content")
_STORED_TEXT_NAMES = (*_TEXT_NAMES, "document", "chunk", "passage", "body")
_STORED_NAMES = ("payload", "properties", "entity", "_source", "document", "metadata")
"""Fields in which vector stores keep an application's data of a vector."""
_OWN_NAMES = ("payload", "properties")
"""Those with names of the application's own: without a known one, the longest string is the text."""
_ID_NAMES = ("id", "chunk_id", "node_id", "id_", "document_id", "doc_id", "uuid", "_id")
_METADATA_ID_NAMES = ("id", "chunk_id")
_METADATA_NAMES = ("metadata", "meta", "payload", "properties")
_SCORE_NAMES = ("score", "_score", "relevance_score", "certainty")
_LIST_NAMES = (
    *("documents", "docs", "source_documents", "source_nodes", "nodes", "points", "objects", "matches"),
    *("hits", "chunks", "contexts", "context", "results", "items", "data"),
)
_PAIR = 2
_DEEPEST_LIST = 3
MAX_COLUMNS = 100


class FoundDocument(NamedTuple):
    """The parts of a document that could be read."""

    id: object = None
    text: object = None
    score: float | None = None
    metadata: Mapping[Any, object] | None = None
    truncated: bool = False
    score_key: str = "score"


def documents_in(result: object) -> Collection[object] | None:
    """Return the documents in a retrieval's return value, or ``None`` if there are none.

    The value is a list of documents, one document, or an object with such a list: the ``documents`` of
    Haystack's retrievers, Qdrant's ``points``, Weaviate's ``objects``, Chroma's column lists (one per query).
    An iterator is not consumed.
    """
    return result if type(result) is list and not _is_nested(result) else _documents(result, 0)


@guarded
def read_document(item: object) -> FoundDocument:
    """Return the readable parts of a document.

    A document is a [`Chunk`][ragtrace.model.Chunk], a string, a mapping or object with fields such as
    ``text``, ``content`` or ``page_content``, or with a ``payload`` that has them, a pair of one of these and
    a score, or a table row.
    """
    if type(item) is dict:  # the most frequent case; checking for a Mapping is slow
        return _from_mapping(item)
    if isinstance(item, Chunk):
        key = "distance" if item.score_kind == "distance" else "score"
        return FoundDocument(item.id, item.text, finite(item.score), item.metadata, item.truncated, key)
    if isinstance(item, str | bytes):
        return FoundDocument(text=item)
    if isinstance(item, Mapping):
        return _from_mapping(item)
    if item is None or isinstance(item, Number):
        return _found(None, None, None, None, item)
    if isinstance(item, Sequence) and not hasattr(item, "_fields"):
        return _from_sequence(item)
    return _from_object(item)


@guarded
def _documents(result: object, depth: int) -> Collection[object] | None:
    if result is None or depth == _DEEPEST_LIST:
        return None
    if isinstance(result, str | bytes) or (depth == 0 and _holds_text(result)):
        return (result,)
    if isinstance(result, Mapping) and isinstance(result.get("ids"), list):
        return _from_columns(result)
    if isinstance(result, Collection) and not isinstance(result, Mapping):
        return list(chain.from_iterable(result)) if _is_nested(result) else _plain_collection(result)
    held = (field(result, name) for name in _LIST_NAMES)
    found = (_documents(inner, depth + 1) for inner in held if inner is not None)
    return next((documents for documents in found if documents is not None), None)


def _holds_text(result: object) -> bool:
    return first_field(result, _TEXT_NAMES) is not None and not isinstance(result, list | tuple)


def _is_nested(result: Collection[object]) -> bool:
    """Return whether this is a list of results per query, not a list of pairs or rows."""
    if not isinstance(result, list) or not result or type(result[0]) is not list:
        return False
    first = result[0]
    scalars = (str, Number) if len(result) > 1 else Number
    return not any(isinstance(value, scalars) for value in first[:MAX_COLUMNS])


def _plain_collection(result: Collection[object]) -> Collection[object] | None:
    # items of a matrix of numbers or of a table are not documents
    matrices = (result, *result) if isinstance(result, tuple) else (result,)
    return None if any(hasattr(matrix, "shape") for matrix in matrices) else result


def _from_columns(result: Mapping[Any, Any]) -> Collection[object]:
    names = {"ids": "id", "documents": "text", "metadatas": "metadata", "distances": "distance"}
    count = len(_column(result.get("ids")))
    columns = [_column(result.get(name))[:count] for name in names]
    return [dict(zip(names.values(), row, strict=True)) for row in zip_longest(*columns)]


def _column(column: Any) -> Sequence[object]:
    if not isinstance(column, list):
        return ()
    nested = bool(column) and type(column[0]) is list
    return list(chain.from_iterable(column)) if nested else column


def _from_mapping(item: Mapping[Any, object]) -> FoundDocument:
    get = item.get
    identity, score, text, metadata = get("id"), get("score"), get("text"), get("metadata")
    if identity is None:
        identity = first_field(item, _ID_NAMES)
    if metadata is None:
        metadata = first_field(item, _METADATA_NAMES)
    if type(text) is not str:
        text, metadata = _text_and_rest(item, metadata)
    found = _found(identity, text, score, metadata, item)
    return found if score is not None else _measured(found, item)


def _from_object(item: object) -> FoundDocument:
    node = field(item, "node")  # a document with its score
    held = item if node is None else node
    mappings = (field(held, name) for name in _METADATA_NAMES)
    known = next((value for value in mappings if isinstance(value, Mapping)), None)
    text, metadata = _text_and_rest(held, known)
    found = _found(first_field(held, _ID_NAMES), text, None, metadata, item)
    return _measured(found, item, field(item, "metadata"))


def _measured(found: FoundDocument, *places: object) -> FoundDocument:
    for key, names in (("distance", ("distance",)), ("score", _SCORE_NAMES)):
        for place in places:
            if (number := finite(first_field(place, names))) is not None:
                return found._replace(score=number, score_key=key)
    return found


def _from_sequence(item: Sequence[object]) -> FoundDocument:
    """Read a pair of a document and its score, or a table row: its longest text and its id."""
    if len(item) == _PAIR and not isinstance(item[1], str | bytes):
        return (read_document(item[0]) or FoundDocument())._replace(score=finite(item[1]))
    columns = list(islice(item, MAX_COLUMNS))
    texts = [value for value in columns if isinstance(value, str)]
    if not texts:
        note_unread("text of a chunk", item)
        return FoundDocument()
    text = max(texts, key=len)
    names = (value for value in columns if value is not text and not isinstance(value, float | Mapping))
    return FoundDocument(next(names, None), text)


def _text_and_rest(item: object, metadata: object) -> tuple[object, object]:
    """Return the text of a document, or of the data stored with its vector, and the metadata without it."""
    text = first_field(item, _TEXT_NAMES)
    if text is None:
        text = next(
            (found for name in _STORED_NAMES if (found := _stored_text(item, name)) is not None), None
        )
        if text is not None and isinstance(metadata, Mapping):
            rest = islice(metadata.items(), MAX_VALUES)
            metadata = {key: value for key, value in rest if value is not text}
    if text is not None and not isinstance(text, str | bytes):
        text = answer_in({"content": text})  # text blocks, as in messages
    return text, metadata


def _stored_text(item: object, name: str) -> object:
    stored = field(item, name)
    text = first_field(stored, _STORED_TEXT_NAMES)
    if text is not None or name not in _OWN_NAMES or not isinstance(stored, Mapping):
        return text
    texts = (value for value in islice(stored.values(), MAX_VALUES) if isinstance(value, str))
    return max(texts, key=len, default=None)


def _found(identity: object, text: object, score: object, metadata: object, item: object) -> FoundDocument:
    if text is None:
        note_unread("text of a chunk", item)
    known = metadata if metadata is not None and isinstance(metadata, Mapping) else None
    if identity is None and known is not None:
        identity = first_field(known, _METADATA_ID_NAMES)
    return FoundDocument(identity, text, finite(score), known)


MAX_CHUNKS = 5_000
"""Per retrieval: further chunks are dropped, and ``context`` is marked as truncated."""


class ChunkDocuments(NamedTuple):
    """The documents of one retrieval in both written forms."""

    elements: list[str]
    """One JSON object per chunk; an unknown score is left out."""
    document: str
    """A JSON list of the same objects, always with a ``score``. ``null`` means unknown: the pinned schema of
    ``gen_ai.retrieval.documents`` allows it, and 0 would be an invented number."""


def chunk_documents(items: Iterable[object], content_filter: ContentFilter) -> ChunkDocuments:
    """Write the chunks as JSON, within the limits of the policy.

    [`read_document`][ragtrace.capture.documents.read_document] lists the accepted items. A chunk
    without an id gets ``sha256(text)[:16]``.
    """
    elements: list[str] = []
    listed: list[str] = []
    budget = content_filter.policy.max_chunks_total_bytes
    for rank, item in enumerate(items):
        if rank == MAX_CHUNKS:
            content_filter.truncated(Part.CONTEXT)
            break
        found = read_document(item) or FoundDocument()
        element, used = _element(found, rank, budget, content_filter)
        budget -= used
        elements.append(element)
        is_scored = found.score is not None and found.score_key == "score"
        listed.append(element if is_scored else '{"score":null,' + element[1:])
    return ChunkDocuments(elements, f"[{','.join(listed)}]")


def _element(found: FoundDocument, rank: int, budget: int, content_filter: ContentFilter) -> tuple[str, int]:
    """Write one chunk; return it with the bytes it takes from the budget."""
    text = content_filter.redacted(found.text, Part.CONTEXT)
    named = None if found.id is None else content_filter.policy.identifier(found.id)
    pieces = ['{"id":', json_string(_unnamed(text, rank) if named is None else named)]
    limit = min(content_filter.policy.max_chunk_bytes, budget)
    used, is_cut = 0, found.truncated
    if found.score is not None:
        pieces.append(f',"{found.score_key}":{found.score!r}')
    if text is not None:
        kept, used, shortened = cut(text, limit)
        pieces += (',"content":', json_string(kept))
        is_cut = is_cut or shortened
    recorded = content_filter.metadata(found.metadata) if found.metadata else None
    if recorded:
        metadata, shortened = _metadata(recorded, content_filter) or ("", True)
        size = len(metadata.encode())
        fits = used + size <= limit
        if metadata and fits:
            pieces += (',"metadata":', metadata)
            used += size
        is_cut = is_cut or shortened or not fits
    if is_cut:
        pieces.append(',"truncated":true')
        content_filter.truncated(Part.CONTEXT)
    pieces.append("}")
    return "".join(pieces), used


def _unnamed(text: str | None, rank: int) -> str:
    # Hash the recorded text only: a digest of unrecorded text would confirm a guess of it.
    return f"unnamed-{rank}" if text is None else hashlib.sha256(text.encode()).hexdigest()[:16]


@guarded
def _metadata(metadata: Mapping[Any, object], content_filter: ContentFilter) -> tuple[str, bool]:
    """Write metadata as JSON with redacted strings; return it and whether something was left out."""
    values, is_cut = plain(
        metadata,
        lambda value: content_filter.metadata_value(value, Part.CONTEXT),
        content_filter.longest_number,
    )
    return compact_json(values), is_cut


MAX_MESSAGES = 1_000
"""Per request: further messages are dropped, and ``messages`` is marked as truncated."""

_ROLES = {"human": "user", "ai": "assistant"}


def text_message(role: str, text: str, finish_reason: str | None = None) -> str:
    """Return a list of one message with one text part."""
    ending = f',"finish_reason":{json_string(plain_text(finish_reason))}' if finish_reason else ""
    return f'[{{"role":"{role}","parts":[{{"type":"text","content":{json_string(text)}}}]{ending}}}]'


def prompt_messages(messages: object, content_filter: ContentFilter) -> str | None:
    """Write a model's input, within the limit of the policy; ``None`` if there is nothing to write.

    A string is a user message. A message is a mapping or object with ``role`` and ``content`` (a string or a
    list of parts), or with ``role`` and ``parts``. Of parts that are not text, only the type is written.
    """
    if messages is None or not content_filter.policy.capture:
        return None
    listed = _listed(messages) or ()
    if len(listed) > MAX_MESSAGES:
        content_filter.truncated(MESSAGES)
    budget = content_filter.policy.max_messages_bytes
    written: list[str] = []
    for message in listed[:MAX_MESSAGES]:
        parts, used = _parts(message, budget, content_filter) or ([], 0)
        budget -= used
        written.append(
            f'{{"role":{json_string(_role(message, content_filter))},"parts":[{",".join(parts)}]}}'
        )
    return f"[{','.join(written)}]"


def _role(message: object, content_filter: ContentFilter) -> str:
    said = (name(field(message, key), "role") for key in ("role", "type"))
    role = content_filter.policy.identifier(next((text for text in said if text), "user")) or "user"
    return _ROLES.get(role, role)


@guarded
def _parts(message: object, budget: int, content_filter: ContentFilter) -> tuple[list[str], int]:
    content = message if isinstance(message, str | bytes) else field(message, "content")
    written: list[str] = []
    spent = 0
    for part in _listed(content if content is not None else field(message, "parts")) or ():
        kept, used = _part(part, budget - spent, content_filter) or ('{"type":"unknown"}', 0)
        spent += used
        written.append(kept)
    return written, spent


@guarded
def _part(part: object, budget: int, content_filter: ContentFilter) -> tuple[str, int]:
    text = part if isinstance(part, str | bytes) else field(part, "text") or field(part, "content")
    if isinstance(text, str | bytes):
        return _text_part(text, budget, content_filter)
    kind = content_filter.policy.identifier(name(field(part, "type"), "type") or "unknown") or "unknown"
    return f'{{"type":{json_string(kind)}}}', 0


def _text_part(text: str | bytes, budget: int, content_filter: ContentFilter) -> tuple[str, int]:
    whole = content_filter.redacted(text, Part.CONTEXT, MESSAGES)
    kept, used, is_cut = cut(whole or "", budget)
    if is_cut:
        content_filter.truncated(MESSAGES)
    return f'{{"type":"text","content":{json_string(kept)}}}', used


@guarded
def _listed(value: object) -> Sequence[object]:
    if value is None:
        return ()
    return value if isinstance(value, list | tuple) else (value,)
