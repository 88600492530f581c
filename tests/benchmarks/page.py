"""Write docs/performance.md again: ``python -m tests.benchmarks.page``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ragtrace.errors import InputError
from tests.benchmarks.recording import HISTORY, Comparison, Entry, Kind, compare, read, shown_ratio
from tests.benchmarks.suite import BENCHMARKS

PAGE: Final = Path(__file__).parents[2] / "docs" / "performance.md"
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
}


def main(folder: Path = HISTORY) -> int:
    """Write the page; return the exit code: 2 if the history is broken."""
    try:
        entries = read(folder)
    except InputError as exc:
        print(f"Error: {exc}", file=sys.stderr)
        return 2
    PAGE.write_text(written(PAGE.read_text("utf-8"), entries), "utf-8")
    return 0


def written(page: str, history: Sequence[Entry]) -> str:
    return _PART.sub(lambda _: generated(history), page)


def generated(history: Sequence[Entry]) -> str:
    return "\n".join(map(_section, chapters(history, [each.name for each in BENCHMARKS])))


def _section(chapter: Chapter) -> str:
    title, last = TITLES[chapter.name], chapter.last
    machine = chapter.kind.machine
    disturbed = f"; others took {last.others:.0%} of the machine meanwhile" if last.is_disturbed else ""
    packages = {name: each for row in chapter.rows for name, each in row.last.versions.items()}
    names = [f"{name} {packages[name]}" for name in sorted(packages) if name not in ("python", "ragtrace")]
    versions = ", ".join((f"Python {last.versions['python']}", *names))
    circumstances = (
        f"Last run {last.measured[:10]}, commit `{last.versions['ragtrace']}`: {machine.cpu},"
        f" {machine.cores} cores, {machine.system}; {versions}; load average {last.load:g}{disturbed}."
    )
    lines = (
        f"### {title}",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A ratio."""

    last: Entry
    earlier: tuple[Entry, ...]
    """Runs on the same kind of machine, the oldest first."""
    comparison: Comparison
    """Of all runs, the last one among them, with the band that the next run is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """A benchmark."""

    name: str
    kind: Kind
    """Of the last run: the page shows one kind of machine."""
    rows: tuple[Row, ...]

    @property
    def last(self) -> Entry:
        return max((row.last for row in self.rows), key=lambda entry: entry.measured)


def chapters(history: Sequence[Entry], names: Iterable[str]) -> list[Chapter]:
    """Return the benchmarks of these names that have a history, in this order."""
    by_name = {name: [each for each in history if each.benchmark == name] for name in names}
    return [_chapter(name, entries) for name, entries in by_name.items() if entries]


def _chapter(name: str, entries: Sequence[Entry]) -> Chapter:
    kind = entries[-1].kind
    alike = [each for each in entries if each.kind == kind]
    series = dict.fromkeys(each.series for each in alike)
    runs = [[each for each in alike if each.series == one] for one in series]
    rows = [Row(last=some[-1], earlier=tuple(some[:-1]), comparison=compare(some[-1], some)) for some in runs]
    alternatives = list(dict.fromkeys(row.last.alternative for row in rows))
    rows.sort(key=lambda row: alternatives.index(row.last.alternative))
    return Chapter(name=name, kind=kind, rows=tuple(rows))


if __name__ == "__main__":
    sys.exit(main())
