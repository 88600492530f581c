"""Numbers in their local forms, made comparable: 1,5 is 1.5, 6 pm is 18:00, 2 km is 2000 m, -20 is not 20."""

# ruff: noqa: RUF001  the languages have their own letters

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Final, TypeAlias

from ragtrace.judge._grammars import Grammar

Readings: TypeAlias = tuple[str, ...]
"""What a number may mean, the likeliest first. A number with a unit is its size, ``=2000 m``, or without a
unit, ``2 _``; its figures alone, ``#2``, are only shown."""

_SPACES: Final = r" \u00a0\u2009\u202f"
_UNSPACED: Final = r"\u0e00-\u0eff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_FIGURE: Final = re.compile(
    rf"(?<![\w.,])(?:\d{{1,3}}(?:[\u00a0\u2009\u202f'’]\d{{3}})+"
    rf"|\d{{1,3}}(?: \d{{3}})+(?![\d%]))(?:[.,]\d+)?(?!\d)"
    rf"|(?<![^\W_{_UNSPACED}])\d+(?:[.,:/]\d+)*+"
)
_FRACTIONS: Final = {
    "½": ".5",
    "¼": ".25",
    "¾": ".75",
    "⅓": ".33",
    "⅔": ".67",
    "⅛": ".125",
    "⅜": ".375",
    "⅝": ".625",
    "⅞": ".875",
    "⅕": ".2",
}
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
    for found in _NAMED_DATE.finditer(text):
        month = _MONTH_NAME.fullmatch(found["name"] or found["name2"] or "")
        if month and month.lastgroup:
            yield _date(found["y"] or found["y2"], month.lastgroup[1:], found["d"] or found["d2"])


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
            return


def _rounded(size: Decimal, digits: int) -> Decimal:
    return size.quantize(Decimal(1).scaleb(size.adjusted() - digits + 1)) if size else size


def _times(value: str, scale: Decimal) -> str:
    return plain(_written(Decimal(value) * scale)) if _PLAIN.fullmatch(value) else value


def _written(value: Decimal) -> str:
    written = f"{value:f}"
    return (written.rstrip("0").rstrip(".") if "." in written else written) or "0"
