"""What was measured before, and whether what is measured now is worse."""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from ragtrace.errors import InputError

ROOT: Final = Path(__file__).parents[2]
HISTORY: Final = Path(__file__).with_name("history")
BUSY: Final = 0.1
"""Above this share of the machine's processor time for others, a run was disturbed."""
LEAST_RUNS: Final = 5
MOST_RUNS: Final = 20
WIDTH: Final = 4.0
LEAST_WIDTH: Final = 0.1
_DEVIATIONS_OF_MAD: Final = 1.4826
"""Of a normal distribution: its standard deviation, divided by its median absolute deviation."""
_WHAT: Final = 40
_INDENT: Final = "  "

Ratio: TypeAlias = Annotated[float, Field(gt=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A ratio, once for each round of a run."""

    what: str
    """What was measured, and of which quantity: ``evaluate --help, CPU``."""
    alternative: str
    """What it was divided by, measured in the same round: ``python -c 'import click'``."""
    ratios: tuple[float, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the alternative's packages."""

    def __post_init__(self) -> None:
        """Refuse what is no ratio."""
        if not self.ratios:
            raise ValueError(f"{self.what!r} was measured in no round")
        if min(self.ratios) <= 0:
            raise ValueError(f"{self.what!r} has a ratio that is not above zero: {min(self.ratios)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A kind of machine: nothing in it names one."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    cpu: str
    cores: int
    system: str


def this_machine() -> Machine:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    cpu = next(models, "") or platform.processor() or platform.machine()
    return Machine(cpu=cpu, cores=os.cpu_count() or 1, system=platform.system())


def this_commit() -> str:
    """Return the commit of this checkout, with ``+`` if the measured code has changed since."""

    def git(*command: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *command], check=True, stdout=subprocess.PIPE)
        return done.stdout.decode().strip()

    changed = git("status", "--porcelain", "--", "ragtrace", "collector")
    return git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    return {package: version(package) for package in packages}


class Onlooker:
    """Watches what others take of the machine while a benchmark runs (Linux)."""

    def __init__(self) -> None:
        self._busy_s, self._own_s, self._wall_s = _machine_cpu_s(), _own_cpu_s(), time.perf_counter()

    def others(self) -> float:
        """Return the share of the machine's processor time that others took since: 0 to 1.

        A process that this one started counts as its own once it has ended and was waited for.
        """
        busy_s, own_s = _machine_cpu_s() - self._busy_s, _own_cpu_s() - self._own_s
        all_s = (time.perf_counter() - self._wall_s) * (os.cpu_count() or 1)
        return min(1.0, max(0.0, (busy_s - own_s) / all_s)) if all_s else 0.0


def _machine_cpu_s() -> float:
    first, _, _ = Path("/proc/stat").read_text("ascii").partition("\n")
    user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = map(int, first.split()[1:])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a run was measured on, and when."""

    measured: datetime
    machine: Machine
    python: str
    commit: str
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A ratio of one run, as the history keeps it. It has no bare time."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    measured: str
    """When the run began, in UTC."""
    benchmark: str
    what: str
    alternative: str
    median: Ratio
    lowest: Ratio
    quartiles: tuple[Ratio, Ratio]
    """Between these lie half of the rounds."""
    highest: Ratio
    rounds: int
    versions: dict[str, str]
    """Of Python, of ragtrace (its commit, with ``+`` if its code was changed) and of the alternative."""
    machine: Machine
    load: float
    """Load average of the last minute when the run began."""
    others: float
    """Share of the machine's processor time that others took during the benchmark: 0 to 1."""

    @property
    def series(self) -> tuple[str, str, str]:
        """Of which ratio this is."""
        return self.benchmark, self.what, self.alternative

    @property
    def kind(self) -> tuple[Machine, str]:
        """With which entries this may be compared: ratios move with processors and versions of Python."""
        return self.machine, ".".join(self.versions["python"].split(".")[:2])

    @property
    def is_disturbed(self) -> bool:
        return self.others > BUSY


_ENTRY: Final = TypeAdapter(Entry)


def entry_of(
    benchmark: str, measurement: Measurement, circumstances: Circumstances, *, others: float
) -> Entry:
    ratios = measurement.ratios
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    versions = {"python": circumstances.python, "ragtrace": circumstances.commit, **measurement.versions}
    return Entry(
        measured=circumstances.measured.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        benchmark=benchmark,
        what=measurement.what,
        alternative=measurement.alternative,
        median=_rounded(statistics.median(ratios)),
        lowest=_rounded(min(ratios)),
        quartiles=(_rounded(low), _rounded(high)),
        highest=_rounded(max(ratios)),
        rounds=len(ratios),
        versions=versions,
        machine=circumstances.machine,
        load=round(circumstances.load, 2),
        others=round(others, 2),
    )


def _rounded(ratio: float) -> float:
    return float(f"{ratio:.4g}")


def line_of(entry: Entry) -> str:
    return json.dumps(asdict(entry), ensure_ascii=False)


def parse_line(line: str) -> Entry:
    """Return the entry of a line.

    Raises:
        InputError: the line is not JSON, or not an entry.
    """
    try:
        entry = _ENTRY.validate_json(line)
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{f'`{place}`: ' if place else ''}{first['msg']}") from exc
    if "python" not in entry.versions:
        raise InputError("`versions` does not name python")
    return entry


def read(folder: Path = HISTORY) -> list[Entry]:
    """Return every entry, each benchmark's in the order of its runs.

    Raises:
        InputError: a line is no entry, or stands in another benchmark's file; the message has file and line.
    """
    return [
        _entry(line, path, number)
        for path in sorted(folder.glob("*.jsonl"))
        for number, line in enumerate(path.read_bytes().decode("utf-8", "replace").split("\n"), 1)
        if line.strip()
    ]


def _entry(line: str, path: Path, number: int) -> Entry:
    try:
        entry = parse_line(line)
    except InputError as exc:
        told = f"this line of the history cannot be read: {exc}. Restore it from git, or delete it"
        raise InputError(f"{path}:{number}: {told}") from exc
    if entry.benchmark != path.stem:
        told = f"this line is of the benchmark {entry.benchmark!r}: move it to {entry.benchmark}.jsonl"
        raise InputError(f"{path}:{number}: {told}")
    return entry


def append(entries: Sequence[Entry], folder: Path = HISTORY) -> None:
    folder.mkdir(exist_ok=True)
    for entry in entries:
        with (folder / f"{entry.benchmark}.jsonl").open("a", encoding="utf-8") as file:
            file.write(f"{line_of(entry)}\n")


class Place(StrEnum):
    """Where a run lies."""

    WITHIN = "within"
    BETTER = "better"
    WORSE = "WORSE"
    UNKNOWN = "not enough history"


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Where a ratio is expected.

    The median of the last `MOST_RUNS` runs on the same kind of machine and Python, plus and minus the larger
    of `WIDTH` standard deviations (estimated from the median absolute deviation, so that one odd run does not
    widen it) and `LEAST_WIDTH` of the median. Runs that others disturbed count only while there are fewer
    than `LEAST_RUNS` quiet ones.
    """

    low: float
    middle: float
    high: float
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A run beside its history."""

    entry: Entry
    band: Band | None
    """``None`` if there are fewer than `LEAST_RUNS` runs."""
    runs: int
    """That could be compared."""

    @property
    def place(self) -> Place:
        """Where the run lies. On an edge of the band is within it."""
        if self.band is None:
            return Place.UNKNOWN
        if self.band.low <= self.entry.median <= self.band.high:
            return Place.WITHIN
        return Place.BETTER if self.entry.median < self.band.low else Place.WORSE


def band_of(medians: Sequence[float]) -> Band | None:
    """Return the band of runs, the oldest first; ``None`` if they are too few."""
    last = medians[-MOST_RUNS:]
    if len(last) < LEAST_RUNS:
        return None
    middle = statistics.median(last)
    mad = statistics.median(abs(each - middle) for each in last)
    half = max(WIDTH * _DEVIATIONS_OF_MAD * mad, LEAST_WIDTH * abs(middle))
    return Band(low=middle - half, middle=middle, high=middle + half, runs=len(last))


def compare(entry: Entry, history: Sequence[Entry]) -> Comparison:
    """Compare a run with the runs of the same ratio, on the same kind of machine and Python."""
    alike = [each for each in history if each.series == entry.series and each.kind == entry.kind]
    quiet = [each for each in alike if not each.is_disturbed]
    runs = quiet if len(quiet) >= LEAST_RUNS else alike
    return Comparison(entry=entry, band=band_of([each.median for each in runs]), runs=len(runs))


def table_of(comparisons: Sequence[Comparison]) -> str:
    """Return a table: every ratio beside its band, by benchmark and alternative."""
    lines = [f"{_INDENT}{'':{_WHAT}}{'now':>8}{'band':>19}"]
    by = groupby(comparisons, key=lambda each: f"{each.entry.benchmark}, times {each.entry.alternative}")
    for heading, some in by:
        lines.append(_cut(heading, 80))
        lines += [_row(each) for each in some]
    return "\n".join(lines)


def _row(comparison: Comparison) -> str:
    entry, band = comparison.entry, comparison.band
    shown = shown_band(band) if band else f"{comparison.runs} of {LEAST_RUNS}"
    place = "no band" if comparison.place is Place.UNKNOWN else comparison.place.value
    what = _cut(entry.what, _WHAT - 1)
    return f"{_INDENT}{what:{_WHAT}}{shown_ratio(entry.median):>8}{shown:>19}  {place}"


def shown_band(band: Band) -> str:
    return f"{shown_ratio(band.low)} to {shown_ratio(band.high)}"


def shown_ratio(ratio: float) -> str:
    """Return a ratio in three digits, or in all those before its point."""
    return f"{ratio:,.0f}" if abs(ratio) >= 100 else f"{ratio:#.3g}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def summary(comparisons: Sequence[Comparison]) -> str:
    """Return how many ratios lie where, the worse ones by name."""
    counts = {place: [each.entry for each in comparisons if each.place is place] for place in Place}
    said = [f"{len(some)} {place.value}" for place, some in counts.items() if some]
    worse = [
        f"{each.benchmark}: {each.what} is {shown_ratio(each.median)} times {each.alternative},"
        " outside its band"
        for each in counts[Place.WORSE]
    ]
    most = max((each.others for each in counts[Place.WORSE] if each.is_disturbed), default=0.0)
    if most:
        worse.append(f"Others took up to {most:.0%} of the machine meanwhile: measure again on a quiet one.")
    lines = (f"{len(comparisons)} ratios: {', '.join(said)}", *worse)
    return "\n".join(textwrap.fill(line, 80, subsequent_indent=_INDENT) for line in lines)
