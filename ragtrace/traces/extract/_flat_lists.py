"""Read lists that were flattened into attributes: ``prefix.<i>.suffix``."""

from __future__ import annotations

from collections.abc import Mapping

from ragtrace.model import AttributeValue, Chunk, SkipReason
from ragtrace.traces.extract._content import ContentDamage, FoundValue, Place, cut_damage, is_cut_by_tempo
from ragtrace.traces.extract._documents import (
    MAX_CHUNKS,
    chunk_of,
    too_many,
    with_text_damage,
    without_marks,
)
from ragtrace.traces.extract._messages import Message
from ragtrace.traces.trace import Span

_LONGEST_INDEX = 6
Fields = Mapping[str, AttributeValue]


def has_prefix(span: Span, prefix: str) -> bool:
    """Return whether any element of the list is present."""
    return any(key.startswith(f"{prefix}.") for key in span.attributes)


def unflattened(attributes: Fields, prefix: str, item: str = "") -> dict[int, Fields]:
    """Rebuild the elements of ``prefix.<i>.item.<field>`` by index. Indices keep their gaps."""
    start = f"{prefix}." if prefix else ""
    inner = f"{item}." if item else ""
    found: dict[int, dict[str, AttributeValue]] = {}
    for key in [key for key in attributes if key.startswith(start)]:
        index, _, rest = key[len(start) :].partition(".")
        if (
            index.isascii()
            and index.isdigit()
            and len(index) <= _LONGEST_INDEX
            and rest.startswith(inner)
            and len(rest) > len(inner)
        ):
            found.setdefault(int(index), {})[rest[len(inner) :]] = attributes[key]
    return {index: found[index] for index in sorted(found)}


def flat_messages(span: Span, prefix: str, item: str = "") -> tuple[Message, ...]:
    """Read chat messages in the common form."""
    return tuple(_message(fields) for fields in unflattened(span.attributes, prefix, item).values())


def flat_documents(
    span: Span, documents: Mapping[int, Fields], at: Place
) -> FoundValue[tuple[Chunk, ...]] | None:
    """Read rebuilt documents, and report dropped ones."""
    if not documents:
        return None
    indices = sorted(documents)[:MAX_CHUNKS]
    chunks = tuple(chunk_of(documents[index], index, span.span_id) for index in indices)
    damage = (
        too_many(len(documents), f"`{at.attribute}` holds")
        or _dropped(span, documents, at.attribute)
        or (cut_damage(at.attribute) if any(is_cut_by_tempo(each.text or "") for each in chunks) else None)
        or with_text_damage(chunks, at.attribute)
    )
    return FoundValue(without_marks(chunks), at, f"{len(chunks)} documents", damage)


def _message(fields: Fields) -> Message:
    """Read ``content`` or ``contents.<j>.message_content.*``, and ``tool_calls.<k>.tool_call.*``."""
    plain = {key: value for key, value in fields.items() if "." not in key}
    if len(plain) == len(fields):
        return plain
    parts = unflattened(fields, "contents", "message_content")
    calls = unflattened(fields, "tool_calls", "tool_call") or unflattened(fields, "tool_calls")
    if parts and "content" not in plain:
        plain["content"] = tuple(parts.values())
    if calls:
        plain["tool_calls"] = tuple(
            {"id": each.get("id"), "name": each.get("function.name", each.get("name"))}
            for each in calls.values()
        )
    return plain


def _dropped(span: Span, documents: Mapping[int, object], attribute: str) -> ContentDamage | None:
    missing = max(documents) + 1 - len(documents)
    if not missing and not span.dropped_attributes_count:
        return None
    detail = (
        f"{span.dropped_attributes_count} attributes of the span were dropped and {missing} documents of "
        f"`{attribute}` are missing: raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"
    )
    return ContentDamage(SkipReason.INCOMPLETE, detail)
