"""Splits text into sentences by code, so that a judge can refer to them by number.

The rules are for machine-written answers: prose, lists, headings, several scripts. If a full stop is
ambiguous (``U.S. Congress``), the text is not split: a claim of two sentences can be judged, half a claim
cannot. What only some languages do (German ordinals, abbreviations) counts if the text is in one of them.
"""

# ruff: noqa: RUF001  this module handles typographic marks

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

from ragtrace.languages import BIDI_MARKS, SAMPLE_CHARS, Language, language_of

__all__ = ["Sentence", "split_sentences"]

MAX_SENTENCE_CHARS = 800

_STOP = re.compile(
    rf"(?P<latin>[.!?…]+)[\"'”’)\]»]*(?:[ \u00a0\u202f]»)?{BIDI_MARKS}*"
    rf"|(?P<wide>[。！？｡．؟।۔][。！？｡．؟।۔!?…]*)(?P<closed>[」』”’）》〉】｣]*){BIDI_MARKS}*|(?P<line>\n[\s]*)"
)
_STOP_MARKS = re.compile(r"[.!?…。！？｡．؟।۔\n]")
"""What a stop begins with; each of them is one."""
_GAP = re.compile(r"\s*")
_UNSEEN = re.compile(rf"(?:\s|{BIDI_MARKS})*")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_COMMAS = "、，；،؛,;"
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

