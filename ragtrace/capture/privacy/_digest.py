"""Keyed digests: equal texts have equal ones, and without the key no text can be guessed from one."""

from __future__ import annotations

import hmac
import os

from ragtrace import semconv

_PROCESS_KEY = os.urandom(32)
"""In place of a key: digests can then be compared within one process, and by nobody else."""


def hashed(text: str, key: bytes | None) -> str:
    """Return what stands in place of a text: its digest, 128 bits of HMAC-SHA-256, and its length.

    There is no form without a key: whoever can list the likely texts finds a short one by its plain hash.
    """
    return f"{semconv.HASHED_PREFIX}hmac-sha256 {digest(text, key)} {len(text.encode())} bytes>"


def digest(text: str, key: bytes | None) -> str:
    """Return 32 hex digits."""
    return hmac.digest(key or _PROCESS_KEY, text.encode(), "sha256").hex()[:32]
