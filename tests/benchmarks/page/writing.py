"""The generated part of docs/performance.md, and its plots."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.benchmarks.page.latest import Chapter, Row, chapters
from tests.benchmarks.page.plot import svg_of
from tests.benchmarks.recording.entry import Entry
from tests.benchmarks.recording.result import shown_ratio
from tests.benchmarks.suite import BENCHMARKS

__all__ = ["IMAGES", "PAGE", "TITLES", "generated", "plots", "written"]

DOCS: Final = Path(__file__).parents[3] / "docs"
PAGE: Final = DOCS / "performance.md"
IMAGES: Final = DOCS / "images" / "performance"
_PART: Final = re.compile(
    r"(?<=<!-- begin: written by `python -m tests.benchmarks.page` -->\n).*?(?=<!-- end -->)", re.DOTALL
)
TITLES: Final = {
    "startup": "Start-up",
    "capture": "Capture",
    "judge_client": "Calls to the judge",
    "ingest": "Receiving spans",
    "pipeline": "Evaluations",
    "visible": "Answer to score",
    "traffic": "Memory and disk",
    "backfill": "Back-fill",
    "answer_index": "The page's queries",
    "judge_cost": "Other tools' judging",
    "store": "The store in PostgreSQL",
}


def written(page: str, history: Sequence[Entry]) -> str:
    """Return the page with its generated part anew."""
    return _PART.sub(lambda _: generated(history), page)


def plots(history: Sequence[Entry]) -> dict[str, str]:
    """Return the plots by file name."""
    return {f"{each.name}.svg": svg_of(each) for each in _chapters(history)}


def generated(history: Sequence[Entry]) -> str:
    """Return the part of the page that shows the history."""
    return "\n".join(_section(each) for each in _chapters(history))


def _chapters(history: Sequence[Entry]) -> list[Chapter]:
    return chapters(history, [each.name for each in BENCHMARKS])


def _section(chapter: Chapter) -> str:
    title, last = TITLES[chapter.name], chapter.last
    machine = chapter.kind.machine
    disturbed = f"; others took {last.others:.0%} of the machine meanwhile" if last.is_disturbed else ""
    packages = {name: each for row in chapter.rows for name, each in row.last.versions.items()}
    names = [f"{name} {packages[name]}" for name in sorted(packages) if name not in ("python", "ragtrace")]
    versions = ", ".join((f"Python {last.versions['python']}", *names))
    picture = f"{title}: each ratio's last run on a logarithmic axis, with earlier runs and the band"
    circumstances = (
        f"Last run {last.measured[:10]}, commit `{last.versions['ragtrace']}`: {machine.cpu},"
        f" {machine.cores} cores, {machine.system}; {versions}; load average {last.load:g}{disturbed}."
    )
    lines = (
        f"### {title}",
        "",
        f"![{picture}](images/performance/{chapter.name}.svg)",
        "",
        circumstances,
        "",
        "| ratio | to | last run | half of its rounds | band | runs |",
        "| --- | --- | --- | --- | --- | --- |",
        *map(_line, chapter.rows),
        "",
    )
    return "\n".join(lines)


def _line(row: Row) -> str:
    last, band = row.last, row.comparison.band
    low, high = map(shown_ratio, last.quartiles)
    expected = f"{shown_ratio(band.low)} to {shown_ratio(band.high)}" if band else "not enough runs"
    cells = (
        last.what,
        last.alternative,
        f"**{shown_ratio(last.median)}**",
        f"{low} to {high}",
        expected,
        str(len(row.earlier) + 1),
    )
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
