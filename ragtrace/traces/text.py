"""Make text safe to store: valid Unicode, bounded in bytes."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def scrub_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, with U+FFFD."""
    if text.isascii():
        return text
    return _SURROGATE.sub("\ufffd", text)


def flat(text: str) -> str:
    """Return the text with one space between its words."""
    return " ".join(text.split())


def cut_utf8(text: str, max_bytes: int, *, mark: str = "…") -> str:
    """Return the longest prefix that fits into ``max_bytes`` of UTF-8 with the mark at its end.

    A text that fits is returned unchanged. No character is split.
    """
    if len(text) * 4 <= max_bytes:
        return text
    encoded = scrub_surrogates(text).encode()
    if len(encoded) <= max_bytes:
        return text
    return encoded[: max_bytes - len(mark.encode())].decode(errors="ignore") + mark
