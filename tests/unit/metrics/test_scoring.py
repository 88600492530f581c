from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.model import VerdictCounts
from ragtrace.scoring import coverage, lenient_faithfulness, lower_bound, strict_faithfulness

numbers = st.integers(0, 50)
counts = st.builds(
    VerdictCounts, supported=numbers, contradicted=numbers, unsupported=numbers, unjudged=numbers
)
readings = [strict_faithfulness, lenient_faithfulness, lower_bound, coverage]


def test_the_readings_of_four_claims() -> None:
    four = VerdictCounts(supported=1, contradicted=1, unsupported=1, unjudged=1)
    assert [read(four) for read in readings] == [pytest.approx(1 / 3), pytest.approx(2 / 3), 0.25, 0.75]


@given(counts)
def test_a_reading_is_a_share_or_absent(given_counts: VerdictCounts) -> None:
    for read in readings:
        value = read(given_counts)
        assert value is None or 0 <= value <= 1
    assert (strict_faithfulness(given_counts) is None) == (given_counts.judged == 0)
    assert (coverage(given_counts) is None) == (given_counts.total == 0)


@given(counts)
def test_bound_strict_and_lenient_are_in_this_order(given_counts: VerdictCounts) -> None:
    low = lower_bound(given_counts)
    strict = strict_faithfulness(given_counts)
    lenient = lenient_faithfulness(given_counts)
    assert strict is None or (low is not None and lenient is not None and low <= strict <= lenient)
