"""Write docs/performance.md again: ``python -m tests.benchmarks.page``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ragtrace.errors import InputError
from tests.benchmarks.recording import HISTORY, Entry, compare, read, shown_band, shown_ratio

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
}
_HEAD: Final = """\
| ratio | to | last run | half of its rounds | band | runs |
| --- | --- | --- | --- | --- | --- |
"""


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
    by_name = {name: [each for each in history if each.benchmark == name] for name in TITLES}
    return "\n".join(_section(title, by_name[name]) for name, title in TITLES.items() if by_name[name])


def _section(title: str, entries: Sequence[Entry]) -> str:
    """Show the runs of one kind of machine: the last run's."""
    alike = [each for each in entries if each.kind == entries[-1].kind]
    series = dict.fromkeys(each.series for each in alike)
    runs = [[each for each in alike if each.series == one] for one in series]
    alternatives = list(dict.fromkeys(some[-1].alternative for some in runs))
    runs.sort(key=lambda some: alternatives.index(some[-1].alternative))
    return f"### {title}\n\n{_circumstances([some[-1] for some in runs])}\n\n{_HEAD}" + "".join(_lines(runs))


def _circumstances(entries: Sequence[Entry]) -> str:
    last = max(entries, key=lambda entry: entry.measured)
    machine = last.machine
    disturbed = f"; others took {last.others:.0%} of the machine meanwhile" if last.is_disturbed else ""
    packages = {name: each for entry in entries for name, each in entry.versions.items()}
    names = [f"{name} {packages[name]}" for name in sorted(packages) if name not in ("python", "ragtrace")]
    versions = ", ".join((f"Python {last.versions['python']}", *names))
    return (
        f"Last run {last.measured[:10]}, commit `{last.versions['ragtrace']}`: {machine.cpu},"
        f" {machine.cores} cores, {machine.system}; {versions}; load average {last.load:g}{disturbed}."
    )


def _lines(runs: Sequence[Sequence[Entry]]) -> Iterator[str]:
    for some in runs:
        last, band = some[-1], compare(some[-1], some).band
        cells = (
            last.what,
            last.alternative,
            f"**{shown_ratio(last.median)}**",
            " to ".join(map(shown_ratio, last.quartiles)),
            shown_band(band) if band else "not enough runs",
            str(len(some)),
        )
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |\n"


if __name__ == "__main__":
    sys.exit(main())
