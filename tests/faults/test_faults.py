"""The suite in the size of a test run: fewer moments, every fault."""

from __future__ import annotations

import pytest

from tests.faults.catalogue import catalogue
from tests.faults.table import Made, heading, rows

FAULTS = catalogue(kills=8, every=60, times=1)


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_nothing_is_lost_doubled_or_unaccounted_for_whatever_fails(fault: Made) -> None:
    (row,) = rows([fault], at_once=4)
    print(heading(), row, sep="\n")
    assert not row, (row.tally, *row.broken)
