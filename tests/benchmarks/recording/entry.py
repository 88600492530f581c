"""A line of the history: one ratio of one run, with what it was measured on."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Final, NamedTuple, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from ragtrace.errors import InputError
from tests.benchmarks.recording.machine import Machine
from tests.benchmarks.recording.measurement import Better, Measurement

__all__ = ["Circumstances", "Entry", "Kind", "Series", "entry_of", "line_of", "parse_line"]

BUSY: Final = 0.1
"""Above this share of the machine's processor time for others, a run was disturbed."""


class Series(NamedTuple):
    """Which entries are of one ratio."""

    benchmark: str
    what: str
    alternative: str


class Kind(NamedTuple):
    """Which entries may be compared: ratios move with processors and with versions of Python."""

    machine: Machine
    python: str
    """``3.11``."""


Ratio: TypeAlias = Annotated[float, Field(gt=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A ratio of one run. It has no bare time."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    measured: str
    """When the run began, in UTC."""
    benchmark: str
    what: str
    alternative: str
    better: Better
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
    def series(self) -> Series:
        """Of which ratio this is."""
        return Series(self.benchmark, self.what, self.alternative)

    @property
    def kind(self) -> Kind:
        """With which entries this may be compared."""
        return Kind(self.machine, ".".join(self.versions["python"].split(".")[:2]))

    @property
    def is_disturbed(self) -> bool:
        """Whether others kept the machine busy."""
        return self.others > BUSY


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a run was measured on, and when."""

    measured: datetime
    machine: Machine
    python: str
    commit: str
    load: float


def entry_of(
    benchmark: str, measurement: Measurement, circumstances: Circumstances, *, others: float
) -> Entry:
    """Return what the history keeps of a measurement."""
    ratios = measurement.ratios
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    versions = {"python": circumstances.python, "ragtrace": circumstances.commit, **measurement.versions}
    return Entry(
        measured=circumstances.measured.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        benchmark=benchmark,
        what=measurement.what,
        alternative=measurement.alternative,
        better=measurement.better,
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
    """Return an entry as a line of JSON, without its end."""
    return json.dumps(asdict(entry), ensure_ascii=False)


_ENTRY: Final = TypeAdapter(Entry)


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
