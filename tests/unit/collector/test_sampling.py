"""Sampling: a pure, nested function of the trace id, and rules that keep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.sampling import keeps
from ragtrace.traces.trace import Resource, Span, Trace
from ragtrace_collector.sampling import AlwaysRule, Sampler

trace_ids = st.binary(min_size=16, max_size=16).map(bytes.hex)
ratios = st.floats(0, 1)


def trace_of(trace_id: str, *, service: str = "shop", **attributes: str) -> Trace:
    span = Span(
        trace_id=trace_id,
        span_id="0000000000000001",
        parent_span_id=None,
        name="ask",
        start_ns=1,
        end_ns=2,
        attributes=attributes,
        resource=Resource(attributes={"service.name": service}),
    )
    return Trace.of(trace_id, [span])


@given(trace_ids, ratios, ratios)
def test_a_higher_ratio_keeps_all_that_a_lower_one_keeps(trace_id: str, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert keeps(trace_id, high) or not keeps(trace_id, low)


@given(trace_ids)
def test_all_or_nothing_at_the_ends(trace_id: str) -> None:
    assert keeps(trace_id, 1.0)
    assert not keeps(trace_id, 0.0)


def test_the_share_kept_is_the_ratio() -> None:
    kept = sum(keeps(f"{number:032x}", 0.1) for number in range(20_000))
    # Binomial: four standard deviations around 2,000.
    assert abs(kept - 2_000) < 170


def test_the_choice_is_independent_of_a_head_sampler_on_the_same_ids() -> None:
    # TraceIdRatioBased keeps an id whose low 64 bits are small: such ids must not all be kept here.
    head_sampled = [f"{'ab' * 8}{number:016x}" for number in range(5_000)]
    kept = sum(keeps(trace_id, 0.5) for trace_id in head_sampled)
    assert 2_300 < kept < 2_700


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        (AlwaysRule(service="shop"), True),
        (AlwaysRule(service="other"), False),
        (AlwaysRule(attributes={"tier": "gold"}), True),
        (AlwaysRule(attributes={"tier": "gold", "region": "eu"}), False),
        (AlwaysRule(attributes={"service.name": "shop"}), True),
    ],
    ids=["service", "other service", "attribute", "not all attributes", "resource attribute"],
)
def test_a_rule_keeps_what_matches_all_of_it(rule: AlwaysRule, kept: bool) -> None:
    sample = Sampler(ratio=0.0, always=(rule,)).decide(trace_of("ab" * 16, tier="gold"))
    assert (sample is not None) is kept


def test_a_rule_beats_the_ratio_and_says_so() -> None:
    sampler = Sampler(ratio=1.0, always=(AlwaysRule(service="shop"),))
    by_rule, by_ratio = sampler.decide(trace_of("ab" * 16)), sampler.decide(trace_of("ab" * 16, service="x"))
    assert by_rule is not None
    assert (by_rule.rule, by_rule.probability) == ("always", 1.0)
    assert by_ratio is not None
    assert (by_ratio.rule, by_ratio.probability) == ("ratio", 1.0)


def test_without_rules_spans_of_a_trace_that_is_left_out_are_not_worth_storing() -> None:
    assert not Sampler(ratio=0.0).may_keep("ab" * 16)
    assert Sampler(ratio=0.0, always=(AlwaysRule(service="shop"),)).may_keep("ab" * 16)


def test_only_rules_about_feedback_wait_for_it() -> None:
    others = AlwaysRule(service="shop"), AlwaysRule(attributes={"tier": "gold"})
    disliked = AlwaysRule(service="shop", attributes={"ragtrace.feedback.label": "down"})
    assert not Sampler(ratio=0.1, always=others).awaits_feedback
    assert Sampler(ratio=0.1, always=(*others, disliked)).awaits_feedback
