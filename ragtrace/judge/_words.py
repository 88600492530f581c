"""The words, names and numbers of a text, made comparable. The rules are for English."""

# ruff: noqa: RUF001  this module handles typographic marks

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

_NUMBER = r"\d+(?:[.,:/]\d+)*"
_UNSPACED_MARKS = r"\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Scripts without spaces between words: Thai, Lao, Japanese, Chinese."""
_WORD = rf"(?:[^\W\d_{_UNSPACED_MARKS}][^\W_{_UNSPACED_MARKS}]*|[{_UNSPACED_MARKS}]+)"  # "CO2" is a word
_TOKEN = re.compile(rf"{_NUMBER}|{_WORD}(?:['’][^\W\d_]+)*")
_FIGURES = re.compile(_NUMBER)
_CLAIMED_FIGURES = re.compile(rf"{_WORD}|({_NUMBER})(?!st\b|nd\b|rd\b|th\b|\d)")
_CONVERSION = re.compile(r"(?<=[\w°%]) ?\((?:about |approximately |around |~|≈)?\d[^()]{0,30}[^\d()]\)")
_NAME = re.compile(r"(?<=[\w,;'’&)/-] )([A-Z]\w*(?:['’]\w+)?)")
_NEGATION = re.compile(r"\b(?:not|no|never|none|nor|neither|without|cannot)\b|n['’]t\b", re.IGNORECASE)
_UNSPACED = re.compile(rf"[{_UNSPACED_MARKS}]")
_NUMBER_WORDS = {
    word: str(value)
    for value, word in enumerate(
        [
            *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
            *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
            *("nineteen", "twenty"),
        ]
    )
} | {"thirty": "30", "forty": "40", "fifty": "50", "sixty": "60", "hundred": "100"}
_STOP_WORDS = frozenset(
    """
    a about above according across after again all along also although am among an and any anybody are around
    as at be because been before being below between both but by can could did do does doing done down due
    during each either else etc even ever every few for from further had has have having he her here hers him
    his how however i if in into is it its itself just least less like made make makes many may me might more
    most much must my near neither no nor not of off often on once one only onto or other others our out over
    own per rather same several shall she should since so some such than that the their theirs them then there
    therefore these they this those though through thus to together too toward towards under until up upon us
    use used using very via was way we well were what when where whether which while who whom whose why will
    with within without would yet you your yours
    """.split()  # noqa: SIM905  a list of words reads best as words
)
_SUFFIXES = (
    ("ational", "ate", 3),
    ("ization", "ize", 3),
    ("ations", "at", 3),
    ("ation", "at", 3),
    ("ities", "ity", 3),
    ("ments", "", 4),
    ("ment", "", 4),
    ("ings", "", 3),
    ("ing", "", 3),
    ("iest", "y", 3),
    ("ied", "y", 3),
    ("ies", "y", 3),
    ("edly", "", 3),
    ("ally", "al", 3),
    ("ness", "", 4),
    ("sses", "ss", 2),
    ("ches", "ch", 2),
    ("shes", "sh", 2),
    ("xes", "x", 2),
    ("ed", "", 3),
    ("ly", "", 4),
    ("ss", "ss", 2),
    ("us", "us", 2),
    ("is", "is", 2),
    ("s", "", 3),
)
"""Ending, its replacement, and the least number of letters before it. The first match applies."""


class StemmedWord(NamedTuple):
    """A word without its inflection."""

    stem: str
    is_content: bool
    """Whether it carries meaning: no stop word, no number, no single letter."""


def content_stems(text: str) -> frozenset[str]:
    """Return the stems of the content words; numbers are compared by value elsewhere."""
    return frozenset(word.stem for word in ordered_stems(text) if word.is_content)


def ordered_stems(text: str) -> tuple[StemmedWord, ...]:
    """Return the stems of all words and figures, in order.

    Scripts without spaces (Chinese, Japanese, Thai) give every two neighboring characters as a word.
    """
    return tuple(_stemmed(word) for found in _TOKEN.findall(text) for word in _without_spaces(found))


def _without_spaces(word: str) -> Iterable[str]:
    if len(word) < 2 or not _UNSPACED.match(word):
        return (word,)
    return map("".join, pairwise(word))


def _stemmed(word: str) -> StemmedWord:
    if word[0].isdecimal():
        return StemmedWord(_plain_number(word), False)
    bare = _bare(word)
    return StemmedWord(stem(word), bare not in _STOP_WORDS and len(bare) > 1)


def numbers(text: str) -> frozenset[str]:
    """Return the numbers that a context supports, in a broad sense: figures, their parts, number words."""
    words = (word.lower() for word in _TOKEN.findall(text))
    found = {_NUMBER_WORDS[word] for word in words if word in _NUMBER_WORDS}
    for figures in _FIGURES.findall(text):
        found |= {_plain_number(figures), *re.split(r"[.,:/]", figures)}
    return frozenset(found)


def claimed_numbers(text: str) -> frozenset[str]:
    """Return the numbers that a claim must prove: its figures, without ordinals and unit conversions."""
    found = _CLAIMED_FIGURES.findall(_CONVERSION.sub(" ", text))
    return frozenset(_plain_number(figures) for figures in found if figures)


def names(text: str) -> tuple[str, ...]:
    """Return the capitalized words, except at the beginning of the text or of a part of it."""
    found = (match[1].replace("’", "'").removesuffix("'s") for match in _NAME.finditer(text))
    return tuple(name for name in dict.fromkeys(found) if len(name) > 1 and name.lower() not in _STOP_WORDS)


def has_negation(text: str) -> bool:
    """Tell whether the text negates something."""
    return bool(_NEGATION.search(text))


def word_count(text: str) -> int:
    """Count words and figures."""
    return len(_TOKEN.findall(text))


@lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """Remove the inflection of an English word (approximate)."""
    word = _bare(word)
    for suffix, instead, before in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= before:
            word = word.removesuffix(suffix) + instead
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "ls":
        word = word[:-1]
    return word.rstrip("e") if len(word) > 4 else word


def _bare(word: str) -> str:
    return word.lower().replace("’", "'").removesuffix("'s")


def _plain_number(figures: str) -> str:
    plain = re.sub(r",(?=\d{3}(?!\d))", "", figures)
    return re.sub(r"\.0+$", "", plain).lstrip("0") or "0"
