"""What a run is told as: a table of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from tests.benchmarks.recording.band import LEAST_RUNS, Comparison, Place

__all__ = ["shown_ratio", "summary", "table_of"]

_WHAT: Final = 40
_INDENT: Final = "  "


def table_of(comparisons: Sequence[Comparison]) -> str:
    """Return a table: every ratio beside its band, by benchmark and alternative."""
    lines = [f"{_INDENT}{'':{_WHAT}}{'now':>8}{'band':>19}"]
    for (benchmark, alternative), some in groupby(comparisons, key=_heading):
        lines.append(_cut(f"{benchmark}, times {alternative}", 80))
        lines += [_row(each) for each in some]
    return "\n".join(lines)


def _heading(comparison: Comparison) -> tuple[str, str]:
    return comparison.entry.benchmark, comparison.entry.alternative


def _row(comparison: Comparison) -> str:
    entry, band = comparison.entry, comparison.band
    shown = (
        f"{shown_ratio(band.low)} to {shown_ratio(band.high)}"
        if band
        else f"{comparison.runs} of {LEAST_RUNS}"
    )
    place = "no band" if comparison.place is Place.UNKNOWN else comparison.place.value
    what = _cut(entry.what, _WHAT - 1)
    return f"{_INDENT}{what:{_WHAT}}{shown_ratio(entry.median):>8}{shown:>19}  {place}"


def shown_ratio(ratio: float) -> str:
    """Return a ratio in three digits, or in all those before its point."""
    return f"{ratio:,.0f}" if abs(ratio) >= 100 else f"{ratio:#.3g}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def summary(comparisons: Sequence[Comparison]) -> str:
    """Return how many ratios lie where, the worse ones by name."""
    counts = {place: [each for each in comparisons if each.place is place] for place in Place}
    said = [f"{len(some)} {place.value}" for place, some in counts.items() if some]
    disturbed = [each.entry for each in counts[Place.WORSE] if each.entry.is_disturbed]
    worse = [
        f"{each.entry.benchmark}: {each.entry.what} is {shown_ratio(each.entry.median)} times"
        f" {each.entry.alternative}, outside its band"
        for each in counts[Place.WORSE]
    ]
    if disturbed:
        most = max(each.others for each in disturbed)
        worse.append(f"Others took up to {most:.0%} of the machine meanwhile: measure again on a quiet one.")
    lines = (f"{len(comparisons)} ratios: {', '.join(said)}", *worse)
    return "\n".join(textwrap.fill(line, 80, subsequent_indent=_INDENT) for line in lines)
