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


def one_a_number(pack: Iterable[NumberedText]) -> list[NumberedText]:
    """Join the pieces of a long chunk that are in one pack: a number must be unique."""
    texts: dict[int, list[str]] = {}
    for piece in pack:
        texts.setdefault(piece.number, []).append(piece.text)
    return [NumberedText(number=number, text="\n".join(parts)) for number, parts in texts.items()]
