"""docs/performance.md is that of the committed history."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.benchmarks import recording
from tests.benchmarks.page import PAGE, TITLES, generated, main, written
from tests.benchmarks.recording import Circumstances, Entry, Machine, Measurement, entry_of
from tests.benchmarks.suite import BENCHMARKS

REGENERATE = "REGENERATE_GOLDEN"
MACHINE = Machine(cpu="Abacus 9", cores=2, system="Linux")


def run(
    ratio: float, *, day: int = 1, what: str = "--help, CPU", others: float = 0.0, cores: int = 2
) -> Entry:
    circumstances = Circumstances(
        measured=datetime(2026, 11, day, tzinfo=UTC),
        machine=replace(MACHINE, cores=cores),
        python="3.11.9",
        commit="abc",
        load=0.3,
    )
    measurement = Measurement(
        what=what, alternative="import <click>", ratios=(0.9 * ratio, ratio), versions={"click": "8.1.8"}
    )
    return entry_of("startup", measurement, circumstances, others=others)


def test_the_page_is_that_of_the_history() -> None:
    entries = recording.read()
    if os.environ.get(REGENERATE) and not os.environ.get("CI"):
        main()
    meant = f"run `python -m tests.benchmarks.page`, or once with {REGENERATE}=1, if this is meant"
    assert PAGE.read_text("utf-8") == written(PAGE.read_text("utf-8"), entries), meant


def test_the_page_names_every_benchmark() -> None:
    names = [each.name for each in BENCHMARKS]
    assert list(TITLES) == names
    assert re.findall(r"^\| `(\w+)` \|", PAGE.read_text("utf-8"), re.MULTILINE) == names


def test_a_ratio_is_shown_with_its_spread_band_runs_and_circumstances() -> None:
    shown = generated([run(1.0, day=day) for day in range(1, 6)])
    assert "### Start-up\n" in shown
    assert "Last run 2026-11-05, commit `abc`: Abacus 9, 2 cores, Linux; Python 3.11.9, click 8.1.8;" in shown
    assert "load average 0.3.\n" in shown
    assert "| --help, CPU | import <click> | **0.950** | 0.925 to 0.975 | 0.855 to 1.04 | 5 |" in shown


def test_too_few_runs_and_a_disturbed_one_are_told() -> None:
    shown = generated([run(1.0, others=0.42)])
    assert "| not enough runs | 1 |" in shown
    assert "load average 0.3; others took 42% of the machine meanwhile." in shown


def test_the_page_shows_the_kind_of_machine_that_ran_last() -> None:
    shown = generated([run(5.0, cores=64), run(1.0, day=2)])
    assert "2 cores" in shown
    assert ("**0.950**" in shown, "**4.75**" in shown) == (True, False)


def test_a_broken_history_is_told_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "startup.jsonl").write_text("{}\n")
    before = PAGE.read_text("utf-8")
    assert main(tmp_path) == 2
    assert "startup.jsonl:1: " in capsys.readouterr().err
    assert PAGE.read_text("utf-8") == before
