"""Splits text into sentences by code, so that a judge can refer to them by number.

The rules are for machine-written answers: prose, lists, headings, several scripts. If a full stop is
ambiguous (``U.S. Congress``), the text is not split: a claim of two sentences can be judged, half a claim
cannot.
"""

# ruff: noqa: RUF001  this module handles typographic marks

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_SENTENCE_CHARS = 800

_STOP = re.compile(
    r"(?P<latin>[.!?…]+)[\"'”’)\]»]*|(?P<wide>[。！？｡؟।]+)(?P<closed>[」』”’）]*)|(?P<line>\n[\s]*)"
)
_LAST_WORD = re.compile(r"[^\s(\[\"'“‘]+\Z")
_MARKER = re.compile(r"\s*(?:(?:[-*+•‣▪–—·>]|#{1,6}|\(?\d{1,3}[.)]|[a-z][.)]|\(?[A-Za-z]\))\s+)*\s*")
_LIST_NUMBER = re.compile(r"(?:[-*+•]\s*)?\(?(?:\d{1,3}|[A-Za-z])\Z")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]\Z")
_NEVER_LAST = re.compile(
    r"(?:mr|mrs|ms|dr|prof|st|mt|rev|hon|gen|col|lt|sgt|capt|vs|e\.g|i\.e|cf|figs?|eq|sec|ch|vol|nos?|approx"
    r"|dept|est|eds?|pp|viz|resp|ca|cc|v|p)",
    re.IGNORECASE,
)
_TITLE = re.compile(r"Gov|Sen|Rep|Pres|Rs")
_MONTH = re.compile(r"Jan|Feb|Mar|Apr|Aug|Sept?|Oct|Nov|Dec")
_SOMETIMES_LAST = re.compile(
    r"(?:a\.m|p\.m|etc|inc|ltd|co|corp|jr|sr|al|b\.c|a\.d|b\.c\.e|c\.e|ph\.d)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence of a text."""

    number: int
    """Counted from 1; the judge sees it."""
    text: str
    """Verbatim ``[start:end]`` of the text: without list markers and surrounding white space."""
    start: int
    end: int


def split_sentences(text: str, *, max_chars: int = MAX_SENTENCE_CHARS) -> tuple[Sentence, ...]:
    """Split text into numbered sentences with their offsets.

    Bullets, list numbers and heading marks are excluded, pieces without a letter or digit are left out, and
    a sentence longer than ``max_chars`` is cut at white space. Takes linear time.
    """
    pieces = (piece for span in _spans(text) for piece in _cut(text, *_trim(text, *span), max_chars))
    wordy = [(start, end) for start, end in pieces if any(char.isalnum() for char in text[start:end])]
    return tuple(
        Sentence(number=number, text=text[start:end], start=start, end=end)
        for number, (start, end) in enumerate(wordy, start=1)
    )


def _spans(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for stop in _STOP.finditer(text):
        if _ends_sentence(text, stop, start):
            yield start, stop.end()
            start = stop.end()
    yield start, len(text)


def _ends_sentence(text: str, stop: re.Match[str], start: int) -> bool:
    following = text[stop.end() : stop.end() + 40].lstrip()[:1]
    if stop["wide"]:
        # a quotation may be in the middle of a sentence
        return not (stop["closed"] and text[stop.end() : stop.end() + 1].isalnum())
    if stop["line"]:
        # if the next line begins in lower case, the sentence was wrapped, not ended
        return stop["line"].count("\n") > 1 or not following.islower()
    if following and not text[stop.end()].isspace():
        return False
    if stop["latin"] != ".":
        return not following.islower()
    return not following.islower() and not _is_abbreviation(text, stop.start(), start, following)


def _is_abbreviation(text: str, dot: int, start: int, following: str) -> bool:
    before = text[max(start, dot - 24) : dot]
    line = before.rsplit("\n", 1)[-1]
    if _LIST_NUMBER.fullmatch(line.strip()) and (dot - start) < 24:
        return True
    found = _LAST_WORD.search(before)
    word = found[0].rpartition("-")[2] if found else ""
    if _SOMETIMES_LAST.fullmatch(word):
        return bool(following) and not following.isupper()
    if _TITLE.fullmatch(word) or (_MONTH.fullmatch(word) and following.isdecimal()):
        return True
    return bool(_NEVER_LAST.fullmatch(word)) or (word[-1:].isupper() and bool(_INITIALS.fullmatch(word)))


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    start += len(text[start:end]) - len(text[start:end].lstrip())
    at_line_start = start == 0 or "\n" in text[max(0, start - 8) : start]
    if at_line_start and (marker := _MARKER.match(text, start, end)):
        start = marker.end()
    return start, start + len(text[start:end].rstrip())


def _cut(text: str, start: int, end: int, max_chars: int) -> Iterator[tuple[int, int]]:
    while end - start > max_chars:
        gap = text.rfind(" ", start + 1, start + max_chars)
        middle = gap if gap > start else start + max_chars
        yield start, middle
        start = _trim_left(text, middle, end)
    yield start, end


def _trim_left(text: str, start: int, end: int) -> int:
    return end - len(text[start:end].lstrip()) if text[start].isspace() else start
