"""Windows: the parts of a chunk that a model reads at once, as runs of whole sentences that overlap."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ragtrace.sentences import split_sentences

_OVERLAP: Final = 4
"""The next window begins within the last quarter of the one before."""
_QUOTE_CHARS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of a chunk."""

    chunk: int
    """The chunk's number."""
    text: str
    """Verbatim."""

    def quote(self, near: frozenset[str]) -> str:
        """Return up to 1000 characters of whole sentences, around the one with most of these words."""
        if len(self.text) <= _QUOTE_CHARS:
            return self.text
        sentences = split_sentences(self.text)
        if not sentences:
            return self.text[:_QUOTE_CHARS]
        best = max(range(len(sentences)), key=lambda at: len(near & words_of(sentences[at].text)))
        first = last = best
        while last + 1 < len(sentences) and sentences[last + 1].end - sentences[first].start <= _QUOTE_CHARS:
            last += 1
        while first and sentences[last].end - sentences[first - 1].start <= _QUOTE_CHARS:
            first -= 1
        return self.text[sentences[first].start : sentences[last].end]


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text, to find the sentence that is nearest to a claim."""
    return frozenset(text.lower().split())


def windows_of(chunk: int, text: str, tokens: Sequence[tuple[int, int]], size: int) -> Iterator[Window]:
    """Yield the windows of a chunk. Takes linear time.

    Args:
        chunk: The chunk's number.
        text: Its text.
        tokens: Start and end of each of its tokens, in characters.
        size: The most tokens of a window.
    """
    if len(tokens) <= size:
        if text.strip():
            yield Window(chunk=chunk, text=text)
        return
    ends = _sentence_ends(text, tokens)
    first = 0
    while first < len(tokens):
        last = _whole_sentences(ends, first, size)
        yield Window(chunk=chunk, text=text[tokens[first][0] : tokens[last - 1][1]].strip())
        if last >= len(tokens):
            return
        first = _next_start(ends, first, last)


def _sentence_ends(text: str, tokens: Sequence[tuple[int, int]]) -> list[int]:
    """Return how many tokens there are up to the end of each sentence."""
    starts = [start for start, _ in tokens]
    ends = [bisect_left(starts, sentence.end) for sentence in split_sentences(text)]
    return sorted({*ends, len(tokens)} - {0})


def _whole_sentences(ends: Sequence[int], first: int, size: int) -> int:
    """Return the end of the last sentence that fits, or of as many tokens as fit if none does."""
    at = bisect_left(ends, first + size + 1) - 1
    return ends[at] if at >= 0 and ends[at] > first else first + size


def _next_start(ends: Sequence[int], first: int, last: int) -> int:
    """Return the beginning of a sentence in the last quarter, or that quarter if it holds none."""
    earliest = last - max(0, (last - first) // _OVERLAP)
    at = bisect_left(ends, earliest)
    found = ends[at] if at < len(ends) else last
    return max(found if found < last else earliest, first + 1)
