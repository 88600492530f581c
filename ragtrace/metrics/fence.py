"""The fence around text under judgment: it says where other people's words begin and end.

Each fence line carries a code that is made from the whole record: the same record gives the same prompt, and
no author of a chunk can foresee the code, because his own text is part of what it is made from (ADR 0003).
A text cannot write such a line: the code is taken out of it, and whatever looks like a fence line is defaced.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ragtrace.metrics._lookalikes import OPENING, folded, seen_from

__all__ = ["fence_code", "fenced"]

CODE_DIGITS = 18
"""60 bits: to foresee the code is to find a text that holds its own digest. Decimal, because tokenizers read
digits in threes: a code stands on each fence line, and each is paid for."""

Section: TypeAlias = tuple[str, Sequence[str]]
"""The name on its fence line, and the lines under it."""

_NAMES = ("chunk", "claim", "question", "answer", "reference", "surroundings", "statement", "sentence", "end")
_OPENING = re.compile(rf"(?=({OPENING}))")
_FENCE = re.compile(rf"/|(?:{'|'.join(map(folded, _NAMES))})s?(?![^\W\d_])")


def fenced(code: str, sections: Iterable[Section]) -> str:
    """Put each text under a fence line with its name, and make sure that no text holds such a line.

    A section ends where the next one begins, the last one at the line ``end``: closing each would cost
    three tokens in a hundred.
    """
    named = [[_line(name, code), *(_harmless(line, code) for line in lines)] for name, lines in sections]
    return "\n".join([*(line for section in named for line in section), _line("end", code)])


def fence_code(input_sha256: str) -> str:
    """Make the code of a record's fences from the digest of all that a judge can see of it."""
    digest = hashlib.sha256(f"fence {input_sha256}".encode()).digest()
    return f"{int.from_bytes(digest) % 10**CODE_DIGITS:0{CODE_DIGITS}}"


def _line(name: str, code: str) -> str:
    return f"<<{name} {code}>>"


def _harmless(text: str, code: str) -> str:
    # the judge has seen the code when it words the claims; what is put in its place can form no new one
    text = text.replace(code, "[fence]")
    return text if text.isascii() and "<" not in text else _defaced(text)


def _defaced(text: str) -> str:
    kept, end = [], 0
    for opening in _OPENING.finditer(text):
        if opening.start() >= end and _FENCE.match(seen_from(text, opening.end(1))):
            kept.append(text[end : opening.start()])
            end = opening.end(1)
    return "[".join([*kept, text[end:]])
