"""Marked texts in pieces that a page can show: folded where they are long, with an anchor for each claim."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ragtrace.answers.shown import MarkedText

_MOST_MARKED: Final = 4_000
"""Shown characters of a marked passage; an unmarked one is folded from 2,000 on."""
_MOST_HIDDEN: Final = 1_000_000
"""Characters of a fold that are on the page at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldablePassages:
    """A text with its beginning shown, and the rest below a fold."""

    first: tuple[MarkedText, ...]
    rest: tuple[MarkedText, ...]
    rest_characters: int
    rest_claims: int
    """Claims that begin in the rest."""

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to read."""
        return not any(passage.text.strip() for passage in (*self.first, *self.rest))


def fold(pieces: Iterable[MarkedText], *, shown: int) -> FoldablePassages:
    """Fold a marked text after about ``shown`` characters, between two passages."""
    passages = tuple(_passages(pieces))
    end, room = 0, shown
    while end < len(passages) and (end == 0 or room > 0):
        room -= len(passages[end].text)
        end += 1
    rest = passages[end:]
    return FoldablePassages(
        first=passages[:end],
        rest=rest,
        rest_characters=sum(len(passage.text) + passage.left_out for passage in rest),
        rest_claims=len({number for passage in rest for number in passage.starts}),
    )


def _passages(pieces: Iterable[MarkedText]) -> Iterator[MarkedText]:
    begun: set[int] = set()
    for piece in pieces:
        for part in _parts(piece):
            starts = tuple(number for number in part.numbers if number not in begun)
            begun.update(starts)
            yield part._replace(starts=starts, hidden=part.hidden[:_MOST_HIDDEN])


def _parts(piece: MarkedText) -> Sequence[MarkedText]:
    """Part a long marked passage: its beginning, and its end with what is between in a fold."""
    half = _MOST_MARKED // 2
    if piece.label is None or len(piece.text) <= _MOST_MARKED:
        return [piece]
    hidden = piece.text[half:-half]
    return [
        piece._replace(text=piece.text[:half], ends=()),
        piece._replace(text=piece.text[-half:], hidden=hidden, left_out=len(hidden)),
    ]
