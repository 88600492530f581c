"""Text that is safe to store: valid Unicode, bounded in bytes."""

from __future__ import annotations

import re

__all__ = ["cut_utf8", "scrub_surrogates"]

_SURROGATE = re.compile("[\ud800-\udfff]")


def scrub_surrogates(text: str) -> str:
    """Replace lone surrogates, which no UTF-8 can hold, by U+FFFD."""
    if text.isascii():
        return text
    return _SURROGATE.sub("\ufffd", text)


def cut_utf8(text: str, max_bytes: int) -> str:
    """Return the longest start of the text that fits into ``max_bytes`` of UTF-8, an ellipsis included where
    something was cut. Never splits a character."""
    encoded = text.encode()
    if len(encoded) <= max_bytes:
        return text
    mark = "…"
    return encoded[: max_bytes - len(mark.encode())].decode(errors="ignore") + mark
