"""The words, names and numbers of a text, made comparable by the rules of its language, and an index of them.

Numbers are compared by value: 1,5 is 1.5, 6 pm is 18:00, 2 km is 2000 m, -20 is not 20.
"""

# ruff: noqa: RUF001  the languages have their own letters and marks

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, lru_cache
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias, TypeVar

from ragtrace.judge.phrases import ENGLISH, Grammar, Suffixes, grammar_of
from ragtrace.judge_forms import NumberedText
from ragtrace.languages import Language, language_of, languages_of, one_spelling, script_of
from ragtrace.sentences import split_sentences

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
_COUNTED_MYRIADS = re.compile(rf"(\d+(?:\.\d+)?)([{''.join(_MYRIADS)}])(\d{{1,4}}(?![\d,.]))?")
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
    return tuple([_stemmed(word, grammar) for word in words])


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


@lru_cache(maxsize=_MOST_WORDS)
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
    found = {grammar.number_words.get(word.lower(), "") for word in _tokens(text)}
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
        found |= _values_of(figures)
    if not grammar.is_english:
        found.update(plain_number(figures, grammar) for figures in _FIGURES.findall(_joined(text, grammar)))
    if grammar.has_myriads:
        found.update(_written_numbers(text))
    found.discard(UNSURE)
    return frozenset({*found, *sized, *(f"{number}{UNITLESS}" for number in found)})


@lru_cache(maxsize=4096)
def _values_of(figures: str) -> frozenset[str]:
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
    return tuple(
        name
        for name in dict.fromkeys(found)
        if len(name) > 1 and name.lower() not in stop_words and not _is_unit(name, text)
    )


def _is_unit(name: str, text: str) -> bool:
    is_known = name.lower() in ("celsius", "fahrenheit") or any(words.match(name) for *_, words in _UNIT)
    return is_known and bool(re.search(rf"\d[{_SPACES}-]?(?:°|degrees )?{re.escape(name)}\b", text))


def has_negation(text: str, grammar: Grammar = ENGLISH) -> bool:
    """Tell whether the text negates something."""
    return bool(grammar.negation.search(text))


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
        return _COUNTED_MYRIADS.sub(
            lambda found: f"{float(found[1]) * _MYRIADS[found[2]] + int(found[3] or 0):.0f}", text
        )
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


Readings: TypeAlias = tuple[str, ...]
"""What a number may mean, the likeliest first. A number with a unit is its size, ``=2000 m``, or without a
unit, ``2 _``; its figures alone, ``#2``, are only shown."""

