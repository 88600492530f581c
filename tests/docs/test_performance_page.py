"""docs/performance.md and its plots are those of the committed history."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.benchmarks.page.__main__ import main
from tests.benchmarks.page.latest import chapters
from tests.benchmarks.page.plot import svg_of
from tests.benchmarks.page.writing import IMAGES, PAGE, TITLES, generated, plots, written
from tests.benchmarks.recording import history
from tests.benchmarks.recording.entry import Circumstances, Entry, entry_of
from tests.benchmarks.recording.machine import Machine
from tests.benchmarks.recording.measurement import Measurement
from tests.benchmarks.suite import BENCHMARKS

REGENERATE = "REGENERATE_GOLDEN"
SVG = "{http://www.w3.org/2000/svg}"
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


def test_the_page_and_its_plots_are_those_of_the_history() -> None:
    entries = history.read()
    if os.environ.get(REGENERATE) and not os.environ.get("CI"):
        main()
    meant = f"run `python -m tests.benchmarks.page`, or once with {REGENERATE}=1, if this is meant"
    assert PAGE.read_text("utf-8") == written(PAGE.read_text("utf-8"), entries), meant
    assert {path.name: path.read_text("utf-8") for path in IMAGES.glob("*")} == plots(entries), meant


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
    [chapter] = chapters([run(5.0, cores=64), run(1.0, day=2)], ["startup"])
    assert chapter.kind.machine == MACHINE
    assert [row.last.median for row in chapter.rows] == [0.95]


def test_a_benchmark_without_history_is_left_out() -> None:
    assert chapters([run(1.0)], ["ingest"]) == []


def test_a_plot_has_a_line_for_each_ratio_and_a_dot_for_each_run() -> None:
    entries = [run(1.0 + day / 9, day=day, what=what) for day in range(1, 7) for what in ("a & b", "c")]
    [chapter] = chapters(entries, ["startup"])
    root = ElementTree.fromstring(svg_of(chapter))
    marks = [each.get("class") for each in root.iter()]
    assert marks.count("run") == 10
    assert marks.count("last") == marks.count("band") == marks.count("spread") == 2
    assert [text.text for text in root.iter(f"{SVG}text") if text.get("x") == "16"] == ["a & b", "c"]
    assert [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "heading"] == [
        "times import <click>"
    ]
    ticks = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "tick"]
    assert "1" in ticks
    assert 2 <= len(ticks) <= 10


def test_a_worse_run_lies_to_the_right_of_a_better_one() -> None:
    [chapter] = chapters([run(2.0, what="low"), run(200.0, what="high")], ["startup"])
    root = ElementTree.fromstring(svg_of(chapter))
    low, high = (float(each.get("cx") or 0) for each in root.iter(f"{SVG}circle"))
    assert 330 < low < high < 790


@pytest.mark.parametrize("ratio", [1e-4, 0.99, 1.0, 1e5], ids=str)
def test_every_ratio_has_an_axis(ratio: float) -> None:
    [chapter] = chapters([run(ratio)] * 6, ["startup"])
    root = ElementTree.fromstring(svg_of(chapter))
    places = [float(each.get("cx") or 0) for each in root.iter(f"{SVG}circle")]
    assert all(330 <= place <= 790 for place in places)


def test_a_broken_history_is_told_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "startup.jsonl").write_text("{}\n")
    before = PAGE.read_text("utf-8")
    assert main(tmp_path) == 2
    assert "startup.jsonl:1: " in capsys.readouterr().err
    assert PAGE.read_text("utf-8") == before
