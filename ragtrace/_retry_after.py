"""Waits that strangers ask for (``Retry-After``, RFC 9110, 10.2.3): whatever they write, it has an end.

Whoever waits has bounds of its own besides, which are shorter.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

LONGEST_WAIT_S: Final = 86_400.0
"""A day: more is asked for by who is wrong, or means harm."""
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def retry_after_s_of(header: str, *, now: datetime) -> float | None:
    """Return how many seconds are asked for, by a number or a date; ``None`` where it says neither.

    It never raises. A date without a zone is read as GMT.
    """
    number = number_in(header)
    if number is not None:
        return bounded_wait_s(number)
    from email.utils import parsedate_to_datetime  # applications load this module, and read no dates

    try:
        moment = parsedate_to_datetime(header.strip())
    except (ValueError, TypeError, OverflowError, IndexError):  # years of eleven digits, zones of weeks
        return None
    return bounded_wait_s((moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds())


def number_in(header: str) -> float | None:
    """Return the number that a header says, of whatever unit; ``None`` where it says none."""
    header = header.strip()
    return float(header) if _NUMBER.fullmatch(header) else None


def bounded_wait_s(seconds: float | None) -> float | None:
    """Return a wait between none and a day; ``None`` for what is no number of seconds."""
    if seconds is None or seconds != seconds:  # NaN; `isnan` cannot take 10**400
        return None
    return float(min(max(0, seconds), LONGEST_WAIT_S))
