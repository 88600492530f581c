"""The fence around untrusted text in a prompt: it marks where the text begins and ends.

Each fence line has a code derived from the whole record. So a record always gives the same prompt, and the
author of a chunk cannot predict the code, since the chunk is part of its input (ADR 0003). A text cannot
contain a fence line: the code is removed from it, and look-alikes of fence lines are defaced. They are found
by a skeleton in the sense of Unicode's UTS #39: models read look-alikes, too.
"""

# ruff: noqa: RUF001  this module handles look-alikes

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeAlias

__all__ = ["fence_code", "fenced"]

CODE_DIGITS = 18
"""60 bits: to predict the code, an author must find a text that contains its own digest. Decimal, because
tokenizers read digits in threes, and every fence line with a code costs tokens."""

Section: TypeAlias = tuple[str, Sequence[str]]
"""The name on the fence line, and the lines below it."""


def fenced(code: str, sections: Iterable[Section]) -> str:
    """Put each text under a fence line with its name, and make sure that no text contains such a line.

    A section ends where the next one begins, the last one at the line ``end``: closing each one would cost 3%
    more tokens.
    """
    named = [[_line(name, code), *(_harmless(line, code) for line in lines)] for name, lines in sections]
    return "\n".join([*(line for section in named for line in section), _line("end", code)])


def fence_code(input_sha256: str) -> str:
    """Make the code of a record's fences from the digest of everything that the judge sees of it."""
    digest = hashlib.sha256(f"fence {input_sha256}".encode()).digest()
    return f"{int.from_bytes(digest) % 10**CODE_DIGITS:0{CODE_DIGITS}}"


def _line(name: str, code: str) -> str:
    return f"<<{name} {code}>>"


def _harmless(text: str, code: str) -> str:
    # the judge knows the code when it words the claims; the replacement cannot form a new code
    text = text.replace(code, "[fence]")
    return text if text.isascii() and "<" not in text else _defaced(text)


def _defaced(text: str) -> str:
    kept, end = [], 0
    for opening in _OPENING.finditer(text):
        if opening.start() >= end and _FENCE.match(seen_from(text, opening.end(1))):
            kept.append(text[end : opening.start()])
            end = opening.end(1)
    return "[".join([*kept, text[end:]])


INVISIBLE: Final = (
    r"\x00-\x08\x0e-\x1b\x7f-\x9f\u00ad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u1ab0-\u1aff"
    r"\u1dc0-\u1dff\u200b-\u200f\u202a-\u202e\u2060-\u206f\u20d0-\u20ff\u2800\u3164\ufe00-\ufe0f\ufe20-\ufe2f"
    r"\ufeff\uffa0\ufff0-\ufffb\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Invisible and combining characters, as a class of a regular expression."""

_SINGLE: Final = "<＜‹˂ᐸ﹤❮〈⟨\u2329❬❰⦑⧼≺⋖ᚲ⊲◁◃◀◂︿\U0001d236"
_DOUBLE: Final = "«《⟪≪⋘⪡⫷︽⏪"
_GAP: Final = rf"[\s{INVISIBLE}]*"
OPENING: Final = rf"(?:[{_SINGLE}]{_GAP}[{_SINGLE}]|[{_DOUBLE}])"
"""Look-alikes of ``<<``."""

_LIKE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "a": "ɑαаᴀΑАᎪᗅꓮ",
        "c": "ᴄϲⲥсꮯϹⲤСᏟꓚ",
        "d": "ԁᏧᑯꓒᎠᗞᗪꓓᴅđɖɗ",
        "e": "ꬲеҽΕЕⴹᎬꓰᴇεɛє℮",
        "f": "ꬵꞙſẝքꞘϜᖴꓝꜰƒ",
        "g": "ɡᶃƍցԌᏀᏳꓖɢɠ",
        "h": "һհᏂΗⲎНᎻᕼꓧʜħ",
        "k": "ΚⲔКᏦᛕꓗᴋκкƙ",
        "l": "iıɪɩιͺіꙇӏꭵᎥƖℓǀΙⲒІӀⵏᛁꓲℐℑⳐᏞᒪꓡʟłƚ|∣ɨ",
        "m": "ΜϺⲘМᎷᗰᛖꓟᴍмɱ",
        "n": "ոռΝⲚꓠɴпη",
        "o": "ᴏᴑꬽοσⲟоօΟⲞОՕⵔዐꓳøɵ०〇",
        "q": "ԛգզⵕǫ",
        "r": "ꭇꭈᴦⲅгꮁƦᎡᏒᖇꓣʀɾɼ",
        "s": "ꜱƽѕꮪЅՏᏕᏚꓢʂ",
        "t": "ΤⲦТᎢꓔᴛтτŧ",
        "u": "ꞟᴜꭎꭒʋυսՍሀᑌꓴʊ∪",
        "w": "ɯᴡѡԝաꮃԜᎳᏔꓪω",
        "/": "\\⁄∕／⧸⧵∖⧹╱╲⟋⟍⁁᜵Ⳇˊˋ÷",
    }
)
"""Look-alikes of these letters. ``i`` equals ``l``, since some letters of other alphabets look like both."""
_FOLDED: Final = {like: letter for letter, likes in _LIKE.items() for like in likes}
_INVISIBLE: Final = re.compile(f"[{INVISIBLE}]")
_STYLED: Final = ((0x249C, 26), (0x1F130, 26), (0x1F150, 26), (0x1F170, 26), (0x1F1E6, 26))
"""Letters in parentheses, boxes and circles that Unicode does not map to the plain letters."""
_MOST: Final = 16
"""Characters to read: more than the longest name on a fence line."""


def seen_from(text: str, start: int) -> str:
    """Return the folded text from ``start`` on, without leading white space, 16 characters at most."""
    seen: list[str] = []
    for place in range(start, len(text)):
        if len(seen) == _MOST:
            break
        char = text[place]
        if char.isspace():
            if seen:
                break
        elif letter := _fold(char):
            seen.append(letter)
    return "".join(seen)


def folded(text: str) -> str:
    """Fold a text of ragtrace's own as ``seen_from`` would."""
    return "".join(_fold(char) for char in text)


@lru_cache(maxsize=4_096)
def _fold(char: str) -> str:
    if _INVISIBLE.match(char):
        return ""
    if char in _FOLDED:
        return _FOLDED[char]
    for first, number in _STYLED:
        if first <= ord(char) < first + number:
            return folded(chr(ord("a") + ord(char) - first))
    plain = "".join(each for each in unicodedata.normalize("NFKD", char) if not unicodedata.combining(each))
    if plain != char:
        return folded(plain)
    lower = char.casefold()
    return lower if lower == char else folded(lower)


_NAMES = (
    "chunk",
    "claim",
    "question",
    "answer",
    "reference",
    "surroundings",
    "statement",
    "sentence",
    "earlier turns",
    "criteria",
    "end",
)
_OPENING = re.compile(rf"(?=({OPENING}))")
_FENCE = re.compile(rf"/|(?:{'|'.join(map(folded, _NAMES))})s?(?![^\W\d_])")
