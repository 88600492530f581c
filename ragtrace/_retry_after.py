"""Parse ``Retry-After`` (RFC 9110, 10.2.3) and cap the wait, whatever the server sends.

Callers apply their own, shorter bounds on top.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

LONGEST_WAIT_S: Final = 86_400.0
"""One day: a longer request is a mistake or an attack."""
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def retry_after_s_of(header: str, *, now: datetime) -> float | None:
    """Return the requested wait in seconds, from a number or a date; ``None`` if it is neither.

    Never raises. A date without a zone is read as GMT.
    """
    number = number_in(header)
    if number is not None:
        return bounded_wait_s(number)
    from email.utils import parsedate_to_datetime  # deferred: applications never parse dates

    try:
        moment = parsedate_to_datetime(header.strip())
    except (ValueError, TypeError, OverflowError, IndexError):  # eleven-digit years, week-long zones
        return None
    return bounded_wait_s((moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds())


def number_in(header: str) -> float | None:
    """Return the number in a header, in any unit; ``None`` if there is none."""
    header = header.strip()
    return float(header) if _NUMBER.fullmatch(header) else None


def bounded_wait_s(seconds: float | None) -> float | None:
    """Clamp a wait to between zero and one day; ``None`` if it is not a number of seconds."""
    if seconds is None or seconds != seconds:  # NaN; `isnan` cannot take 10**400
        return None
    return float(min(max(0, seconds), LONGEST_WAIT_S))
