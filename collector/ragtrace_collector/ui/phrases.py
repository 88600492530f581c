"""How pages write numbers, times and money: the filters of the templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_LAST_NS: Final = 253_402_300_799 * 10**9
"""The last second that a calendar here has."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 claim``, ``2,000 claims``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def duration(length_ns: int) -> str:
    """Return a duration in its natural unit: ``850 ms``, ``1.25 s``, ``3 min 20 s``, ``2 h 5 min``."""
    milliseconds = max(length_ns, 0) / 1e6
    if milliseconds < 1:
        return f"{milliseconds * 1_000:.0f} µs"
    if milliseconds < 1_000:
        return f"{milliseconds:.{1 if milliseconds < 10 else 0}f} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.2f} s"
    seconds = round(milliseconds / 1_000)
    for size, name, below, small in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min")):
        if seconds >= size:
            return f"{seconds // size:,} {name} {seconds % size // below} {small}"
    return f"{seconds // 60} min {seconds % 60} s"


def moment(time_ns: int) -> str:
    """Return a Unix time in nanoseconds as ``2026-05-01 10:00:00 UTC``."""
    try:
        time = _EPOCH + timedelta(microseconds=min(max(time_ns, 0), _LAST_NS) // 1_000)
    except OverflowError:  # pragma: no cover - the bound above prevents it
        return "unknown"
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def money(dollars: float) -> str:
    """Return dollars with the digits that say something: ``$1.20``, ``$0.0031``."""
    return f"${dollars:,.2f}" if dollars >= 1 or not dollars else f"${dollars:.4f}"


def percent(share: float) -> str:
    """Return a share as a percentage; small ones keep one or two digits after the point."""
    digits = 0 if share >= 0.1 or share == 0 else 1 if share >= 0.01 else 2
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def words(name: str) -> str:
    """Return a name as words: ``no_retrieval`` is ``no retrieval``."""
    return name.replace("_", " ")


FILTERS: Final[Mapping[str, Callable[..., str]]] = {
    "count": "{:,}".format,
    "counted": counted,
    "duration": duration,
    "moment": moment,
    "money": money,
    "percent": percent,
    "score": "{:.2f}".format,
    "words": words,
}
