"""Read retrieved chunks of any shape, and write each once as JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ragtrace.capture._guard import guarded
from ragtrace.capture.privacy.policy import ContentFilter, cut, json_string
from ragtrace.capture.values.documents import FoundDocument, read_document
from ragtrace.capture.values.plain import compact_json, plain
from ragtrace.model import Part

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

    [`read_document`][ragtrace.capture.values.documents.read_document] lists the accepted items. A chunk
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
