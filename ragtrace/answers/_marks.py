"""Splits texts at marked passages, for an answer or chunk on a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from ragtrace.model import VerdictLabel

WORST_FIRST: Final = (
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.IRRELEVANT,
    VerdictLabel.UNJUDGED,
    VerdictLabel.PARTLY_RELEVANT,
    VerdictLabel.SUPPORTED,
    VerdictLabel.RELEVANT,
)
_MOST_UNMARKED: Final = 2_000
"""Shown characters of an unmarked passage: an answer of a megabyte must not fill the page."""


class MarkedPassage(NamedTuple):
    """A passage that a claim is about, or that supports it."""

    start: int
    end: int
    number: int
    """The claim's label."""
    label: VerdictLabel


class MarkedText(NamedTuple):
    """A part of a text."""

    text: str
    label: VerdictLabel | None = None
    """The worst of the marks that cover it."""
    ends: tuple[int, ...] = ()
    """Numbers of the claims whose marks end here."""
    left_out: int = 0
    """Number of omitted characters before the text."""
    hidden: str = ""
    """The omitted characters, for a page that can unfold them."""
    numbers: tuple[int, ...] = ()
    """Numbers of the claims whose marks cover it, the worst first."""
    starts: tuple[int, ...] = ()
    """Numbers of the claims that begin here, if a page needs an anchor for each."""


def pieces(text: str, marks: Sequence[MarkedPassage]) -> tuple[MarkedText, ...]:
    """Split a text where marks begin and end; marks may overlap."""
    within = [mark for mark in marks if 0 <= mark.start < mark.end <= len(text)]
    parted: list[MarkedText] = []
    for start, end, covering in _covered(within, len(text)):
        if covering:
            parted.append(_marked(text[start:end], end, covering))
        else:
            parted.extend(_shortened(text[start:end]))
    return tuple(parted)


def _covered(
    marks: Sequence[MarkedPassage], length: int
) -> Iterator[tuple[int, int, Sequence[MarkedPassage]]]:
    """Yield the stretches between two cuts with the marks over them; the work grows with the overlaps."""
    cuts = sorted({0, length, *(mark.start for mark in marks), *(mark.end for mark in marks)})
    coming = sorted(marks, key=lambda mark: mark.start, reverse=True)
    covering: list[MarkedPassage] = []
    for start, end in pairwise(cuts):
        covering = [mark for mark in covering if mark.end > start]
        while coming and coming[-1].start <= start:
            covering.append(coming.pop())
        yield start, end, covering


def _marked(text: str, end: int, covering: Sequence[MarkedPassage]) -> MarkedText:
    by_badness = sorted(covering, key=lambda mark: (WORST_FIRST.index(mark.label), mark.number))
    return MarkedText(
        text,
        _worst(mark.label for mark in covering),
        tuple(sorted({mark.number for mark in covering if mark.end == end})),
        numbers=tuple(dict.fromkeys(mark.number for mark in by_badness)),
    )


def _worst(labels: Iterable[VerdictLabel]) -> VerdictLabel:
    return min(labels, key=WORST_FIRST.index)


def _shortened(text: str) -> Iterator[MarkedText]:
    half = _MOST_UNMARKED // 2
    if len(text) <= _MOST_UNMARKED:
        yield MarkedText(text)
        return
    yield MarkedText(text[:half])
    yield MarkedText(text[-half:], left_out=len(text) - 2 * half, hidden=text[half:-half])
