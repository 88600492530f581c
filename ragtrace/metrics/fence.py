"""The fence around text under judgment: it says where other people's words begin and end.

Each fence line carries a code that is made from the whole record: the same record gives the same prompt, and
no author of a chunk can foresee the code, because his own text is part of what it is made from (ADR 0003).
A text cannot close its fence: the code is taken out of it, and whatever looks like a fence line is defaced.
"""

# ruff: noqa: RUF001  look-alikes of the fence's brackets are the subject here

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from ragtrace.metrics.forms import NumberedText

__all__ = ["fence_code", "fenced", "fenced_chunks"]

CODE_DIGITS = 18
"""60 bits: to foresee the code is to find a text that holds its own digest. Decimal, because tokenizers read
digits in threes: a code stands on each fence line, and each is paid for."""

_GAP = (
    r"[\s\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]*"
)
"""White space and characters that nobody sees."""
_OPENING = rf"(?:[<＜‹˂ᐸ﹤❮〈⟨]{_GAP}[<＜‹˂ᐸ﹤❮〈⟨]|[«《⟪≪])"
_NAMES = r"(?:chunk|claim|question|answer|reference|surroundings|statement|sentence)s?(?![^\W\d_])"
_LOOKALIKE = re.compile(rf"{_OPENING}(?={_GAP}(?:[/\\⁄∕／⧸]|{_NAMES}))", re.IGNORECASE)


def fenced(name: str, code: str, lines: Iterable[str]) -> list[str]:
    """Put the fence's lines around texts, and make sure that no text holds one."""
    return [f"<<{name} {code}>>", *(_harmless(line, code) for line in lines), f"<</{name} {code}>>"]


def fenced_chunks(chunks: Iterable[NumberedText], code: str) -> list[str]:
    """Fence each chunk under its number."""
    return [line for chunk in chunks for line in fenced(f"chunk {chunk.number}", code, [chunk.text])]


def fence_code(input_sha256: str) -> str:
    """Make the code of a record's fences from the digest of all that a judge can see of it."""
    digest = hashlib.sha256(f"fence {input_sha256}".encode()).digest()
    return f"{int.from_bytes(digest) % 10**CODE_DIGITS:0{CODE_DIGITS}}"


def _harmless(text: str, code: str) -> str:
    # the judge has seen the code when it words the claims; what is put in its place can form no new one
    return _LOOKALIKE.sub("[", text.replace(code, "[fence]"))
