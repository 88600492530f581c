"""Convert retrieved documents to chunks, whatever their keys."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice, pairwise

from ragtrace import semconv
from ragtrace.model import AttributeValue, Chunk, SkipReason
from ragtrace.traces.extract._content import (
    ContentDamage,
    FoundValue,
    Place,
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
# keys are compared by `plain`
_ID_KEYS = ("id", "docid", "chunkid", "nodeid", "documentid", "fileid", "source")
_TEXT_KEYS = (
    *("content", "text", "pagecontent", "document", "chunk", "body", "passage", "snippet", "chunktext"),
    *("excerpt", "chunkcontent", "documenttext", "citedtext", "quote"),
)
_METADATA_KEYS = ("metadata", "meta")
_SIMILARITY_KEYS = (
    *("relevancescore", "similarity", "certainty", "similarityscore", "relevance", "rerankscore"),
    *("rerankerscore", "@search.rerankerscore", "@search.score"),
)
_SCORE_KEYS = ("score", *_SIMILARITY_KEYS)
_INNER_KEYS = ("node", "kwargs", "document", "payload", "entity", "retrievedcontext", "properties", "source")
_CITES = re.compile(
    r"source(s|id|url)?|ur[il]|link|href|permalink|page(number)?|citation|reference|document(name|title)"
)
_OF_SOURCES = re.compile(rf"{_CITES.pattern}|file(name|path)?|path|location")
_OF_TITLES = re.compile(r"title|name|heading|header|label")
_BESIDE_TEXT = re.compile(
    rf"{_OF_SOURCES.pattern}|{_OF_TITLES.pattern}|{'|'.join((*_ID_KEYS, *_METADATA_KEYS, *_SCORE_KEYS))}"
    r"|distance|type|kind|rank|(chunk)?index|position|lang(uage)?|(published)?date|author"
)
OF_QUESTIONS = re.compile(r"\w*(question|query|queries|prompt|history)")
"""Keys of what was asked."""
_OF_RECORDS = re.compile(
    r"status|state|priority|assignee|price|amount|quantity|total|stock|temperature|due|from|to|sender"
    r"|recipients?|user|customer|order|ticket|participants|rating|stars|ts|channel|labels",
)
"""Keys of orders, tickets, mails and the like: a text and a link make no passage of them."""
_FIRST_KEY = re.compile(r'\{\s*"([^"]{1,40})"')
_BEGINNINGS = frozenset((*_ID_KEYS, *_TEXT_KEYS, *_METADATA_KEYS, *_SCORE_KEYS, *_INNER_KEYS))
_CITED_TYPES = ("search_result", "document")
_HASH = 16
_PROSE_WORDS, _PROSE_LETTERS, _DEEPEST_WRAPPER = 4, 10, 3


@lru_cache(maxsize=4_096)
def plain(key: str) -> str:
    """Return a key without its case, `_` and `-`: `pageContent`, `page_content` and `PageContent` are one."""
    return key.replace("_", "").replace("-", "").lower()


def find_documents(value: AttributeValue, at: Place) -> FoundValue[tuple[Chunk, ...]]:
    """Read a list of documents: structured, as one JSON string, or as one JSON string per element."""
    items, damage = _items(value, at.attribute)
    parsed = [parse_loosely(item) for item in items[:MAX_CHUNKS]]
    broken = _broken(items, parsed)
    chunks = tuple(
        chunk_of(item if isinstance(item, dict) else {"text": item}, rank, at.span_id)
        for rank, item in enumerate(parsed)
        if rank not in broken
    )
    if broken:
        detail = f"{len(broken)} of {len(items)} documents in `{at.attribute}` are incomplete JSON"
        damage = ContentDamage(SkipReason.TRUNCATED, detail)
    damage = (
        too_many(len(items), f"`{at.attribute}` holds") or damage or with_text_damage(chunks, at.attribute)
    )
    return FoundValue(
        without_marks(chunks) or (None if damage else ()), at, f"{len(chunks)} documents", damage
    )


def too_many(documents: int, where: str) -> ContentDamage | None:
    """Return the damage of a list that is longer than ragtrace reads."""
    if documents <= MAX_CHUNKS:
        return None
    detail = f"{where} {documents} documents: ragtrace reads the first {MAX_CHUNKS}"
    return ContentDamage(SkipReason.TRUNCATED, detail)


def chunk_of(document: Mapping[str, AttributeValue], rank: int, span_id: str) -> Chunk:
    """Read one document. Without an id, it gets one from a hash of its text."""
    fields = _fields(document)
    metadata = _metadata(fields)
    of_metadata = {plain(key): value for key, value in metadata.items()}
    text, is_cut = _text(fields)
    if text is None:
        text, is_cut = _text(of_metadata)
    score = _number(fields, _SCORE_KEYS)
    distance = number_of(fields.get("distance"))
    return Chunk(
        id=_first_id(fields) or _first_id(of_metadata) or _id_from(text, rank),
        text=text,
        rank=rank,
        score=score if score is not None else distance,
        score_kind="distance" if score is None and distance is not None else "similarity",
        metadata=metadata,
        truncated=is_cut or fields.get("truncated") is True,
        span_id=span_id,
    )


def has_text(document: Mapping[str, AttributeValue]) -> bool:
    """Return whether the document has its text under a usual key."""
    return text_in(document) is not None


def text_in(document: Mapping[str, AttributeValue]) -> str | None:
    """Return the text of a document, or of its metadata."""
    fields = _fields(document)
    return _text(fields)[0] or _text(_fields(_metadata(fields)))[0]


def is_document(item: AttributeValue) -> bool:
    """Return whether an object is a document with text, and no message."""
    return isinstance(item, dict) and "role" not in item and has_text(item)


def is_stored(item: AttributeValue) -> bool:
    """Return whether an object is a document that has an id, metadata or a score."""
    fields = _fields(item) if isinstance(item, dict) and is_document(item) else {}
    return any(key in fields for key in (*_ID_KEYS, *_METADATA_KEYS, *_SCORE_KEYS))


def is_passage(item: AttributeValue) -> bool:
    """Return whether the form shows that an object was retrieved: a text with its score or its source."""
    if not isinstance(item, dict):
        return False
    fields = _fields(item)
    if item.get("type") in _CITED_TYPES or _number(fields, _SIMILARITY_KEYS) is not None:
        return has_text(item) or any(map(is_prose, fields.values()))
    if any(isinstance(fields.get(key), float) for key in ("score", "distance")):
        return any(key in fields for key in _TEXT_KEYS) or has_text(_metadata(fields))
    keys = {*fields, *map(plain, _metadata(fields))}
    is_cited = any(map(_CITES.fullmatch, keys)) and not any(map(_OF_RECORDS.fullmatch, keys))
    return is_cited and is_prose(_text(fields)[0])


def named_as(chunk: Chunk, other: Chunk | None) -> Chunk:
    """Give a chunk without an id or a score those of the same text elsewhere."""
    if other is None or chunk.text is None:
        return chunk
    named = replace(chunk, id=other.id) if is_unnamed(chunk) else chunk
    return (
        named if named.score is not None else replace(named, score=other.score, score_kind=other.score_kind)
    )


def is_unnamed(chunk: Chunk) -> bool:
    """Return whether the chunk's id is a hash of its text."""
    return len(chunk.id) <= _HASH + 4 and chunk.id == _id_from(chunk.text, chunk.rank)


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
        return ContentDamage(SkipReason.NO_CONTENT, detail)
    if cut:
        detail = f"{cut} of {len(chunks)} documents in `{attribute}` were cut"
        return ContentDamage(SkipReason.TRUNCATED, detail)
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
            is_same = unique == chunk.id and not offset
            chosen[unique] = chunk if is_same else replace(chunk, id=unique, rank=offset + chunk.rank)
        offset += max((chunk.rank + 1 for chunk in chunks), default=0)
    return tuple(chosen.values())


