"""The suite in the size of a test run: fewer moments, every fault."""

from __future__ import annotations

import pytest

from tests.faults.catalogue import catalogue
from tests.faults.table import heading, rows


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_is_lost_doubled_or_unaccounted_for_whatever_fails() -> None:
    table = []
    print(heading())
    for row in rows(catalogue(kills=8, every=60, times=1), at_once=6):
        print(row)
        table.append(row)
    assert not [(row.fault, row.tally, *row.broken) for row in table if row]
