"""What the client says of messages."""

from __future__ import annotations


def bytes_of(value: str | bytes | None) -> bytes | None:
    """Return a key, a value or a header as it came: it is text to the client's types only."""
    return value.encode() if isinstance(value, str) else value
