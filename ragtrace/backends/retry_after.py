"""The header ``Retry-After`` (RFC 9110, 10.2.3)."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

__all__ = ["retry_after_s"]


def retry_after_s(header: str, *, now: datetime) -> float | None:
    """Return how many seconds are asked for, by a number or a date; ``None`` where it says neither."""
    if header.isascii() and header.isdigit():
        return float(header)
    try:
        moment = parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds())