def _broken(items: Sequence[AttributeValue], parsed: Sequence[AttributeValue]) -> frozenset[int]:
    """Find the elements that are truncated JSON documents: SDKs truncate each string of a list.

    A plain text may look like truncated JSON. It counts as a document if its neighbors do, or by its first
    key.
    """
    among_documents = any(isinstance(each, dict) for each in parsed)
    return frozenset(
        rank
        for rank, (raw, item) in enumerate(zip(items, parsed, strict=False))
        if isinstance(raw, str)
        and is_broken_json(raw, item)
        and (among_documents or ((key := _FIRST_KEY.match(raw.lstrip())) and plain(key[1]) in _BEGINNINGS))
    )


def _items(value: AttributeValue, attribute: str) -> tuple[Sequence[AttributeValue], ContentDamage | None]:
    parsed = parse_loosely(value)
    if isinstance(parsed, dict):
        return (parsed,), None
    if isinstance(parsed, tuple):
        return parsed, None
    if not isinstance(parsed, str):
        return (), None
    return recover_elements(parsed), broken_damage(parsed, attribute)


def _fields(document: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
    """Return the fields by plain keys, those of a wrapped document before the outer ones.

    LlamaIndex wraps it as a node, LangChain as kwargs.
    """
    fields = {plain(key): value for key, value in document.items()}
    for _ in range(_DEEPEST_WRAPPER):
        if any(isinstance(fields.get(key), str) for key in _TEXT_KEYS):
            break
        key = next((key for key in _INNER_KEYS if isinstance(fields.get(key), dict)), None) or _wrapped(
            fields
        )
        inner = fields.pop(key) if key else None
        if not isinstance(inner, dict):
            break
        fields |= {plain(key): value for key, value in inner.items()}
    return fields


def _wrapped(fields: Mapping[str, AttributeValue]) -> str | None:
    """Return the key of the only object inside that has a text, and is no title."""
    found = [
        key
        for key, each in fields.items()
        if isinstance(each, dict) and key not in _METADATA_KEYS
        if not _OF_TITLES.search(key) and not OF_QUESTIONS.fullmatch(key)
        if any(plain(name) in _TEXT_KEYS and is_prose(text) for name, text in each.items())
    ]
    return found[0] if len(found) == 1 else None


def _metadata(fields: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
    value = next((fields[key] for key in _METADATA_KEYS if fields.get(key)), None)
    parsed = parse_loosely(value)
    return parsed if isinstance(parsed, dict) else {}


def _number(fields: Mapping[str, AttributeValue], keys: Sequence[str]) -> float | None:
    for key in keys:
        if key in fields and (found := number_of(fields[key])) is not None:
            return found
    return None


def _text(fields: Mapping[str, AttributeValue]) -> tuple[str | None, bool]:
    value = next((fields[key] for key in _TEXT_KEYS if isinstance(fields.get(key), str)), None)
    if value is None:
        parts = next((fields[key] for key in _TEXT_KEYS if isinstance(fields.get(key), tuple | dict)), None)
        value = _joined_parts(parts) if parts else _only_prose(fields)
    if not isinstance(value, str) or not value:
        return None, False
    text, is_cut = without_excess(clean(value))
    return text, is_cut


def _only_prose(fields: Mapping[str, AttributeValue]) -> AttributeValue:
    """Return the one text of a scored or cited object, whatever its key; its name, if it has no other."""
    if not any(map(_OF_SOURCES.fullmatch, fields)) and _number(fields, _SCORE_KEYS) is None:
        return None
    single = {
        key: each[0] if isinstance(each, tuple) and len(each) == 1 else each for key, each in fields.items()
    }
    texts = [(key, value) for key, value in single.items() if is_prose(value)]
    others = [
        value for key, value in texts if not (_BESIDE_TEXT.fullmatch(key) or OF_QUESTIONS.fullmatch(key))
    ]
    others = others or [value for key, value in texts if _OF_TITLES.fullmatch(key)]
    return others[0] if len(others) == 1 else None


def is_prose(value: AttributeValue) -> bool:
    """Return whether a text is a sentence rather than a name; not all scripts divide words."""
    if not isinstance(value, str):
        return False
    return len(value.split(None, _PROSE_WORDS)) >= _PROSE_WORDS or (
        len(value) >= _PROSE_LETTERS and not value.isascii()
    )


def _joined_parts(parts: AttributeValue) -> str | None:
    """Join a text that is written as parts: ``[{"text": …}]``, ``{"text": …}``."""
    items = parts if isinstance(parts, tuple) else (parts,)
    texts = [
        text
        for each in items
        if isinstance(each, dict)
        for text in (each.get("text", each.get("content")),)
        if isinstance(text, str)
        and str(each.get("type", "text")).lower() in ("text", "output_text", "input_text")
    ]
    return "\n".join(texts) if texts and len(texts) == len(items) else None


def _first_id(fields: Mapping[str, AttributeValue]) -> str | None:
    for key in _ID_KEYS:
        value = fields.get(key)
        if value != "" and isinstance(value, str | int) and not isinstance(value, bool):
            return clean(str(value))
    return None


def _id_from(text: str | None, rank: int) -> str:
    return f"unnamed-{rank}" if text is None else hashlib.sha256(text.encode()).hexdigest()[:_HASH]


def _unused(identity: str, chosen: Mapping[str, Chunk]) -> str:
    if identity not in chosen:
        return identity
    number = 2
    while f"{identity}#{number}" in chosen:
        number += 1
    return f"{identity}#{number}"


_REPR = re.compile(r"\b(?:Document|Node|TextNode|Chunk|Passage|Doc)\(")
_QUOTE = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_REPR_TEXT = re.compile(rf"\b(?:page_content|content|text)={_QUOTE}", re.DOTALL)
_REPR_ID = re.compile(rf"\b(?:id|id_|doc_id|node_id)={_QUOTE}")
_MOST_REPRS = 1_000


def documents_in_repr(text: str) -> tuple[AttributeValue, ...]:
    """Read documents that a template wrote as Python shows them: ``[Document(id='a', page_content='…')]``."""
    if "content=" not in text and "text=" not in text:
        return ()
    starts = [each.start() for each in islice(_REPR.finditer(text), _MOST_REPRS)]
    found: list[AttributeValue] = []
    for start, end in pairwise([*starts, len(text)]):
        said = _REPR_TEXT.search(text, start, end)
        if said is None:
            continue
        named = _REPR_ID.search(text, start, said.start())
        found.append({"text": _literal(said[1]), **({"id": _literal(named[1])} if named else {})})
    return tuple(found)


def _literal(text: str) -> str:
    """Return what a Python string literal says."""
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError):
        return text[1:-1]
