"""Read span attributes with the expected type."""

from __future__ import annotations

from collections.abc import Mapping

from ragtrace.model import AttributeValue, SkipReason
from ragtrace.traces.extract._content import (
    ContentDamage,
    FoundValue,
    clean,
    cut_damage,
    is_cut_by_tempo,
    text_damage,
    without_excess,
)
from ragtrace.traces.trace import Span


def text_of(attributes: Mapping[str, AttributeValue], key: str) -> str | None:
    """Return a clean string attribute; ``None`` if it is absent, empty or of another type."""
    value = attributes.get(key)
    return clean(value) or None if isinstance(value, str) else None


def first_text(span: Span, *keys: str) -> str | None:
    """Return the first of these attributes that is a string."""
    for key in keys:
        if text := text_of(span.attributes, key):
            return text
    return None


def found_text(
    text: str | None, *, attribute: str, convention: str, how: str, raw: AttributeValue = None
) -> FoundValue[str] | None:
    """Check a text from an attribute; the raw value may show that it was truncated."""
    if text is None:
        return None
    kept, has_excess = without_excess(clean(text))
    damage = text_damage(kept, attribute)
    value = None if damage else kept
    if has_excess:
        damage = ContentDamage(
            reason=SkipReason.TRUNCATED, detail=f"`{attribute}` is longer than ragtrace reads"
        )
    elif damage is None and isinstance(raw, str) and is_cut_by_tempo(raw):
        damage = cut_damage(attribute)
    return FoundValue(value=value, attribute=attribute, convention=convention, how=how, damage=damage)