_ORDINAL = re.compile(r"\d{1,2}|[IVX]+")
_SINGLE_LETTER = re.compile(r"[^\W\d_A-Z]")
_ARABIC_LETTER = re.compile(r"[\u0620-\u064a]")
_ABBREVIATIONS: Final = {
    Language.GERMAN: re.compile(
        r"abs|art|bd|betr|bspw|bzgl|bzw|ca|dipl|dr|einschl|evtl|exkl|fa|fr|geb|gegr|ggf|gem|hr|hrsg|ing|inkl|insb|jh"
        r"|kap|lt|max|min|mind|mio|mrd|mwst|nr|prof|rd|sog|st|std|str|tel|tsd|vgl|vol|zzgl|jan|feb|apr|aug|sept?|okt"
        r"|nov|dez",
        re.IGNORECASE,
    ),
    Language.FRENCH: re.compile(
        r"art|av|apr|bd|cf|chap|dr|env|ex|fig|hab|mm|mme|mlle|max|min|no|num|p|pp|prof|réf|st|ste|tél|vol",
        re.IGNORECASE,
    ),
    Language.SPANISH: re.compile(
        r"apdo|aprox|art|av|avda|cap|cía|col|dir|dpto|dra?|ee|ej|fig|gral|hnos|izq|lic|máx|mín|núm|pág|págs|pza|prof"
        r"|prov|sr|sra|sres|sras|srta|sta|sto|tel|udo?s?|vd|vol",
        re.IGNORECASE,
    ),
}
"""Words that a full stop follows within a sentence."""


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
    a sentence longer than ``max_chars`` is cut at white space, else at a comma. Takes linear time.
    """
    return _split(text, max_chars)


@lru_cache(maxsize=256)  # several steps split the same chunks, and answers share chunks
def _split(text: str, max_chars: int) -> tuple[Sentence, ...]:
    pieces = (piece for span in _spans(text) for piece in _cut(text, *_trim(text, *span), max_chars))
    wordy = [(start, end) for start, end in pieces if any(char.isalnum() for char in text[start:end])]
    return tuple(
        Sentence(number=number, text=text[start:end], start=start, end=end)
        for number, (start, end) in enumerate(wordy, start=1)
    )


_LONGEST_MARK: Final = 20
_ITEM = re.compile(r"\s*(?:(?:[-*+•‣▪–—·>]|\(?\d{1,3}[.)])\s|\|)")
_BOLD_LINE = re.compile(r"\s*(\*\*|__)[^*_\n]+\1\s*")
_TABLE_RULE: Final = frozenset(" \t\r:|-")
_ENDED = re.compile(r"[.!?。！？।][\"'”’)\]»*_]*\s*\Z")


def is_heading(text: str, sentence: Sentence) -> bool:
    """Return whether a sentence of a text names what stands under it: by its mark or place, not its length.

    A line by itself is a heading if it is bold and something follows, if a list or the rows of a table
    follow, or if it stands apart and whole sentences follow; a list's item, if deeper ones follow.
    """
    start, end = sentence.start, sentence.end
    begin = text.rfind("\n", max(0, start - _LONGEST_MARK), start) + 1
    stop = text.find("\n", end, end + _LONGEST_MARK)
    mark = text[begin:start][: _LONGEST_MARK + 1]
    if not _MARKER.fullmatch(mark):
        return False
    if "#" in mark:
        return True
    if stop < 0 or any(map(str.isalnum, text[end:stop])):
        return False
    found = _GAP.match(text, stop)
    assert found is not None
    under = text.rfind("\n", stop, found.end()) + 1
    bottom = text.find("\n", under)
    line, below = text[begin:stop], text[under : bottom if bottom >= 0 else len(text)]
    if line.lstrip().startswith("|"):
        return "-" in below and _TABLE_RULE.issuperset(below)
    if not below or _ENDED.search(line):
        return False
    if _ITEM.match(line):
        return _indent(below) > _indent(line)
    if _BOLD_LINE.fullmatch(line) or _ITEM.match(below):
        return True
    if ": " in line:
        return False
    is_apart = begin > 1 and not text[text.rfind("\n", 0, begin - 1) + 1 : begin].strip()
    return is_apart and _ENDED.search(below[-_LONGEST_MARK:]) is not None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _spans(text: str) -> Iterator[tuple[int, int]]:
    start = at = 0
    language = partial(language_of, text[:SAMPLE_CHARS])
    while mark := _STOP_MARKS.search(text, at):
        dot, at = mark.span()
        following = text[at + 1 : at + 2]
        if mark[0] == "." and text[at : at + 1] == " " and following.isalnum():  # as most sentences end
            ends = not following.islower() and not _is_abbreviation(text, dot, start, following, language)
        else:
            stop = _STOP.match(text, dot)
            assert stop is not None
            at = stop.end()
            ends = _ends_sentence(text, stop, start, language)
        if ends:
            yield start, at
            start = at
    yield start, len(text)


def _ends_sentence(
    text: str, stop: re.Match[str], start: int, language: Callable[[], Language | None]
) -> bool:
    adjacent = text[stop.end() : stop.end() + 1]
    if stop["wide"]:
        if stop["wide"] == "．" and adjacent.isdecimal():
            return False
        # a quotation may be in the middle of a sentence
        return not (stop["closed"] and adjacent.isalnum())
    unseen = _UNSEEN.match(text, stop.end(), stop.end() + 40)
    following = text[unseen.end() : unseen.end() + 1] if unseen else ""
    if stop["line"]:
        # if the next line begins in lower case, the sentence was wrapped, not ended
        return stop["line"].count("\n") > 1 or not following.islower()
    if following and not adjacent.isspace():
        # Chinese and Japanese may end a sentence with an ASCII mark, and put no space behind it
        within = stop["latin"][0] in ".…" and not _UNSPACED.match(text, max(stop.start() - 1, 0))
        return not within and "…" not in stop["latin"] and bool(_UNSPACED.match(adjacent))
    if stop["latin"] != ".":
        return not following.islower()
    return not following.islower() and not _is_abbreviation(text, stop.start(), start, following, language)


def _is_abbreviation(
    text: str, dot: int, start: int, following: str, language: Callable[[], Language | None]
) -> bool:
    before = text[max(start, dot - 24) : dot]
    if dot - start < 24 and _LIST_NUMBER.fullmatch(before.rsplit("\n", 1)[-1].strip()):
        return True
    found = _LAST_WORD.search(before, before.rfind(" ") + 1)
    word = found[0].rpartition("-")[2] if found else ""
    if _SOMETIMES_LAST.fullmatch(word):
        is_within = bool(following) and not following.isupper()
        return is_within or _is_local_abbreviation(word, following, language)
    if _TITLE.fullmatch(word) or _NEVER_LAST.fullmatch(word):
        return True
    if word[-1:].isupper() and _INITIALS.fullmatch(word):
        return True
    if following.isdecimal() and _MONTH.fullmatch(word):
        return True
    return _is_local_abbreviation(word, following, language)


@lru_cache(maxsize=4096)
def _abbreviating(word: str) -> frozenset[Language]:
    """Return the languages in which a word is an abbreviation."""
    return frozenset(language for language, known in _ABBREVIATIONS.items() if known.fullmatch(word))


def _is_local_abbreviation(word: str, following: str, language: Callable[[], Language | None]) -> bool:
    """Tell whether a full stop behind this word ends no sentence in the text's language."""
    if _ARABIC_LETTER.fullmatch(word):  # a title or a unit
        return True
    if _ORDINAL.fullmatch(word):
        return following.isalpha() and language() is Language.GERMAN
    if _SINGLE_LETTER.fullmatch(word):  # z. B., p. ex., a. C.
        return following not in "¿¡" and language() in _ABBREVIATIONS
    return bool(_abbreviating(word)) and language() in _abbreviating(word)


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    start = end - len(text[start:end].lstrip())
    at_line_start = start == 0 or text.find("\n", max(0, start - 8), start) >= 0
    if at_line_start and (marker := _MARKER.match(text, start, end)):
        start = marker.end()
    return start, start + len(text[start:end].rstrip())


def _cut(text: str, start: int, end: int, max_chars: int) -> Iterator[tuple[int, int]]:
    while end - start > max_chars:
        gap = text.rfind(" ", start + 1, start + max_chars)
        middle = gap if gap > start else _without_gap(text, start, start + max_chars)
        yield start, middle
        space = _GAP.match(text, middle, end)
        start = space.end() if space else middle
    yield start, end


def _without_gap(text: str, start: int, end: int) -> int:
    """Return where text without spaces is cut: behind a comma, else not between a letter and its accents."""
    if comma := max(text.rfind(mark, start, end) for mark in _COMMAS) + 1:
        return comma
    accents = next((at for at in range(end, end - 8, -1) if not unicodedata.combining(text[at])), end)
    return max(start + 1, accents)
