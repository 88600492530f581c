"""The history of benchmarks: what a line holds, the band of a ratio, and what a run is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ragtrace.errors import InputError
from tests.benchmarks import recording
from tests.benchmarks.__main__ import main
from tests.benchmarks.recording import (
    LEAST_RUNS,
    Circumstances,
    Entry,
    Machine,
    Measurement,
    Place,
    compare,
    entry_of,
    line_of,
)
from tests.benchmarks.suite import BENCHMARKS, Benchmark

MACHINE = Machine(cpu="Abacus 9", cores=2, system="Linux")
CIRCUMSTANCES = Circumstances(
    measured=datetime(2026, 11, 24, 3, 0, tzinfo=UTC),
    machine=MACHINE,
    python="3.11.9",
    commit="abc",
    load=0.3,
)
MEASUREMENT = Measurement(
    what="--help, CPU", alternative="import click", ratios=(1.0, 2.0, 4.0), versions={"click": "8.1.8"}
)


def entry(ratio: float, *, others: float = 0.0) -> Entry:
    measurement = replace(MEASUREMENT, ratios=(ratio,))
    return entry_of("startup", measurement, CIRCUMSTANCES, others=others)


def runs(*ratios: float, others: float = 0.0) -> list[Entry]:
    return [entry(each, others=others) for each in ratios]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"measured": ', "Invalid JSON"),
        (line_of(entry(1.0)).replace("1.0", "NaN", 1), "`median`: Input should be"),
        (line_of(entry(1.0))[:-1] + ', "host": "a"}', "`host`: "),
        (line_of(replace(entry(1.0), versions={})), "`versions` does not name python"),
    ],
)
def test_a_broken_line_is_named_by_file_and_line(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "startup.jsonl"
    path.write_text(f"{line_of(entry(1.0))}\n{line}\n")
    with pytest.raises(InputError) as caught:
        recording.read(tmp_path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert says in str(caught.value)
    assert "Restore it from git, or delete it" in str(caught.value)


def test_a_steady_history_has_a_band_of_a_tenth() -> None:
    steady = runs(*[2.0] * LEAST_RUNS)
    places = [compare(entry(now), steady).place for now in (1.799, 1.8, 2.2, 2.201)]
    assert places == [Place.BETTER, Place.WITHIN, Place.WITHIN, Place.WORSE]
    assert compare(entry(9.0), steady[1:]).place is Place.UNKNOWN


def measuring(*ratios: float, what: str = MEASUREMENT.what) -> list[Benchmark]:
    return [Benchmark("startup", lambda: [replace(MEASUREMENT, what=what, ratios=ratios)])]


def here(ratios: Sequence[float], folder: Path) -> None:
    """Write a history of this machine."""
    for each in ratios:
        assert main(["--only", "startup"], folder=folder, benchmarks=measuring(each)) == 0


def test_a_check_fails_on_a_worse_ratio_and_says_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here([1.5] * LEAST_RUNS, tmp_path)
    capsys.readouterr()
    assert main(["--check"], folder=tmp_path, benchmarks=measuring(3.0)) == 1
    told = capsys.readouterr().out
    assert told.startswith(
        "                                               now               band\n"
        "startup, times import click\n"
        "  --help, CPU                                 3.00       1.35 to 1.65  WORSE\n"
        "\n"
        "1 ratios: 1 WORSE\n"
        "startup: --help, CPU is 3.00 times import click, outside its band\n"
    )
    assert len(recording.read(tmp_path)) == LEAST_RUNS


def test_every_benchmark_of_the_history_exists() -> None:
    """A ratio that was renamed starts a new series: its old lines stay, and no run is compared with them."""
    names = {each.name for each in BENCHMARKS}
    assert {each.benchmark for each in recording.read()} <= names
