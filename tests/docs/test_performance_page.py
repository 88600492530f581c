"""docs/performance.md is that of the committed history."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import UTC, datetime

from tests.benchmarks import recording
from tests.benchmarks.page import PAGE, TITLES, main, written
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
