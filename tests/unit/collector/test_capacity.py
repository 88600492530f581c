"""The capacity model: laws that hold for any traffic, and numbers that can be checked by hand."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace_collector.capacity.coefficients import (
    FILE,
    Coefficients,
    Spread,
    load_coefficients,
    parse_coefficients,
)
from ragtrace_collector.capacity.plan import MOST_AT_ONCE, USABLE_CORE, Plan, plan_capacity
from ragtrace_collector.capacity.workload import JudgeUse, Retention, Traffic, Workload

COEFFICIENTS = load_coefficients()
NOTHING = Spread.of(0.0)

positive = st.floats(min_value=0.001, max_value=10_000, allow_nan=False)
shares = st.floats(min_value=0, max_value=1)
traffics = st.builds(
    Traffic,
    calls_per_s=positive,
    peak=st.floats(min_value=1, max_value=20),
    spans=st.floats(min_value=1, max_value=500),
    call_bytes=st.floats(min_value=100, max_value=1e6),
    rate=shares,
    kept=st.none() | shares,
    most_per_minute=st.none() | st.floats(min_value=1, max_value=1e6),
)
judges = st.builds(
    JudgeUse,
    name=st.just("openai:gpt-4o-mini"),
    calls=st.floats(min_value=0, max_value=50),
    latency_s=st.floats(min_value=0, max_value=120),
    cpu_ms=st.just(NOTHING),
    input_tokens=st.just(Spread(low=1, likely=2, high=3)),
    output_tokens=st.just(Spread.of(5)),
    usd=st.none() | st.builds(Spread.of, st.floats(min_value=0, max_value=1)),
)
workloads = st.builds(
    Workload,
    traffic=traffics,
    judge=judges,
    concurrency=st.none() | st.integers(min_value=1, max_value=512),
)


def workload(*, calls_per_s: float = 10.0, rate: float = 1.0, latency_s: float = 2.0) -> Workload:
    return Workload(
        traffic=Traffic(calls_per_s=calls_per_s, rate=rate),
        judge=JudgeUse(
            name="openai:gpt-4o-mini",
            calls=2,
            latency_s=latency_s,
            cpu_ms=NOTHING,
            input_tokens=Spread.of(1_600),
            output_tokens=Spread.of(400),
            usd=Spread.of(0.0005),
        ),
    )


def planned(load: Workload) -> Plan:
    return plan_capacity(load, COEFFICIENTS)


def demands(plan: Plan) -> list[float]:
    """Everything of which more traffic takes more."""
    single, cluster, daily = plan.single, plan.cluster, plan.daily
    spreads = (
        *(single.cores, single.memory_bytes, single.store_bytes, plan.outage_bytes),
        *(cluster.ingest_cores, cluster.evaluate_cores, cluster.spans_topic_bytes, cluster.state_topic_bytes),
        *(daily.input_tokens, daily.output_tokens),
        *([daily.usd] if daily.usd else ()),
    )
    counts = (
        *(cluster.ingest.likely, cluster.evaluate.low, cluster.evaluate.likely, cluster.evaluate.high),
        *(cluster.partitions, single.concurrency, len(single.objections), daily.calls),
    )
    return [each for spread in spreads for each in (spread.low, spread.likely, spread.high)] + list(counts)


def is_at_least(more: Plan, less: Plan) -> bool:
    return all(a >= b * (1 - 1e-9) for a, b in zip(demands(more), demands(less), strict=True))


@given(load=workloads, factor=st.floats(min_value=1, max_value=100))
def test_more_traffic_never_takes_less(load: Workload, factor: float) -> None:
    more = replace(load, traffic=replace(load.traffic, calls_per_s=load.traffic.calls_per_s * factor))
    assert is_at_least(planned(more), planned(load))


@given(load=workloads, factor=st.floats(min_value=1, max_value=100))
def test_a_slower_judge_never_needs_fewer_evaluators(load: Workload, factor: float) -> None:
    slower = replace(load, judge=replace(load.judge, latency_s=load.judge.latency_s * factor))
    assert is_at_least(planned(slower), planned(load))


@given(load=workloads, rate=shares)
def test_a_higher_rate_never_takes_less(load: Workload, rate: float) -> None:
    low, high = sorted((load.traffic.rate, rate))
    plans = [planned(replace(load, traffic=replace(load.traffic, rate=each))) for each in (low, high)]
    if plans[0].daily.usd and plans[1].daily.usd is None:  # a rate of 0 costs nothing, whatever the price
        return
    costs = [replace(each, daily=replace(each.daily, usd=None)) for each in plans]
    assert is_at_least(costs[1], costs[0])


@given(load=workloads)
def test_a_rate_of_0_needs_no_money_and_no_judge(load: Workload) -> None:
    none = planned(replace(load, traffic=replace(load.traffic, rate=0.0)))
    assert none.daily.usd == NOTHING
    assert none.daily.calls == none.peak.in_flight == 0
    assert none.single.judge_cores == NOTHING


@given(load=workloads)
def test_a_likely_number_is_between_the_lowest_and_the_highest(load: Workload) -> None:
    plan = planned(load)
    for count in (plan.cluster.ingest, plan.cluster.evaluate):
        assert 1 <= count.low <= count.likely <= count.high


@given(load=workloads)
def test_evaluators_have_shards_workers_and_processor_time(load: Workload) -> None:
    plan = planned(load)
    cluster = plan.cluster
    assert cluster.partitions >= 2 * cluster.evaluate.likely
    assert cluster.evaluate.likely * cluster.concurrency >= plan.peak.in_flight
    assert cluster.evaluate.likely * USABLE_CORE >= cluster.evaluate_cores.likely * (1 - 1e-9)


@given(load=workloads)
def test_one_process_is_enough_only_if_it_is_within_its_limits(load: Workload) -> None:
    plan = planned(load)
    if plan.fits_one_process:
        assert plan.single.cores.likely <= USABLE_CORE
        assert plan.peak.in_flight <= plan.single.concurrency <= max(MOST_AT_ONCE, load.concurrency or 0)


def test_requests_in_flight_are_those_of_little_s_law() -> None:
    plan = planned(workload(calls_per_s=4, rate=0.5, latency_s=1.5))
    assert plan.peak.evaluations == 6  # three times the average
    assert plan.peak.in_flight == 18


def test_a_limit_of_answers_a_minute_bounds_what_is_judged_and_spent() -> None:
    load = workload(calls_per_s=100)
    limited = planned(replace(load, traffic=replace(load.traffic, most_per_minute=60.0)))
    assert limited.peak.evaluations == 1
    assert limited.daily.usd is not None
    assert limited.daily.usd.likely == pytest.approx(86_400 * 0.0005)


def test_money_of_a_day_is_that_of_average_traffic() -> None:
    usd = planned(workload(calls_per_s=1, rate=0.1)).daily.usd
    assert usd is not None
    assert usd.likely == pytest.approx(8_640 * 0.0005)


def test_a_price_that_is_unknown_is_no_price_of_nothing() -> None:
    load = workload()
    assert planned(replace(load, judge=replace(load.judge, usd=None))).daily.usd is None


def test_rules_that_keep_more_traces_take_disk_and_no_money() -> None:
    load = workload(rate=0.1)
    ruled = planned(replace(load, traffic=replace(load.traffic, kept=1.0)))
    assert ruled.single.store_bytes.likely > 3 * planned(load).single.store_bytes.likely
    assert ruled.daily == planned(load).daily


def test_the_index_has_no_more_rows_than_it_may() -> None:
    load = workload(calls_per_s=1_000)
    unbounded = replace(load, retention=Retention(most_rows=10**12))
    assert planned(load).single.store_bytes.likely < planned(unbounded).single.store_bytes.likely


def test_a_longer_retention_takes_more_disk() -> None:
    load = workload()
    longer = replace(load, retention=Retention(outcomes=timedelta(days=70)))
    assert planned(longer).single.store_bytes.likely > planned(load).single.store_bytes.likely


def test_every_coefficient_counts() -> None:
    load = replace(workload(rate=0.5), judge=replace(workload().judge, cpu_ms=Spread.of(1.0)))
    before = plan_capacity(load, COEFFICIENTS)
    elsewhere = {"lexical_ms", "input_tokens", "output_tokens"}  # the judge's use is made of them
    for name in {each.name for each in fields(Coefficients)} - {"measured"} - elsewhere:
        tripled = replace(COEFFICIENTS, **{name: getattr(COEFFICIENTS, name) * 3})
        assert plan_capacity(load, tripled) != before, name


@pytest.mark.parametrize(
    "wrong",
    [
        {"calls_per_s": 0},
        {"calls_per_s": -1},
        {"calls_per_s": float("nan")},
        {"calls_per_s": float("inf")},
        {"calls_per_s": 1, "rate": 1.1},
        {"calls_per_s": 1, "rate": float("nan")},
        {"calls_per_s": 1, "kept": -0.1},
        {"calls_per_s": 1, "peak": 0.5},
        {"calls_per_s": 1, "spans": 0},
    ],
    ids=str,
)
def test_what_is_no_traffic_is_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"`{list(wrong)[-1]}`"):
        Traffic(**wrong)


def test_coefficients_that_are_missing_or_out_of_order_are_refused() -> None:
    text = FILE.read_text()
    line = next(line for line in text.splitlines() if line.startswith("evaluation_ms"))
    with pytest.raises(ValueError, match="evaluation_ms"):
        parse_coefficients(text.replace(line, ""))
    with pytest.raises(ValueError, match="not in order"):
        parse_coefficients(text.replace(line, "evaluation_ms = {low = 2, likely = 1, high = 3}"))
