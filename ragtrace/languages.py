"""Which language a text is in, by script and function words; and one spelling for what looks the same.

Seven languages are told apart: those that sentence splitting and the judge without a key have rules for.
Anything else, and what is too short to tell, is no language: the rules are then those for English.
"""

# ruff: noqa: RUF001  this module handles typographic marks

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final

SAMPLE_CHARS: Final = 4_000
"""A language shows in the beginning of a text."""
_SCRIPT_SAMPLE_CHARS: Final = 400

_FEWEST_WORDS: Final = 2
_FEWEST_SHARE: Final = 0.1
_KANA: Final = re.compile(r"[\u3041-\u30ff\uff66-\uff9f]")
_HAN: Final = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]|[\U00020000-\U0003ffff]")
_ARABIC: Final = re.compile(r"[\u0620-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc]")
_OTHER_SCRIPTS: Final = re.compile("|".join(script.pattern for script in (_KANA, _HAN, _ARABIC)))
_NOT_ARABIC: Final = re.compile(r"[پچژگکیےہھٹڈڑں]")
"""Letters of Persian and Urdu, which are written in the same script."""
_LATIN: Final = re.compile(r"[A-Za-z\u00c0-\u024f]")
_WORD: Final = re.compile(r"[^\W\d_]+")
_BIDI: Final = "\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069"
BIDI_MARKS: Final = f"[{_BIDI}]"
"""A character class of the marks that only say in which direction a text runs."""
_INVISIBLE: Final = re.compile(rf"[{_BIDI}\u200b-\u200d\u2060-\u2064\ufeff\u00ad\u0640\u064b-\u065f\u0670]")
"""Also the vowel signs of Arabic, which are mostly left out, and its lengthening stroke."""
_ZEROS: Final = (0x0660, 0x06F0, 0x0966, 0x09E6, 0x0E50, 0xFF10)
_ONE_SPELLING: Final[dict[int, str]] = {
    **{zero + digit: str(digit) for zero in _ZEROS for digit in range(10)},
    **{
        code: chr(code - 0xFEE0) for code in range(0xFF21, 0xFF5B) if chr(code).isalpha()
    },  # full-width letters
    **{ord(mark): plain for mark, plain in zip("٫٬أإآٱىة．，", ".,اااايه.,", strict=True)},
}


class Language(StrEnum):
    """A language that has rules of its own."""

    ENGLISH = "English"
    GERMAN = "German"
    FRENCH = "French"
    SPANISH = "Spanish"
    CHINESE = "Chinese"
    JAPANESE = "Japanese"
    ARABIC = "Arabic"


_FUNCTION_WORDS: Final = {
    language: frozenset(words.split())
    for language, words in {
        Language.ENGLISH: (
            "the of and to is for that with on as are was were by be it at from this or have not can you "
            "your has which will if when they their its"
        ),
        Language.GERMAN: (
            "der die das und ist nicht ein eine einen einem einer den dem mit von zu im für auf sich auch "
            "wird werden wurde bei nach aus als oder sind haben über zum zur kann können nur um keine sie "
            "er vom dass"
        ),
        Language.FRENCH: (
            "le la les des du de et est un une dans pour sur avec qui que pas au aux cette sont été il "
            "elle nous vous leur ne ce par mais ou où en"
        ),
        Language.SPANISH: (
            "el la los las del de y un una con por para como más pero está son fue al sus su lo hay muy "
            "que en se no"
        ),
    }.items()
}
_OWN_LETTERS: Final = {
    Language.GERMAN: re.compile("[äöüß]"),
    Language.FRENCH: re.compile("[àâèêîùûçœ]"),
    Language.SPANISH: re.compile("[áíóñ¿¡]"),
}
"""Letters that the others of these languages do not have: as telling as a function word."""


def language_of(text: str) -> Language | None:
    """Return the language of the beginning of a text; ``None`` if it is none of these, or not clear."""
    return _language_of_sample(text[:SAMPLE_CHARS])


@lru_cache(maxsize=256)  # of a text's sentences and of its words
def _language_of_sample(sample: str) -> Language | None:
    if sample.isascii():
        return _by_words(_WORD.findall(sample.lower()))
    kana, han, arabic = _other_scripts(sample)
    most = max(kana, han, arabic)
    if not most or most * 2 <= len(_LATIN.findall(sample)):  # Latin names and terms are common everywhere
        lower = sample.lower()
        own_letters = [language for language, letters in _OWN_LETTERS.items() if letters.search(lower)]
        return _by_words(_WORD.findall(lower), own_letters)
    if arabic > kana + han:
        return None if _NOT_ARABIC.search(sample) else Language.ARABIC
    return Language.JAPANESE if kana * 10 > han else Language.CHINESE


def _other_scripts(sample: str) -> tuple[int, int, int]:
    """Count the characters that are kana, Han and Arabic."""
    if not _OTHER_SCRIPTS.search(sample):
        return 0, 0, 0
    kana, han, arabic = (len(script.findall(sample)) for script in (_KANA, _HAN, _ARABIC))
    return kana, han, arabic


def languages_of(texts: Iterable[str]) -> tuple[Language | None, ...]:
    """Return the languages of these texts, each once: that of most characters first."""
    chars: Counter[Language | None] = Counter()
    for text in texts:
        chars[language_of(text)] += min(len(text), SAMPLE_CHARS)
    return tuple(language for language, _ in chars.most_common())


def script_of(text: str) -> str | None:
    """Return the script of most letters in the beginning of a text; ``None`` without any.

    It has the name that Unicode gives it. Chinese characters and both kana are one script.
    """
    if text.isascii():
        return "LATIN" if any(map(str.isalpha, text)) else None
    letters = Counter(filter(str.isalpha, text[:_SCRIPT_SAMPLE_CHARS]))
    found: Counter[str] = Counter()
    for letter, times in letters.items():
        found[unicodedata.name(letter, "UNKNOWN").partition(" ")[0]] += times
    for alike in ("HIRAGANA", "KATAKANA", "HALFWIDTH"):
        found["CJK"] += found.pop(alike, 0)
    found["LATIN"] += found.pop("FULLWIDTH", 0)
    return found.most_common(1)[0][0] if letters else None


def one_spelling(text: str) -> str:
    """Return a text for comparing: composed characters (NFC), plain digits, no invisible marks.

    ASCII stays as it is. The result is not for people: full-width letters and letters of Arabic are folded.
    """
    if text.isascii():
        return text
    return _INVISIBLE.sub("", unicodedata.normalize("NFC", text).translate(_ONE_SPELLING))


def _by_words(words: Sequence[str], own_letters: Collection[Language] = ()) -> Language | None:
    """Decide by the function words, and by the languages of which letters are there."""
    times = Counter(words)
    counts = {
        language: sum(times[word] for word in known & times.keys()) + (language in own_letters)
        for language, known in _FUNCTION_WORDS.items()
    }
    found = max(counts, key=lambda language: counts[language])
    most, second = sorted(counts.values(), reverse=True)[:2]
    is_clear = most >= _FEWEST_WORDS and most >= _FEWEST_SHARE * len(words) and most > 1.3 * second
    return found if is_clear else None