_SPACES: Final = r" \u00a0\u2009\u202f"
_FIGURE: Final = re.compile(
    rf"(?<![\w.,])(?:\d{{1,3}}(?:[\u00a0\u2009\u202f'’]\d{{3}})+"
    rf"|\d{{1,3}}(?: \d{{3}})+(?![\d%]))(?:[.,]\d+)?(?!\d)"
    rf"|(?<![^\W_{_UNSPACED_MARKS}])\d+(?:[.,:/]\d+)*+"
)
_EIGHTHS: Final = zip("⅛⅜⅝⅞", (".125", ".375", ".625", ".875"), strict=True)
_FRACTIONS: Final = {"½": ".5", "¼": ".25", "¾": ".75", "⅓": ".33", "⅔": ".67", "⅕": ".2", **dict(_EIGHTHS)}
_FRACTION: Final = re.compile(rf"(?:(\d+)[{_SPACES}]?)?([{''.join(_FRACTIONS)}])")
_WRITTEN_FRACTION: Final = re.compile(r"(?<![\d/.,])(\d{1,3}) ([123])/([248])(?![\d/])")
_THOUSANDS: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?")
_DOTTED: Final = re.compile(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?")
_AMBIGUOUS: Final = re.compile(r"[1-9]\d{0,2}[.,]\d{3}")
_DECIMAL_COMMA: Final = re.compile(r"\d+,\d+")
_PLAIN: Final = re.compile(r"(?=[\d.])\d{0,15}(?:\.\d{1,15})?")
_ZEROS: Final = re.compile(r"\.0+$")

_BIG: Final = {
    10**3: "(?i:thousand|tausend|tsd|mille|mila|tys|тыс)|k|K",
    10**4: "万|萬|만",
    10**5: "(?i:lakhs?|lacs?)",
    10**6: (
        r"(?i:millions?|mio|millionen|millones|millón|milhões|milhão|milioni|milione|miljoen|miljoner"
        r"|milion\w*|mln|млн|миллион\w*|milyon|mn)|M"
    ),
    10**7: "(?i:crores?|cr)",
    10**8: "亿|億|억",
    10**9: (
        r"(?i:billions?|bn|mrd|milliarden?|milliards?|mil millones|bilhões|miliardi|miliardo|miljard\w*|mld"
        r"|млрд|миллиард\w*|milyar)|B"
    ),
}
_SCALES: Final = [
    (scale, re.compile(rf"[{_SPACES}]?(?:{words})(?![A-Za-zа-я])")) for scale, words in _BIG.items()
]
_SCALED: Final = re.compile(rf"[{_SPACES}]?[A-Za-zа-яМ万萬만亿億억]")
_HALF_DAY: Final = re.compile(rf"[{_SPACES}]?([ap])\.?[{_SPACES}]?m\b\.?", re.IGNORECASE)
_HOUR: Final = re.compile(
    rf"[{_SPACES}]?(?:uhr|h|heures?|horas|uur|時|点|點|시)(?!\w)[{_SPACES}]?|[{_SPACES}]?h(?=\d\d)",
    re.IGNORECASE,
)
_MINUTES: Final = re.compile(r"([0-5]\d)(?!\d)")
_CLOCK: Final = re.compile(r"(\d{1,2})(?:[:.](\d{2}))?")
_TELEPHONE: Final = re.compile(
    r"\+\d[\d()/.\u00a0 -]{5,24}\d|(?<![\w.,])0\d{1,4}[ /-][\d()/ -]{4,20}\d|\(\d{3}\) ?\d{3}-\d{4}"
    r"|\d{3}-\d{3}-\d{4}"
)
UNITLESS: Final = " _"
UNSURE: Final = "?"
"""A reading of a number that may be written in any way, such as a telephone's: it is never called missing."""
_NEGATIVE: Final = re.compile(
    r"(?:(?:^|(?<![\d\s])\s|[(=:~≈<>≤≥|])[-−–]|\bminus |\bnegative |\bmoins |\bmenos |\bmeno )$",
    re.IGNORECASE,
)
_BELOW: Final = re.compile(
    rf"[{_SPACES}]?(?:°[{_SPACES}]?[cf]?|degrees?(?: celsius| fahrenheit)?"
    rf"|grad)?[{_SPACES}]?(?:below (?:zero|freezing)|unter null)",
    re.IGNORECASE,
)
_CHANGE: Final = re.compile(rf"[{_SPACES}]?(?:[%€$£¥]|percent|prozent)", re.IGNORECASE)

_UNITS: Final = {
    ("km/h", "1"): "km/h|kmh|kph|kilomet(?:er|re)s per hour|stundenkilometern?",
    ("m", "1000"): "km|kilomet\\w+|chilometr\\w+|quilômetr\\w+",
    ("m", "1"): "m|met(?:er|re)s?|metern|mètres?|metros?|metr[io]",
    ("m", "0.01"): "cm|centimet\\w+|zentimet\\w+|centimèt\\w+|centímet\\w+",
    ("m", "0.001"): "mm|millimet\\w+|millimèt\\w+|milímet\\w+",
    ("g", "1000"): "kg|kilos?|kilogra\\w+",
    ("g", "1"): "g|grams?|grammes?|gramm|gramos?|gram",
    ("g", "0.001"): "mg|milligra\\w+|miligra\\w+",
    ("g", "1000000"): "t|tonnes?|tonnen?|metric tons?|toneladas?",
    ("l", "1"): "l|lit(?:er|re)s?|litern|litros?|litr[io]",
    ("l", "0.1"): "dl|decilit\\w+",
    ("l", "0.01"): "cl|centilit\\w+",
    ("l", "0.001"): "ml|millilit\\w+|mililit\\w+",
    ("s", "1"): "s|secs?|seconds?|sekunden?|secondes?|segundos?|second[io]",
    ("s", "60"): "min|mins|minutes?|minuten?|minutos?|minut[io]",
    ("s", "3600"): "h|hrs?|hours?|stunden?|heures?|horas?|or[ae]",
    ("s", "86400"): "days?|tage?n?|jours?|días?|dias?|giorn[io]|dagen|dni|дней",
    ("s", "604800"): "weeks?|wochen?|semaines?|semanas?|settiman[ae]|weken",
    ("month", "1"): "months?|monate?n?|mois|mes(?:es)?|mes[ei]|maanden",
    ("month", "12"): "years?|jahre?n?|ans?|années?|años?|anos?|ann[io]|jaar",
    ("B", "1000"): "kb|kilobytes?",
    ("B", "1000000"): "mb|megabytes?",
    ("B", "1000000000"): "gb|gigabytes?",
    ("B", "1000000000000"): "tb|terabytes?",
    ("W", "1"): "w|watts?",
    ("W", "1000"): "kw|kilowatts?",
    ("W", "1000000"): "mw|megawatts?",
}
_INEXACT_UNITS: Final = {
    ("m", "1609.34"): "mi|miles?",
    ("m", "0.3048"): "ft|feet|foot",
    ("m", "0.0254"): "inch|inches",
    ("km/h", "1.60934"): "mph|miles per hour",
    ("g", "453.592"): "lbs?|pounds?",
    ("g", "28.3495"): "oz|ounces?",
}
_UNIT: Final = [
    (dimension, Decimal(factor), is_exact, re.compile(rf"[{_SPACES}-]?(?:{words})(?![\w/²³])", re.IGNORECASE))
    for units, is_exact in ((_UNITS, True), (_INEXACT_UNITS, False))
    for (dimension, factor), words in units.items()
]
_DEGREES: Final = re.compile(
    rf"[{_SPACES}]?(?:°|degrees?|grad|degrés|grados|gradi)[{_SPACES}]?([cf])", re.IGNORECASE
)

_MONTHS: Final = (
    "jan|janv|janua|janei|ene|enero|genn|jänn",
    "feb|fév|févr|fev|febb",
    "mar|mär|mars|marzo|maart|març",
    "apr|avr|abr|kwie",
    "may|mai|mayo|mag|mei|maio",
    "jun|juin|giu|junho",
    "jul|juil|lug|julho",
    "aug|août|aout|ago",
    "sep|set|wrze",
    "oct|okt|ott|out",
    "nov",
    "dec|dez|déc|dic|des",
)
_MONTH_NAME: Final = re.compile(
    "|".join(rf"(?P<m{n}>(?:{names})[^\W\d_]{{0,8}}\.?)" for n, names in enumerate(_MONTHS, start=1)),
    re.IGNORECASE,
)
_DATE: Final = re.compile(
    r"(?<![\d.,/-])(?:(?P<y>[12]\d{3})[-./](?P<m>\d{1,2})[-./](?P<d>\d{1,2})"
    r"|(?P<a>\d{1,2})(?P<mark>[-./])(?P<b>\d{1,2})(?P=mark)(?P<z>[12]\d{3}))(?![\d/-]|\.\d)"
    r"|(?P<cy>[12]\d{3})年(?P<cm>\d{1,2})月(?P<cd>\d{1,2})日"
)
_NAMED_DATE: Final = re.compile(
    r"(?<!\d)(?P<d>\d{1,2})(?:st|nd|rd|th|er|\.|º)?,? (?:of |de "
    r"|d')?(?P<name>[^\W\d_]{3,10}\.?),? (?:de |del )?(?P<y>[12]\d{3})(?!\d)"
    r"|(?P<name2>[^\W\d_]{3,10}\.?) (?P<d2>\d{1,2})(?:st|nd|rd|th)?,? (?P<y2>[12]\d{3})(?!\d)"
)


def with_decimals(text: str) -> str:
    """Write fractions as decimals: 1½ is 1.5."""
    text = _FRACTION.sub(lambda found: (found[1] or "0") + _FRACTIONS[found[2]], text)
    return _WRITTEN_FRACTION.sub(lambda f: f[1] + f"{int(f[2]) / int(f[3]):g}"[1:], text)


def numbers_in(text: str, grammar: Grammar) -> Iterator[tuple[tuple[int, int], Readings]]:
    """Yield the places of the numbers of a text, and their readings; a date in figures is one number.

    Ordinals are left out: they are no amounts.
    """
    spans: list[tuple[int, int]] = []
    telephones = [found.span() for found in _TELEPHONE.finditer(text)]
    for found in _DATE.finditer(text):
        if dates := _dates(found):
            spans.append(found.span())
            yield found.span(), (*dates, plain(found[0]))
    for found in _FIGURE.finditer(text):
        if any(start <= found.start() < end for start, end in spans):
            continue
        if readings := _readings(text, found, grammar):
            is_sure = not any(start <= found.start() < end for start, end in telephones)
            yield found.span(), readings if is_sure else (*readings, UNSURE)


def dates_named(text: str) -> Iterator[str]:
    """Yield the dates that are written with the name of a month."""
    yield from filter(None, map(_named_date, _NAMED_DATE.finditer(text)))


def _named_date(found: re.Match[str]) -> str | None:
    month = _MONTH_NAME.fullmatch(found["name"] or found["name2"])
    if month is None or month.lastgroup is None:
        return None
    return _date(found["y"] or found["y2"], month.lastgroup[1:], found["d"] or found["d2"])


def with_dates_of(chunks: WordIndex, claim: str) -> str:
    """Write the days with the name of a month in figures if the chunks have them in figures: 2026-3-4."""

    def in_figures(found: re.Match[str]) -> str:
        day, name = _named_date(found), found["name"] or found["name2"]
        is_known = day in chunks.numbers and stem(name, chunks.grammar) not in chunks.places
        return day.removeprefix("=") if day and is_known else found[0]

    return _NAMED_DATE.sub(in_figures, claim)


def plain(figures: str) -> str:
    """Return figures without the zeros that say nothing."""
    return _ZEROS.sub("", figures).lstrip("0") or "0"


def _dates(found: re.Match[str]) -> Readings:
    if year := found["y"] or found["cy"]:
        return (_date(year, found["m"] or found["cm"], found["d"] or found["cd"]),)
    ways = [(found["b"], found["a"]), (found["a"], found["b"])]
    return tuple(_date(found["z"], month, day) for month, day in ways if 1 <= int(month) <= 12)


def _date(year: str, month: str, day: str) -> str:
    return f"={year}-{int(month)}-{int(day)}"


def _readings(text: str, found: re.Match[str], grammar: Grammar) -> Readings:
    figures, rest = found[0], text[found.end() : found.end() + 40]
    if grammar.ordinals and re.match(grammar.ordinals, rest) and not _HALF_DAY.match(rest):
        return ()
    before = text[max(0, found.start() - 12) : found.start()]
    if clock := _clock(figures, rest):
        return clock
    values = _values(figures, grammar)
    for scale, words in _SCALES if _SCALED.match(rest) else ():
        if words.match(rest):
            values = tuple(_times(value, Decimal(scale)) for value in values)
            break
    sizes = tuple(_sizes(values[0], rest))
    if _NEGATIVE.search(before) or _BELOW.match(rest):
        negative = tuple(f"-{value}" for value in (*values, *(size[1:] for size in sizes)))
        return (*negative, *values) if _CHANGE.match(rest) else negative
    if sizes:
        return (f"#{figures}", *sizes, *(f"{value}{UNITLESS}" for value in values))
    return values


def _values(figures: str, grammar: Grammar) -> Readings:
    joined = re.sub(rf"(?<=\d)[{_SPACES}'’](?=\d)", "", figures)
    if _THOUSANDS.fullmatch(joined):
        likely = joined.replace(",", "")
        others = [joined.replace(",", ".")] if _AMBIGUOUS.fullmatch(joined) else []
        if grammar.decimal_comma and others:
            likely, others = others[0], [likely]
    elif _DOTTED.fullmatch(joined):
        likely, others = joined.replace(".", "").replace(",", "."), []
        if _AMBIGUOUS.fullmatch(joined):
            others = [joined]
            if not grammar.decimal_comma:
                likely, others = joined, [likely]
    elif _DECIMAL_COMMA.fullmatch(joined):
        likely, others = joined.replace(",", "."), []
        if likely.endswith("0"):
            others = [likely.rstrip("0").removesuffix(".")]
    else:
        likely, others = joined, []
    return tuple(dict.fromkeys(map(plain, (likely, *others))))


def _clock(figures: str, rest: str) -> Readings:
    clock = _CLOCK.fullmatch(figures)
    if clock is None or int(clock[1]) > 24:
        return ()
    hour, minutes = int(clock[1]), clock[2] or "00"
    if (half := _HALF_DAY.match(rest)) and 1 <= hour <= 12:
        return (f"={hour % 12 + 12 * (half[1].lower() == 'p')}:{minutes}",)
    if told := _HOUR.match(rest):
        if clock[2] is None and (further := _MINUTES.match(rest, told.end())):
            minutes = further[1]
        sizes = _sizes(plain(figures), rest)
        return (f"={hour}:{minutes}", *([plain(figures)] if minutes == "00" or clock[2] else []), *sizes)
    return (f"={hour}:{minutes}",) if ":" in figures else ()


def _sizes(value: str, rest: str) -> Iterator[str]:
    """Yield the size of a number with a unit; several roundings of one that is converted."""
    if not _PLAIN.fullmatch(value):
        return
    if degrees := _DEGREES.match(rest):
        if degrees[1].lower() == "c":
            yield f"={value} C"
        else:
            celsius = (Decimal(value) - 32) * 5 / 9
            yield from (f"={_written(celsius.quantize(Decimal(step)))} C" for step in ("1", "0.1"))
        return
    for dimension, factor, is_exact, words in _UNIT:
        if words.match(rest):
            size = Decimal(value) * factor
            for digits in (28,) if is_exact else (2, 3):
                yield f"={_written(size if is_exact else _rounded(size, digits))} {dimension}"
            if dimension == "B":  # in powers of 1,024, as much software counts
                yield f"={_written(Decimal(value) * 1024 ** (factor.adjusted() // 3))} {dimension}"
            return


def _rounded(size: Decimal, digits: int) -> Decimal:
    return size.quantize(Decimal(1).scaleb(size.adjusted() - digits + 1)) if size else size


def _times(value: str, scale: Decimal) -> str:
    return plain(_written(Decimal(value) * scale)) if _PLAIN.fullmatch(value) else value


def _written(value: Decimal) -> str:
    written = f"{value:f}"
    return (written.rstrip("0").rstrip(".") if "." in written else written) or "0"


ItemT = TypeVar("ItemT")

PREFIX_CHARS = 4
LONGEST_WINDOW = 5
"""Sentences; a window is within a chunk."""
_SENTENCES_A_TURN = 50


class PassageSentence(NamedTuple):
    """A sentence of a chunk."""

    text: str
    stems: frozenset[str]
    """Of its content words."""
    numbers: frozenset[str]
    order: tuple[str, ...]
    """The stems of all its words, in order."""


@lru_cache(maxsize=8192)
def _prepared(text: str, grammar: Grammar) -> PassageSentence:
    spelled = one_spelling(text)
    words = ordered_stems(spelled, grammar)
    return PassageSentence(
        text=text,
        stems=content_stems(spelled, words, grammar),
        numbers=numbers(spelled, grammar),
        order=tuple([held for held, _ in words]),
    )


_GAP = [(0, PassageSentence("", frozenset(), frozenset(), ()))] * (LONGEST_WINDOW - 1)
"""Follows each chunk, so that no window reaches the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WordIndex:
    """The sentences of the chunks."""

    grammar: Grammar
    """Of the language that most of the chunks are in."""
    languages: frozenset[Language | None]
    """Of all chunks; ``None`` is a chunk whose language is not known."""
    scripts: frozenset[str | None]
    """Of all chunks."""
    sentences: Sequence[tuple[int, PassageSentence]]
    """Sentences with the number of their chunk; some empty ones follow each chunk."""
    count: int
    """Of the sentences that are not empty."""
    places: Mapping[str, Sequence[int]]
    """Positions of the sentences with a stem."""
    numbers: frozenset[str]
    order: Sequence[str | None]
    """The stems of all words, in order, with ``None`` behind each sentence."""
    prefixes: frozenset[str]
    """The first letters of every stem."""

    @classmethod
    async def of(cls, chunks: Iterable[NumberedText]) -> WordIndex:
        """Prepare the chunks. Others can work in between."""
        held = [chunk for chunk in chunks if chunk.text.strip()]
        texts = [chunk.text for chunk in held]
        languages = languages_of(texts)
        grammar = grammar_of(languages[0] if languages else None)
        sentences: list[tuple[int, PassageSentence]] = []
        for chunk in held:
            for sentence in split_sentences(chunk.text):
                if len(sentences) % _SENTENCES_A_TURN == 0:
                    await asyncio.sleep(0)
                sentences.append((chunk.number, _prepared(sentence.text, grammar)))
            sentences += _GAP
        places = _places(sentences)
        return cls(
            grammar=grammar,
            languages=frozenset(languages),
            scripts=frozenset(map(script_of, texts)),
            sentences=sentences,
            count=len(sentences) - len(_GAP) * len(held),
            places=places,
            numbers=frozenset().union(*[sentence.numbers for _, sentence in sentences]),
            order=[stem for _, sentence in sentences for stem in (*sentence.order, None)],
            prefixes=frozenset([stem[:PREFIX_CHARS] for stem in places]),
        )

    def sequences(self, words: Iterable[str]) -> Set[tuple[str | None, ...]]:
        """Return all sequences of two and of three of these words that a sentence has."""
        wanted, order = set(words), self.order
        places = [at for at, word in enumerate(order) if word in wanted]
        two = {(order[a], order[b]) for a, b in neighbors(places, 2) if b == a + 1}
        three = {(order[a], order[b], order[c]) for a, b, c in neighbors(places, 3) if c == a + 2}
        return two | three

    def bits(self, stems: Iterable[str]) -> list[int]:
        """Return for each sentence which of these stems it has, a bit for each."""
        found, places = [0] * len(self.sentences), self.places
        for order, wanted in enumerate(stems):
            for at in places.get(wanted, ()):
                found[at] |= 1 << order
        return found

    def foreign(self, text: str) -> str | None:
        """Return the language or script of a claim that no chunk is in; ``None`` if words can be compared."""
        script, language = script_of(text), language_of(text)
        if script and self.scripts and script not in self.scripts:
            return language or script.title()
        known = self.languages and None not in self.languages
        return language if language and known and language not in self.languages else None

    def negates(self, sentence: PassageSentence) -> bool:
        """Return whether a sentence negates something."""
        return has_negation(one_spelling(sentence.text), self.grammar)

    def lacking(self, claimed: Iterable[Readings]) -> set[Readings]:
        """Return the numbers of a claim that no chunk has in any reading."""
        found = (readings for readings in claimed if UNSURE not in readings)
        return {readings for readings in found if self.numbers.isdisjoint(readings)}

    def holds(self, window: range, wanted: Iterable[Readings]) -> bool:
        """Return whether a window contains all these numbers."""
        held = [self.sentences[at][1].numbers for at in window]
        return all(any(not numbers.isdisjoint(readings) for numbers in held) for readings in wanted)


def neighbors(items: Sequence[ItemT], length: int) -> Iterator[tuple[ItemT, ...]]:
    """Yield every sequence of ``length`` neighbors."""
    return zip(*[items[start:] for start in range(length)], strict=False)


def _places(sentences: Sequence[tuple[int, PassageSentence]]) -> Mapping[str, Sequence[int]]:
    places: defaultdict[str, list[int]] = defaultdict(list)
    for at, (_, sentence) in enumerate(sentences):
        for held in sentence.stems:
            places[held].append(at)
    return places
