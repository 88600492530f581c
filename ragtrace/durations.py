"""Parse durations such as ``30s`` or ``2h``, and bound what others ask to wait."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

UNITS_S: Final[Mapping[str, float]] = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
LONGEST_WAIT_S: Final = 86_400.0
"""One day: if a server asks for a longer wait, it is a mistake or an attack."""
_WRITTEN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
_LONGEST_S: Final = 3650 * 86400.0


def duration_of(text: str, units_s: Mapping[str, float] = UNITS_S) -> timedelta | None:
    """Parse a number and its unit; ``None`` if the text is something else.

    Raises:
        ValueError: it is longer than 3650 days.
    """
    match = _WRITTEN.fullmatch(text.strip())
    if match is None or match[2] not in units_s:
        return None
    seconds = float(match[1]) * units_s[match[2]]
    if seconds > _LONGEST_S:
        raise ValueError("write a duration of at most 3650d")
    return timedelta(seconds=seconds)


def bounded_wait_s(seconds: float | None) -> float | None:
    """Clamp a wait to between zero and one day; ``None`` if it is not a number of seconds."""
    if seconds is None or seconds != seconds:  # NaN; `isnan` cannot take 10**400
        return None
    return float(min(max(0, seconds), LONGEST_WAIT_S))
