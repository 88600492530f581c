"""The fence around untrusted text in a prompt: it marks where the text begins and ends.

Each fence line has a code derived from the whole record. So a record always gives the same prompt, and the
author of a chunk cannot predict the code, since the chunk is part of its input (ADR 0003). A text cannot
contain a fence line: the code is removed from it, and look-alikes of fence lines are defaced.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ragtrace.metrics._lookalikes import OPENING, folded, seen_from

__all__ = ["fence_code", "fenced"]

CODE_DIGITS = 18
"""60 bits: to predict the code, an author must find a text that contains its own digest. Decimal, because
tokenizers read digits in threes, and every fence line with a code costs tokens."""

Section: TypeAlias = tuple[str, Sequence[str]]
"""The name on the fence line, and the lines below it."""

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
    "end",
)
_OPENING = re.compile(rf"(?=({OPENING}))")
_FENCE = re.compile(rf"/|(?:{'|'.join(map(folded, _NAMES))})s?(?![^\W\d_])")


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
