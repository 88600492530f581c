"""The plan and a real process agree: requests in flight at the judge, and processor time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from ragtrace_collector.capacity.coefficients import Spread, load_coefficients
from ragtrace_collector.capacity.plan import Plan, plan_capacity
from ragtrace_collector.capacity.workload import JudgeUse, Traffic, Workload
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
    nothing = Spread.of(0.0)
    return plan_capacity(
        Workload(
            traffic=Traffic(calls_per_s=A_SECOND, peak=1, spans=3, call_bytes=size),
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
    cores = measured.cpu_s / (ANSWERS / A_SECOND)
    assert plan.single.cores.low / FACTOR <= cores <= plan.single.cores.high * FACTOR
