"""Averages over a sample are those of everything, whatever rules, feedback and low scores add to it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from ragtrace.stats import Weighed, weighted_mean
from ragtrace_collector.config.sections import SampleConfig
from ragtrace_collector.sampling import Decision, Sampler
from ragtrace_collector.service.pipeline import sampler_of
from tests.unit.collector.asked import Asked, asked, decide

SESSIONS = 2_000


def scores(draw: random.Random) -> list[tuple[int, float]]:
    """Return sessions with a score for each of their answers: bad ones come together."""
    found: list[tuple[int, float]] = []
    for session in range(SESSIONS):
        worst, best = (0.0, 0.5) if draw.random() < 0.15 else (0.6, 1.0)
        found += [(session, draw.uniform(worst, best)) for _ in range(draw.randint(1, 4))]
    draw.shuffle(found)
    return found


def sampler(**sample: object) -> Sampler:
    return sampler_of(SampleConfig.model_validate(sample))


def weighed(score: float, decision: Decision, each: Asked) -> Weighed:
    return Weighed(score, decision.sample.probability, each.trace.trace_id)


def truth_and_plain(everything: Sequence[tuple[int, float]], kept: Sequence[Weighed]) -> tuple[float, float]:
    truth = sum(score for _, score in everything) / len(everything)
    return truth, sum(each.value for each in kept) / len(kept)


@pytest.mark.slow
def test_neighbours_of_low_scores_change_no_average() -> None:
    deciding = sampler(ratio=0.1, neighbours={"below": 0.5, "same": ["session"], "most": 5})
    assert deciding.follow_ups is not None
    everything, kept, policy = scores(random.Random(1)), [], deciding.follow_ups.policy
    for number, (session, score) in enumerate(everything):
        each = asked(number, session=f"s{session}")
        decision = decide(deciding, each)
        if decision.left_out is None:
            kept.append(weighed(score, decision, each))
            if score < policy.below and decision.sample.rule != "neighbour":
                ids = (each.trace.trace_id, decision.span_id)
                deciding.follow_ups.add(
                    policy.low_answer(*ids, each.record, each.now_ns, tenant=decision.tenant)
                )
    found = weighted_mean(kept)
    truth, plain = truth_and_plain(everything, kept)
    assert found is not None
    assert found.left_out > 30
    assert found.low < truth < found.high
    assert plain < found.low  # for whoever forgets the weights, it looks worse than it is


def test_a_budget_that_lowers_rates_changes_no_average() -> None:
    deciding, draw = sampler(ratio=0.5), random.Random(3)
    everything, kept = scores(draw), []
    for number, (_, score) in enumerate(everything):
        late = number / len(everything)  # answers get worse while the budget runs out
        everything[number] = (0, score * (1 - late / 2))
        deciding.throttle(1 - late * 0.9)
        each = asked(number)
        decision = decide(deciding, each)
        if decision.left_out is None:
            kept.append(weighed(everything[number][1], decision, each))
    found = weighted_mean(kept)
    truth, plain = truth_and_plain(everything, kept)
    assert found is not None
    assert found.low < truth < found.high
    assert plain > truth + 0.05
