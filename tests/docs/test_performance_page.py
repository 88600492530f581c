"""docs/performance.md is that of the committed history."""

from __future__ import annotations

import os
import re

from tests.benchmarks import recording
from tests.benchmarks.page import PAGE, TITLES, main, written
from tests.benchmarks.suite import BENCHMARKS

REGENERATE = "REGENERATE_GOLDEN"


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
