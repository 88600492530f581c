"""The chunks of a record as the judge sees them: numbered, packed, and searched for quotes.

A quote is found if it is a substring of the chunk after both are folded. Folding ignores Unicode
compatibility forms, case, the shapes of quotation marks and dashes, white space around dashes, asterisks of
Markdown, and runs of white space; every word counts. Quotation marks around the quote and an ellipsis at
either end (where the judge cut it) are removed first. A quote with one ellipsis *inside* is two passages,
which must follow each other in the chunk. Each must begin with a whole word and contain whole numbers:
"4 days" does not match "14 days".
"""

# ruff: noqa: RUF001  typographic marks are the subject here

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache

from ragtrace.judge_forms import NumberedText
from ragtrace.model import Chunk

_MIN_QUOTE_LETTERS, _MIN_PART_LETTERS = 2, 8
_WRAPPING = " \t\r\n'\"“”„‘’«»`"
_MARKS = dict.fromkeys('"“”„‟«»‘’‚‛‹›`´＂＇', "'") | dict.fromkeys("‐‑‒–—―−﹘﹣－", "-")
_IN_NUMBERS = (".", ",")
_ELLIPSIS = re.compile(r"[\[(]?(?:…|\.{3,}|\.(?: \.){2,})[\])]?")
_MOST_QUOTED_CHARS = 1_000
_OVERLAP_CHARS = 200


class FoldedText:
    """A text for looking up quotes. It is folded when the first quote that is not verbatim comes."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _folds(self) -> tuple[str, array[int]]:
        return _fold(self._text)

    def find(self, quote: str) -> str | None:
        """Return the verbatim passage that matches the quote, or ``None``."""
        bare = _unwrapped(quote)
        found = self._find(bare, 0) if _says_something(bare) else None
        if found is None and len(two := [_unwrapped(part) for part in _ELLIPSIS.split(bare)]) == 2:
            found = (
                self._find_both(*two)
                if all(_says_something(part, _MIN_PART_LETTERS) for part in two)
                else None
            )
        return None if found is None else self._text[found]

    def _find_both(self, first: str, second: str) -> slice | None:
        """Return the passage from the one to the other, or the longer one if they are far apart."""
        begins = self._find(first, 0)
        ends = None if begins is None else self._find(second, begins.stop)
        if begins is None or ends is None:
            return None
        is_near = ends.stop - begins.start <= _MOST_QUOTED_CHARS
        return slice(begins.start, ends.stop) if is_near else begins if len(first) >= len(second) else ends

    def _find(self, bare: str, start: int) -> slice | None:
        if (at := _find_whole(self._text, bare, start)) is not None:
            return slice(at, at + len(bare))
        needle = _fold(bare)[0].strip()
        folded, offsets = self._folds
        at = _find_whole(folded, needle, bisect_left(offsets, start))
        return None if at is None else slice(offsets[at], offsets[at + len(needle) - 1] + 1)


def pack_chunks(chunks: Iterable[NumberedText], budget_chars: int) -> tuple[tuple[NumberedText, ...], ...]:
    """Divide chunks into packs of at most ``budget_chars``, in order.

    A chunk longer than that is split into overlapping pieces with the same number.
    """
    packs: list[list[NumberedText]] = [[]]
    room = budget_chars
    for piece in _pieces(chunks, budget_chars):
        if len(piece.text) > room and packs[-1]:
            packs.append([])
            room = budget_chars
        packs[-1].append(piece)
        room -= len(piece.text)
    return tuple(tuple(pack) for pack in packs if pack)


def _pieces(chunks: Iterable[NumberedText], budget_chars: int) -> Iterator[NumberedText]:
    overlap = min(_OVERLAP_CHARS, budget_chars // 4)
    for chunk in chunks:
        piece = chunk
        while len(piece.text) > budget_chars:
            gap = piece.text.rfind(" ", budget_chars // 2, budget_chars)
            end = gap if gap > 0 else budget_chars
            yield NumberedText(number=chunk.number, text=piece.text[:end])
            piece = NumberedText(number=chunk.number, text=piece.text[end - overlap :])
        yield piece


def _unwrapped(quote: str) -> str:
    bare = quote.strip(_WRAPPING)
    for dots in ("...", "…"):
        bare = bare.removeprefix(dots).removesuffix(dots).strip(_WRAPPING)
    return bare


def _says_something(bare: str, least: int = _MIN_QUOTE_LETTERS) -> bool:
    # folding can change the number of letters, except in ASCII
    folded = bare if bare.isascii() else _fold(bare)[0]
    return sum(map(str.isalnum, folded)) >= least


def _find_whole(text: str, passage: str, start: int) -> int | None:
    """Return the offset of the passage where it cuts no number and begins with a whole word."""
    at = text.find(passage, start)
    while at >= 0 and (_begins_inside(text, at) or _ends_inside(text, at + len(passage))):
        at = text.find(passage, at + 1)
    return at if at >= 0 else None


def _begins_inside(text: str, at: int) -> bool:
    first, before = text[at], text[max(0, at - 2) : at]
    if first.isdecimal():
        return before[-1:].isdecimal() or (before[-1:] in _IN_NUMBERS and before[:1].isdecimal())
    return _is_cased(first) and _is_cased(before[-1:])


def _ends_inside(text: str, end: int) -> bool:
    after = text[end : end + 2]
    return text[end - 1].isdecimal() and (
        after[:1].isdecimal() or (after[:1] in _IN_NUMBERS and after[1:].isdecimal())
    )


def _is_cased(char: str) -> bool:
    # scripts without upper and lower case may write words without spaces
    return char.lower() != char.upper()


def _fold(text: str) -> tuple[str, array[int]]:
    """Fold the text; the array maps each folded character to its offset in the original."""
    out: list[str] = []
    offsets = array("L")
    after_space = False
    for offset, char in enumerate(text):
        folded = _fold_char(char)
        if folded == " ":
            if after_space:
                continue
            after_space = True
        elif not folded:
            continue
        else:
            if folded == "-" and after_space and out:
                del out[-1], offsets[-1]
            after_space = folded == "-"
        out.append(folded)
        offsets.extend([offset] * len(folded))
    return "".join(out), offsets


@lru_cache(maxsize=8192)
def _fold_char(char: str) -> str:
    if char in _MARKS:
        return _MARKS[char]
    if char == "*":
        return ""
    if char.isspace():
        return " "
    if unicodedata.category(char) == "Cf":  # zero-width joiners, soft hyphens, byte order marks
        return ""
    return unicodedata.normalize("NFKD", char).casefold()


class NumberedContext:
    """The chunks of a record: numbered, packed, and prepared for looking up quotes."""

    def __init__(self, chunks: Sequence[Chunk], *, pack_chars: int, max_packs: int) -> None:
        self._chunks = chunks
        self._folded: dict[int, FoldedText] = {}
        shown = [NumberedText(number=n, text=c.text) for n, c in enumerate(chunks, start=1) if c.text]
        packs = pack_chunks(shown, pack_chars)
        self.packs = packs[:max_packs]
        self.cut = len(packs) > max_packs
        """Whether some packs are not shown."""

    def id_of(self, number: int) -> str:
        """Return the id of the chunk with this number."""
        return self._chunks[number - 1].id

    def find_quote(self, number: int, quote: str) -> str | None:
        """Return the chunk's own text of the quote, if the chunk contains it."""
        if number not in self._folded:
            self._folded[number] = FoldedText(self._chunks[number - 1].text or "")
        return self._folded[number].find(quote)
