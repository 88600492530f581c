"""The words, names and numbers of a text, made comparable by the rules of its language."""

# ruff: noqa: RUF001  this module handles typographic marks

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache, partial
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

from ragtrace.judge._grammars import ENGLISH, Grammar, Suffixes
from ragtrace.judge._numbers import UNITLESS, UNSURE, Readings, dates_named, numbers_in, plain, with_decimals

KnownT = TypeVar("KnownT")

_NUMBER = r"\d+(?:[.,:/]\d+)*"
_UNSPACED_MARKS = r"\u0e00-\u0eff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Scripts without spaces between words: Thai, Lao, Japanese, Chinese."""
_ACCENTS = r"\u0300-\u036f"
"""Combining marks for which there is no composed character."""
_WORD = (
    rf"(?:[^\W\d_{_UNSPACED_MARKS}](?:[^\W_{_UNSPACED_MARKS}]|[{_ACCENTS}])*|[{_UNSPACED_MARKS}]+)"  # "CO2"
)
_TOKEN = re.compile(rf"{_NUMBER}|{_WORD}(?:['’][^\W\d_]+)*")
_ASCII_TOKEN = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:'[A-Za-z]+)*|\d+(?:[.,:/]\d+)*")
"""Finds the same in ASCII, in half the time."""
_FIGURES = re.compile(_NUMBER)
_HAS_FIGURES = re.compile(r"[\d¼-¾⅓-⅞]")
_MARKS = re.compile(r"[.,:/]")
_THOUSANDS_MARK = re.compile(r",(?=\d{3}(?!\d))")
_CONVERSION = re.compile(r"(?<=[\w°%]) ?\((?:about |approximately |around |~|≈)?\d[^()]{0,30}[^\d()]\)")
_NAME = re.compile(r"(?<=[\w,;'’&)/-] )([A-Z]\w*(?:['’]\w+)?)")
_CAPITALIZED = re.compile(r"(?<=[\w,;'’&)/-] )([^\W\d_]\w*)")
_UNSPACED = re.compile(rf"[{_UNSPACED_MARKS}]")
_SCRIPT_RUNS = re.compile(r"[\u3040-\u309f]+|[\u30a0-\u30ff]+|[^\u3040-\u30ff]+")
_HIRAGANA = re.compile(r"[\u3040-\u309f]+\Z")
_SPACED_THOUSANDS = re.compile(r"(?<![\d.,])(\d{1,3})((?:[ \u00a0\u2009\u202f]\d{3})+)(?!\d)")
_DOTTED_THOUSANDS = re.compile(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?")
_MYRIADS = {"十": 10, "百": 100, "千": 1000, "万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8, "兆": 10**12}
_COUNTED_MYRIADS = re.compile(rf"(\d+(?:\.\d+)?)([{''.join(_MYRIADS)}])")
_NUMERALS = {**{mark: value for value, mark in enumerate("〇一二三四五六七八九")}, "零": 0, "两": 2, "兩": 2}
_WRITTEN_NUMBER = re.compile(rf"[{''.join(_NUMERALS)}{''.join(_MYRIADS)}]{{1,20}}")
_PLAIN_LETTERS = str.maketrans("àâäáãèêëéìîïíòôöóõùûüúç", "aaaaaeeeeiiiiooooouuuuc")

_MOST_WORDS: Final = 32_768

NEGATED: Final = "¬"
AFFIRMED: Final = "="
POLARITY: Final = frozenset((NEGATED, AFFIRMED))
"""Outside English, whether a sentence negates is one of its content words, so that it counts in coverage."""


class StemmedWord(NamedTuple):
    """A word without its inflection."""

    stem: str
    is_content: bool
    """Whether it carries meaning: no stop word, no number, no single letter."""


def ordered_stems(text: str, grammar: Grammar = ENGLISH) -> tuple[StemmedWord, ...]:
    """Return the stems of all words and figures, in order.

    Scripts without spaces (Chinese, Japanese, Thai) give every two neighboring characters as a word.
    """
    plain = text if grammar.is_english else grammar.elided.sub(" ", _joined(text, grammar))
    words: Iterable[str] = _tokens(plain)
    if not plain.isascii() and _UNSPACED.search(plain):
        words = (word for found in words for word in _without_spaces(found, grammar))
    return tuple(map(_stemmed_words(grammar).__getitem__, words))


@lru_cache(maxsize=4)  # for the words of a sentence, then for its numbers
def _tokens(text: str) -> tuple[str, ...]:
    return tuple((_ASCII_TOKEN if text.isascii() else _TOKEN).findall(text))


def content_stems(text: str, words: Iterable[StemmedWord], grammar: Grammar) -> frozenset[str]:
    """Return the stems of the content words; numbers are compared by value elsewhere."""
    stems = {held for held, is_content in words if is_content}
    if not grammar.is_english and stems:
        stems.add(NEGATED if has_negation(text, grammar) else AFFIRMED)
    return frozenset(stems)


def _without_spaces(word: str, grammar: Grammar) -> Iterable[str]:
    if len(word) < 2 or not _UNSPACED.match(word):
        return (word,)
    if grammar.has_myriads:
        return _character_pairs(word, grammar)
    return map("".join, pairwise(word))


def _character_pairs(word: str, grammar: Grammar) -> Iterator[str]:
    """Yield pairs of characters of the same script, and not across a function word."""
    for run in _SCRIPT_RUNS.findall(word):
        part = ""
        for mark in run:
            if mark in grammar.stop_words:
                yield from _pairs_of(part)
                yield mark
                part = ""
            else:
                part += mark
        yield from _pairs_of(part)


def _pairs_of(part: str) -> Iterable[str]:
    return map("".join, pairwise(part)) if len(part) > 1 else filter(None, (part,))


class _Lately(dict[str, KnownT]):
    """What is known of words that were seen lately. When there are too many, all are forgotten."""

    def __init__(self, find: Callable[[str], KnownT]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, word: str) -> KnownT:
        if len(self) >= _MOST_WORDS:
            self.clear()
        found = self[word] = self._find(word)
        return found


@cache
def _stemmed_words(grammar: Grammar) -> Mapping[str, StemmedWord]:
    return _Lately(partial(_stemmed, grammar=grammar))


@cache
def _number_words(grammar: Grammar) -> Mapping[str, str]:
    """Return the number that a word is; most are none."""
    return _Lately(lambda word: grammar.number_words.get(word.lower(), ""))


def _stemmed(word: str, grammar: Grammar) -> StemmedWord:
    if word[0].isdecimal():
        return StemmedWord(plain_number(word, grammar), False)
    bare = _bare(word)
    if grammar.has_myriads and _UNSPACED.match(bare):
        return StemmedWord(bare, bare not in grammar.stop_words and not _HIRAGANA.match(bare))
    return StemmedWord(stem(word, grammar), bare not in grammar.stop_words and len(bare) > 1)


def numbers(text: str, grammar: Grammar = ENGLISH) -> frozenset[str]:
    """Return the numbers that a context supports, in a broad sense: all readings of figures, their parts,
    number words."""
    found = set(map(_number_words(grammar).__getitem__, _tokens(text)))
    found.discard("")
    sized: set[str] = set()
    if _HAS_FIGURES.search(text):
        text = with_decimals(text)
        sized.update(dates_named(text))
        for (start, end), readings in [*numbers_in(text, grammar)]:
            if readings[0][0] not in "-#":
                found.update(readings)
                continue
            sized.update(reading.removesuffix(UNITLESS) for reading in readings if reading[0] != "#")
            text = text[:start] + " " * (end - start) + text[end:]  # -20 is not 20, and 2 km is not 2 m
    for figures in _FIGURES.findall(text):
        found |= _readings(figures)
    if not grammar.is_english:
        found.update(plain_number(figures, grammar) for figures in _FIGURES.findall(_joined(text, grammar)))
    if grammar.has_myriads:
        found.update(_written_numbers(text))
    found.discard(UNSURE)
    return frozenset({*found, *sized, *(f"{number}{UNITLESS}" for number in found)})


@lru_cache(maxsize=4096)
def _readings(figures: str) -> frozenset[str]:
    return frozenset((plain_number(figures), *_MARKS.split(figures)))


def claimed_numbers(text: str, grammar: Grammar = ENGLISH) -> frozenset[Readings]:
    """Return the readings of the numbers that a claim must prove, without ordinals and unit conversions."""
    if not _FIGURES.search(text):
        return frozenset()
    plain = _CONVERSION.sub(" ", text)
    plain = with_decimals(_joined(plain, grammar) if grammar.has_myriads else plain)
    return frozenset(readings for _, readings in numbers_in(plain, grammar))


def names(text: str, grammar: Grammar = ENGLISH) -> tuple[str, ...]:
    """Return the capitalized words, except at the beginning of the text or of a part of it."""
    if grammar.is_english:
        marked = [match[1] for match in _NAME.finditer(text)]
    elif grammar.has_capitals:
        plain = grammar.elided.sub(" ", text)
        marked = [match[1] for match in _CAPITALIZED.finditer(plain) if match[1][0].isupper()]
    else:
        return ()
    found = (name.replace("’", "'").removesuffix("'s") for name in marked)
    stop_words = grammar.stop_words
    return tuple(name for name in dict.fromkeys(found) if len(name) > 1 and name.lower() not in stop_words)


def has_negation(text: str, grammar: Grammar = ENGLISH) -> bool:
    """Tell whether the text negates something."""
    return bool(grammar.negation.search(text))


def word_count(text: str) -> int:
    """Count words and figures; two characters of a script without spaces are a word."""
    found = _tokens(text)
    if text.isascii():
        return len(found)
    return sum((len(word) + 1) // 2 if _UNSPACED.match(word) else 1 for word in found)


def stem(word: str, grammar: Grammar = ENGLISH) -> str:
    """Remove the inflection of a word (approximate)."""
    word = _bare(word)
    if not grammar.is_english:
        word = _without_prefix(word.translate(_PLAIN_LETTERS), grammar.prefixes)
    for suffix, instead, before in _suffixes_by_letter(grammar).get(word[-1:], ()):
        if word.endswith(suffix) and len(word) - len(suffix) >= before:
            word = word.removesuffix(suffix) + instead
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "ls":
        word = word[:-1]
    return word.rstrip("e") if len(word) > 4 else word


@cache
def _suffixes_by_letter(grammar: Grammar) -> Mapping[str, Suffixes]:
    """Return the suffixes by their last letter, in order."""
    found: defaultdict[str, Suffixes] = defaultdict(tuple)
    for suffix in grammar.suffixes:
        found[suffix[0][-1]] += (suffix,)
    return dict(found)


def _without_prefix(word: str, prefixes: Iterable[str]) -> str:
    for prefix in prefixes:
        if word.startswith(prefix) and len(word) - len(prefix) >= 3:
            return word.removeprefix(prefix)
    return word


def _bare(word: str) -> str:
    return word.lower().replace("’", "'").removesuffix("'s")


def plain_number(figures: str, grammar: Grammar = ENGLISH) -> str:
    """Return a number without marks of thousands and zeros that say nothing."""
    if grammar.decimal_comma:
        if _DOTTED_THOUSANDS.fullmatch(figures):
            figures = figures.replace(".", "").replace(",", ".")
        elif figures.count(",") == 1 and "." not in figures:
            figures = figures.replace(",", ".")
        figures = re.sub(r"(?<=\.)(\d*?)0+$", r"\1", figures).removesuffix(".")
    return plain(_THOUSANDS_MARK.sub("", figures))


def _joined(text: str, grammar: Grammar) -> str:
    """Write numbers in one piece: 1 250 is 1250, 3万 is 30000."""
    if grammar.decimal_comma:
        return _SPACED_THOUSANDS.sub(lambda found: found[1] + re.sub(r"\D", "", found[2]), text)
    if grammar.has_myriads:
        return _COUNTED_MYRIADS.sub(lambda found: f"{float(found[1]) * _MYRIADS[found[2]]:.0f}", text)
    return text


def _written_numbers(text: str) -> Iterator[str]:
    """Yield the values of numbers that are written with characters: 三十 is 30."""
    for written in _WRITTEN_NUMBER.findall(text):
        whole = section = digit = 0
        for mark in written:
            value = _MYRIADS.get(mark)
            if value is None:
                digit = _NUMERALS[mark]
            elif value < 10**4:
                section, digit = section + max(1, digit) * value, 0
            else:
                whole, section, digit = whole + max(1, section + digit) * value, 0, 0
        yield str(whole + section + digit)
