"""Sections of a request's material, behind fences."""

from __future__ import annotations

from collections.abc import Iterable

from ragtrace.judge_forms import NumberedText
from ragtrace.metrics.fence import Section


def chunk_sections(chunks: Iterable[NumberedText]) -> list[Section]:
    """Put each chunk under its number."""
    return [(f"chunk {chunk.number}", [chunk.text]) for chunk in chunks]


def numbered_section(name: str, texts: Iterable[NumberedText]) -> Section:
    """Put numbered texts under a name, one line each: a line break could let a text fake the next number."""
    return name, [f"[{item.number}] {' '.join(item.text.split())}" for item in texts]
