"""Rates that adapt: tenants' floors and limits, with exact probabilities whatever the traffic does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.sampling import SamplingPlan
from ragtrace_collector.sampling import Limits, Sampler, TenantFloor
from tests.unit.collector.asked import HOUR_NS, START_NS, Asked, asked, decide


def fair(answers: int, *, ratio: float = 0.01) -> Sampler:
    return Sampler(plan=SamplingPlan(ratio=ratio), fairness=TenantFloor(answers=answers, window_ns=HOUR_NS))


def limited(answers: int | None, *, per_tenant: int | None = None, ratio: float = 1.0) -> Sampler:
    return Sampler(plan=SamplingPlan(ratio=ratio), limits=Limits(answers=answers, per_tenant=per_tenant))


def loud_and_small(hours: int, *, loud: int = 3_000, small: int = 30) -> Iterator[Asked]:
    """Yield the answers of two tenants, one of which has a hundredth of the other's traffic."""
    for hour in range(hours):
        for number in range(loud):
            at_s = hour * 3600 + number * 3600 / loud
            yield asked(hour * loud + number, tenant="loud", at_s=at_s)
            if number % (loud // small) == 0:
                yield asked(10**9 + hour * small + number, tenant="small", at_s=at_s)


@pytest.mark.slow
def test_a_tenant_with_a_hundredth_of_the_traffic_gets_its_floor() -> None:
    sampler, kept = fair(20), Counter[tuple[str, int]]()
    for each in loud_and_small(3):
        decision = decide(sampler, each)
        if decision.left_out is None:
            kept[decision.tenant, (each.now_ns - START_NS) // HOUR_NS] += 1
    assert kept["small", 0] >= 20  # the first are kept for certain
    # Binomial of 30 answers at a rate of 20/30: four standard deviations are 10
    assert all(kept["small", hour] >= 10 for hour in (1, 2))
    assert all(kept["loud", hour] < 60 for hour in (1, 2))  # a hundredth, as the ratio says


@pytest.mark.slow
def test_the_probability_on_record_is_how_often_such_answers_are_kept() -> None:
    sampler, kept, seen = fair(20), Counter[float](), Counter[float]()
    for each in loud_and_small(3):
        decision = decide(sampler, each)
        assert decision.sample.probability is not None
        seen[decision.sample.probability] += 1
        kept[decision.sample.probability] += decision.left_out is None
    assert len(seen) >= 3  # certain at first, then owed, then by the ratio
    for probability, number in seen.items():
        spread = 4 * (number * probability * (1 - probability)) ** 0.5
        assert abs(kept[probability] - number * probability) <= spread


@pytest.mark.parametrize(("ratio", "throttle"), [(0.2, 1.0), (1.0, 0.2)], ids=["door", "throttle"])
def test_a_limit_is_nearly_used_whatever_else_lowers_rates(ratio: float, throttle: float) -> None:
    sampler, kept, shed = limited(60, ratio=ratio), Counter[int](), 0
    sampler.throttle(throttle)
    for minute in range(4):
        for number in range(1_000):
            each = asked(minute * 1_000 + number, at_s=minute * 60 + number * 0.06)
            if sampler.may_keep(each.trace.trace_id):
                decision = decide(sampler, each)
                kept[minute] += decision.left_out is None
                shed += decision.left_out == "shed:rate_limit" and minute > 0
    assert all(25 < kept[minute] <= 60 for minute in range(4))
    assert shed <= 5


@given(
    st.lists(st.tuples(st.integers(0, 200), st.sampled_from(["a", "b"])), min_size=1, max_size=400),
    st.integers(1, 10),
    st.integers(1, 5),
)
def test_no_window_exceeds_a_limit_whatever_comes(
    traffic: list[tuple[int, str]], answers: int, per_tenant: int
) -> None:
    sampler, kept = limited(answers, per_tenant=per_tenant), Counter[tuple[int, str]]()
    for number, (at_s, tenant) in enumerate(sorted(traffic)):
        decision = decide(sampler, asked(number, tenant=tenant, at_s=at_s))
        kept[at_s // 60, tenant] += decision.left_out is None
        kept[at_s // 60, "all"] += decision.left_out is None
    assert all(number <= (answers if tenant == "all" else per_tenant) for (_, tenant), number in kept.items())
