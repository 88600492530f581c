"""Whether a chunk speaks of what a question or a statement is about: by words, rare ones above all."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

_WORD: Final = re.compile(r"\w+")
_ENDINGS: Final = ("ing", "ed", "es", "s", "e")
_SHORTEST: Final = 3
_COMMON: Final = frozenset(
    re.findall(
        r"\w+",
        """a an and are as at be by can did do does each for from had has have how i in is it its many much of
        on or our should that the their there they this to was we what when where which who why will with
        would you your""",
    )
)
_ENOUGH: Final = 0.6


class Mentions:
    """The words of all chunks of an answer: a word that most of them have tells little."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = [_stems(text) for text in texts]
        self._known = Counter(stem for stems in self._texts for stem in stems)

    def about(self, place: int, needed: str, *, with_numbers: bool = True) -> float:
        """Return which weighed share of the words of ``needed`` a text has, in [0, 1]."""
        wanted = [stem for stem in _stems(needed) if with_numbers or not stem[0].isdigit()]
        weights = {stem: self._weight(stem) for stem in wanted}
        total = sum(weights.values())
        there = self._texts[place]
        return sum(weight for stem, weight in weights.items() if stem in there) / total if total else 0.0

    def best(self, places: Sequence[int], needed: str, *, with_numbers: bool = True) -> int | None:
        """Return the text that speaks most of what is needed, if it does so enough."""
        shares = [(self.about(place, needed, with_numbers=with_numbers), -place) for place in places]
        share, place = max(shares, default=(0.0, 0))
        return -place if share >= _ENOUGH else None

    def _weight(self, stem: str) -> float:
        return math.log((len(self._texts) + 1.5) / (max(1, self._known[stem]) + 0.5))


def masked(sentence: str) -> str:
    """Return a sentence with its numbers left open: two that differ in numbers only look the same."""
    return " ".join("#" if word.isdigit() else word for word in _WORD.findall(sentence.casefold()))


def _stems(text: str) -> frozenset[str]:
    words = (word for word in _WORD.findall(text.casefold()) if word not in _COMMON)
    return frozenset(word if word.isdigit() else _stem(word) for word in words)


def _stem(word: str) -> str:
    """Return a word without the endings that most English words share."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST:
            return word[: -len(ending)]
    return word
