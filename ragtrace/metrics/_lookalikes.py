"""Maps letters of other alphabets, styled and invisible characters to the plain Latin that they look like.

It is a skeleton in the sense of Unicode's UTS #39, for the few letters and signs of a fence line: models read
look-alikes, too.
"""

# ruff: noqa: RUF001  this module handles look-alikes

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

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
