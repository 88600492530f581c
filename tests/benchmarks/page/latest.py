"""What the page shows of a history: each ratio's last run, beside the runs before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.benchmarks.recording.band import Comparison, compare
from tests.benchmarks.recording.entry import Entry, Kind

__all__ = ["Chapter", "Row", "chapters"]


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
        """An entry of the last run."""
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
