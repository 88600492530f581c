"""Which answers are kept: rules and ratio against one position, with the probability on record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.model import AttributeValue, RagRecord
from ragtrace.sampling import SamplingPlan, keeps, position_of
from ragtrace.traces.extract import extract_records
from ragtrace.traces.trace import Span, Trace
from ragtrace_collector.config.sections import SampleConfig
from ragtrace_collector.sampling import Decision, Sampler
from tests.rag_spans import rag_trace, trace_id_of

trace_ids = st.binary(min_size=16, max_size=16).map(bytes.hex)
rates = st.floats(0, 1)


def plan_of(*rules: Mapping[str, Any], ratio: float = 0.0) -> SamplingPlan:
    named = [{"name": f"rule {number}", **rule} for number, rule in enumerate(rules)]
    return SampleConfig.model_validate({"ratio": ratio, "rules": named}).plan()


def traced(
    spans: tuple[Span, ...] = rag_trace(0), **attributes: AttributeValue
) -> tuple[Trace, tuple[RagRecord, ...]]:
    """Return a trace of one answer, its retrieval with further attributes, and what is read from it."""
    root, retrieval, generation = spans
    retrieval = replace(retrieval, attributes={**retrieval.attributes, **attributes})
    trace = Trace.of(root.trace_id, [root, retrieval, generation])
    return trace, extract_records(trace).records


def decide(plan: SamplingPlan, number: int = 0, **attributes: AttributeValue) -> Decision:
    trace, records = traced(rag_trace(number), **attributes)
    (decision,) = Sampler(plan=plan).decide(trace, records, now_ns=0)
    return decision


def of_position(least: float, most: float) -> int:
    """Return the number of a trace that stands between."""
    return next(number for number in range(10_000) if least <= position_of(trace_id_of(number)) < most)


@pytest.mark.parametrize(
    ("trace_id", "position"),
    [
        ("0af7651916cd43dd8448eb211c80319c", 0.024422248487337206),
        ("4bf92f3577b34da6a3ce929d0e0e4736", 0.9832633138021383),
        ("00000000000000000000000000000001", 0.04392147211216957),
    ],
)
def test_every_process_and_version_draws_the_same_answers(trace_id: str, position: float) -> None:
    """Replicas, back-fill and the next release must agree about each trace: these numbers never change."""
    assert position_of(trace_id) == position


@given(trace_ids, rates, rates)
def test_a_higher_rate_keeps_all_that_a_lower_one_keeps(trace_id: str, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert keeps(trace_id, high) or not keeps(trace_id, low)


def test_the_choice_is_independent_of_a_head_sampler_on_the_same_ids() -> None:
    # TraceIdRatioBased keeps an id whose low 64 bits are small: such ids must not all be kept here.
    head_sampled = [f"{'ab' * 8}{number:016x}" for number in range(5_000)]
    kept = sum(keeps(trace_id, 0.5) for trace_id in head_sampled)
    assert 2_300 < kept < 2_700


def test_a_rule_keeps_what_satisfies_all_of_it() -> None:
    told = {
        "tier": "gold",
        "tags": ("a", "b"),
        "hits": 3,
        "cached": True,
        "ragtrace.metadata.release": "v2.1",
        "gen_ai.prompt.version": "p7",
        "ragtrace.tenant": "acme",
    }
    rules: list[tuple[dict[str, Any], bool]] = [
        ({"service": ["other", "shop"]}, True),
        ({"service": "/^sh/"}, True),
        ({"service": "other"}, False),
        ({"attributes": {"tier": "gold", "region": "eu"}}, False),
        ({"attributes": {"service.name": "shop"}}, True),
        ({"attributes": {"tier": "*"}}, True),
        ({"attributes": {"tier": None}}, False),
        ({"attributes": {"region": None}}, True),
        ({"attributes": {"tags": "b"}}, True),
        ({"attributes": {"hits": ["> 2", "x"]}}, True),
        ({"attributes": {"hits": "> 3"}}, False),
        ({"attributes": {"tier": "> 3"}}, False),
        ({"attributes": {"cached": 1}}, False),
        ({"attributes": {"cached": True}}, True),
        ({"attributes": {"ragtrace.metadata.release": r"/^v2\./"}}, True),
        ({"model": "m"}, True),
        ({"prompt_version": "p7"}, True),
        ({"slower_than": "800ms"}, True),
        ({"slower_than": "1s"}, False),
        ({"answer_chars": ">10"}, True),
        ({"question_chars": "< 10"}, False),
        ({"tenant": "acme"}, True),
        ({"status": "error"}, False),
    ]
    for rule, kept in rules:
        assert (decide(plan_of(rule), **told).left_out is None) is kept, rule


def test_what_is_said_of_spans_holds_for_one_and_the_same() -> None:
    apart = plan_of({"attributes": {"gen_ai.operation.name": "chat", "tier": "gold"}})
    together = plan_of({"attributes": {"gen_ai.operation.name": "retrieval", "tier": "gold"}})
    assert decide(apart, tier="gold").left_out == "sampled_out"
    assert decide(together, tier="gold").left_out is None


def test_the_highest_rate_wins_and_names_the_rule_whatever_the_order() -> None:
    rules = [{"name": "some", "service": "shop", "rate": 0.4}, {"name": "more", "model": "m", "rate": 0.7}]
    for plan in (plan_of(*rules, ratio=0.1), plan_of(*reversed(rules), ratio=0.1)):
        sample = decide(plan, of_position(0, 0.1)).sample
        assert (sample.rule, sample.rate, sample.probability) == ("more", 0.7, 0.7)


def test_a_rule_that_drops_wins_over_all() -> None:
    plan = plan_of({"service": "shop"}, {"name": "probes", "model": "m", "rate": 0}, ratio=1.0)
    decision = decide(plan)
    assert (decision.left_out, decision.sample.rule, decision.sample.probability) == (
        "filtered",
        "probes",
        None,
    )


@given(trace_ids, rates, st.lists(rates.filter(bool), max_size=3))
def test_the_door_drops_only_what_no_rule_could_keep(
    trace_id: str, ratio: float, of_rules: list[float]
) -> None:
    plan = plan_of(*({"service": "shop", "rate": rate} for rate in of_rules), ratio=ratio)
    assert Sampler(plan=plan).may_keep(trace_id) == keeps(trace_id, max([ratio, *of_rules]))


def test_a_throttle_lowers_every_rate_and_its_probability() -> None:
    trace, records = traced(rag_trace(of_position(0.3, 0.5)))
    sampler = Sampler(plan=plan_of(ratio=1.0))
    for factor, left_out in ((0.25, "sampled_out"), (0.6, None)):
        sampler.throttle(factor)
        (decision,) = sampler.decide(trace, records, now_ns=0)
        assert (decision.left_out, decision.sample.probability) == (left_out, factor)
