"""Rates that adapt: the probability on record is exact, and averages of a sample are those of everything."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.stats import Weighed, weighted_mean
from ragtrace_collector.config.sections import SampleConfig
from ragtrace_collector.sampling import Decision, Sampler
from ragtrace_collector.service.pipeline import sampler_of
from tests.unit.collector.asked import HOUR_NS, START_NS, Asked, asked, decide


def sampler(**sample: object) -> Sampler:
    return sampler_of(SampleConfig.model_validate(sample))


def loud_and_small(hours: int) -> Iterator[Asked]:
    """Yield the answers of two tenants, one of which has a hundredth of the other's traffic."""
    for hour in range(hours):
        for number in range(3_000):
            at_s = hour * 3600 + number * 1.2
            yield asked(hour * 3_000 + number, tenant="loud", at_s=at_s)
            if number % 100 == 0:
                yield asked(10**9 + hour * 30 + number, tenant="small", at_s=at_s)


@pytest.mark.slow
def test_a_small_tenant_gets_its_floor_with_the_probability_that_such_answers_have() -> None:
    floor, kept, seen = sampler(ratio=0.01, tenant_floor=20), Counter[object](), Counter[float]()
    for each in loud_and_small(3):
        decision = decide(floor, each)
        probability = decision.sample.probability
        assert probability is not None
        seen[probability] += 1
        if decision.left_out is None:
            kept[probability] += 1
            kept[decision.tenant, (each.now_ns - START_NS) // HOUR_NS] += 1
    assert kept["small", 0] >= 20  # the first are kept for certain
    # Binomial of 30 answers at a rate of 20/30: four standard deviations are 10
    assert all(kept["small", hour] >= 10 for hour in (1, 2))
    assert all(kept["loud", hour] < 60 for hour in (1, 2))  # a hundredth, as the ratio says
    assert len(seen) >= 3  # certain at first, then owed, then by the ratio
    for probability, number in seen.items():
        spread = 4 * (number * probability * (1 - probability)) ** 0.5
        assert abs(kept[probability] - number * probability) <= spread


@pytest.mark.parametrize(("ratio", "throttle"), [(0.2, 1.0), (1.0, 0.2)], ids=["door", "throttle"])
def test_a_limit_is_nearly_used_whatever_else_lowers_rates(ratio: float, throttle: float) -> None:
    limited, kept, shed = sampler(ratio=ratio, limit={"answers": 60}), Counter[int](), 0
    limited.throttle(throttle)
    for minute in range(4):
        for number in range(1_000):
            each = asked(minute * 1_000 + number, at_s=minute * 60 + number * 0.06)
            if limited.may_keep(each.trace.trace_id):
                decision = decide(limited, each)
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
    limited = sampler(limit={"answers": answers, "per_tenant": per_tenant})
    kept = Counter[tuple[int, str]]()
    for number, (at_s, tenant) in enumerate(sorted(traffic)):
        decision = decide(limited, asked(number, tenant=tenant, at_s=at_s))
        kept[at_s // 60, tenant] += decision.left_out is None
        kept[at_s // 60, "all"] += decision.left_out is None
    assert all(number <= (answers if tenant == "all" else per_tenant) for (_, tenant), number in kept.items())


# -- averages ---------------------------------------------------------------------------------------------
def scores(draw: random.Random) -> list[tuple[int, float]]:
    """Return sessions with a score for each of their answers: bad ones come together."""
    found: list[tuple[int, float]] = []
    for session in range(2_000):
        worst, best = (0.0, 0.5) if draw.random() < 0.15 else (0.6, 1.0)
        found += [(session, draw.uniform(worst, best)) for _ in range(draw.randint(1, 4))]
    draw.shuffle(found)
    return found


def weighed(score: float, decision: Decision, each: Asked) -> Weighed:
    return Weighed(score, decision.sample.probability, each.trace.trace_id)


def check_mean(everything: Sequence[float], kept: Sequence[Weighed]) -> float:
    """See that the mean of the sample is that of everything; return by how much the plain mean is off."""
    found, truth = weighted_mean(kept), sum(everything) / len(everything)
    assert found is not None
    assert found.low < truth < found.high
    return sum(each.value for each in kept) / len(kept) - truth


def test_a_budget_that_lowers_rates_changes_no_average() -> None:
    deciding, drawn, kept = sampler(ratio=0.5), scores(random.Random(3)), []
    late = [
        number / len(drawn) for number in range(len(drawn))
    ]  # answers get worse while the budget runs out
    everything = [score * (1 - at / 2) for (_, score), at in zip(drawn, late, strict=True)]
    for number, score in enumerate(everything):
        deciding.throttle(1 - late[number] * 0.9)
        each = asked(number)
        decision = decide(deciding, each)
        if decision.left_out is None:
            kept.append(weighed(score, decision, each))
    assert check_mean(everything, kept) > 0.05
