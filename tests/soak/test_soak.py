"""A short soak, so that the long one is known to work: half a minute of everything at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.soak.__main__ import flatness, soak

pytestmark = pytest.mark.night


@pytest.mark.long
def test_everything_that_was_sent_is_accounted_for_under_mixed_load(tmp_path: Path) -> None:
    report = soak(tmp_path, seconds=30, a_second=15)
    assert report.faults == ()
    assert report.sent["answers"] > 100
    assert report.carriers > 100


@pytest.mark.long
def test_what_a_back_end_loses_is_seen_and_named(tmp_path: Path) -> None:
    report = soak(tmp_path, seconds=6, a_second=10, loses=1 / 3)
    (fault,) = report.faults
    assert re.fullmatch(r"\d+ carriers were written, and did not come: .*[0-9a-f]{32}:[0-9a-f]{16}.*", fault)


def test_what_grows_steadily_is_not_flat_and_what_goes_up_and_down_is() -> None:
    leak = [(float(second), 100 + 0.05 * second) for second in range(600)]
    teeth = [(float(second), 100.0 + second % 60) for second in range(600)]
    assert not flatness("rss", leak, share=0.05, floor=8).is_flat
    assert flatness("store", teeth, share=0.15, floor=4).is_flat
