"""Keyed digests: equal texts have equal digests, and guessing a text from its digest needs the key."""

from __future__ import annotations

import hmac
import os

from ragtrace import semconv

_PROCESS_KEY = os.urandom(32)
"""A random default key: digests are then comparable only within one process."""


def hashed(text: str, key: bytes | None) -> str:
    """Return the replacement of a text: its digest, 128 bits of HMAC-SHA-256, and its length.

    A key is always used: a plain hash of a short text can be found by hashing all likely texts.
    """
    return f"{semconv.HASHED_PREFIX}hmac-sha256 {digest(text, key)} {len(text.encode())} bytes>"


def digest(text: str, key: bytes | None) -> str:
    """Return 32 hex digits."""
    return hmac.digest(key or _PROCESS_KEY, text.encode(), "sha256").hex()[:32]
