"""The plan and real processes agree: requests in flight at the judge, processor time, one process or two."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from ragtrace_collector.capacity.coefficients import Spread, load_coefficients
from ragtrace_collector.capacity.plan import Plan, plan_capacity
from ragtrace_collector.capacity.workload import JudgeUse, Traffic, Workload
from tests.benchmarks.cluster_members import running_brokers, running_member, sections_of
from tests.benchmarks.ingest.load import Load
from tests.benchmarks.pipeline import (
    LATENCY_S,
    WARM_UP,
    Scores,
    collector,
    configure,
    new_answers,
    running_stub,
    send_all,
    send_paced,
)

pytestmark = [pytest.mark.slow, pytest.mark.long]

A_SECOND = 20
ANSWERS = 120
WORKERS = 64
FACTOR = 3.0
"""How far processor time may be from the plan's own bounds: on another machine, while others use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a collector and its judge did with the answers."""

    cpu_s: float
    requests: int
    took_s: float
    most_at_once: int


@pytest.fixture(scope="module")
def measured() -> Iterator[Measured]:
    """Twenty answers a second, and a judge that takes half a second."""
    with running_stub() as stub, Scores.receiving() as scores:
        configure(stub, latency_s=0.0)
        with collector(stub, scores, "append", WORKERS) as server:
            asyncio.run(send_all(server, new_answers(WARM_UP), scores))
            configure(stub, latency_s=LATENCY_S)
            before = server.at_rest().cpu_s
            asyncio.run(send_paced(server, new_answers(ANSWERS), scores, A_SECOND))
            cpu_s = server.at_rest().cpu_s - before
            load = httpx.get(f"{stub}/load").json()
        yield Measured(
            cpu_s=cpu_s, requests=load["requests"], took_s=load["took_s"], most_at_once=load["most"]
        )


@pytest.fixture(scope="module")
def plan() -> Plan:
    """The plan of the same."""
    size = sum(map(len, new_answers(ANSWERS))) / ANSWERS
    return plan_of(Traffic(calls_per_s=A_SECOND, peak=1, spans=3, call_bytes=size))


def plan_of(traffic: Traffic) -> Plan:
    nothing = Spread.of(0.0)
    return plan_capacity(
        Workload(
            traffic=traffic,
            judge=JudgeUse(
                name="openai:stub",
                calls=2,
                latency_s=LATENCY_S,
                cpu_ms=nothing,
                input_tokens=nothing,
                output_tokens=nothing,
                usd=nothing,
            ),
            concurrency=WORKERS,
        ),
        load_coefficients(),
    )


def test_an_evaluation_asks_the_judge_as_often_as_is_planned(measured: Measured, plan: Plan) -> None:
    assert measured.requests / ANSWERS == plan.peak.judge_requests / plan.peak.evaluations


def test_as_many_requests_are_in_flight_as_are_planned(measured: Measured, plan: Plan) -> None:
    """On average by Little's law, which holds if none waits in the collector for another."""
    in_flight = measured.took_s / (ANSWERS / A_SECOND)
    slower = max(1.0, measured.took_s / measured.requests / LATENCY_S)  # a judge on a busy machine
    assert 0.75 * plan.peak.in_flight <= in_flight <= 1.25 * slower * plan.peak.in_flight
    assert plan.peak.in_flight / 2 <= measured.most_at_once <= plan.single.concurrency


def test_processor_time_is_within_the_plan_s_bounds(measured: Measured, plan: Plan) -> None:
    assert is_near(measured.cpu_s / (ANSWERS / A_SECOND), plan.single.cores)


def test_a_process_that_judges_over_kafka_is_within_the_plan_s_bounds(tmp_path: Path, plan: Plan) -> None:
    with running_stub() as stub, Scores.receiving() as scores, running_brokers(tmp_path) as kafka:
        sections = sections_of(stub, scores, at_once=WORKERS)
        configure(stub, latency_s=0.0)
        with (
            running_member(kafka, tmp_path / "evaluate", "evaluate", sections) as owner,
            running_member(kafka, tmp_path / "ingest", "ingest", sections) as ingest,
        ):
            asyncio.run(send_all(ingest, new_answers(WARM_UP), scores))
            configure(stub, latency_s=LATENCY_S)
            before = owner.at_rest().cpu_s
            asyncio.run(send_paced(ingest, new_answers(ANSWERS), scores, A_SECOND))
            cores = (owner.at_rest().cpu_s - before) / (ANSWERS / A_SECOND)
    assert is_near(cores, plan.cluster.evaluate_cores)


def test_a_process_that_takes_spans_for_kafka_is_within_the_plan_s_bounds(tmp_path: Path) -> None:
    load = Load(spans_a_trace=10, at_once=8)
    spans_a_second = 4_000
    with running_stub() as stub, Scores.receiving() as scores, running_brokers(tmp_path) as kafka:
        sections = sections_of(stub, scores, at_once=WORKERS)
        with running_member(kafka, tmp_path / "ingest", "ingest", sections) as ingest:
            asyncio.run(load.drive(ingest, load.requests(20)))
            taken = asyncio.run(load.drive(ingest, load.requests(160)))
    calls_a_second, call_bytes = spans_a_second / 10, 10 * load.bytes_a_span
    plan = plan_of(Traffic(calls_per_s=calls_a_second, peak=1, spans=10, call_bytes=call_bytes))
    assert is_near(taken.cpu_us / 1e6 * spans_a_second, plan.cluster.ingest_cores)


def is_near(cores: float, planned: Spread) -> bool:
    return planned.low / FACTOR <= cores <= planned.high * FACTOR
