"""A short day, so that the long one is known to work, and what its statistics say of made-up costs."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.soak.day import day, growth

pytestmark = pytest.mark.night


@pytest.mark.long
def test_every_call_of_a_short_day_is_accounted_for(tmp_path: Path) -> None:
    found = day(tmp_path, seconds=20, a_second=400)
    # half a minute is too short for memory and cost to be at rest
    assert [fault for fault in found.faults if "grew" not in fault and "more in the end" not in fault] == []
    assert found.calls > 4_000
    assert found.carriers >= found.ledger.by_name()["judged"] > 20
    assert found.cost.median > 0


def test_a_cost_that_goes_up_and_down_is_constant() -> None:
    randoms = [Random(seed) for seed in range(20)]
    found = [growth([(30.0 * at, 300 * random.uniform(0.9, 1.1)) for at in range(80)]) for random in randoms]
    assert all(each.is_constant for each in found)
    assert sum(each.low < 0 < each.high for each in found) >= 15  # 19 of 20 are expected


def test_a_cost_that_grows_by_a_fifth_is_not_constant() -> None:
    random = Random(7)
    found = growth([(30.0 * at, (300 + at * 60 / 79) * random.uniform(0.95, 1.05)) for at in range(80)])
    assert not found.is_constant
    assert 0.1 < found.low < found.share < found.high < 0.3
