"""The capacity model: from traffic to processes, cores, memory, disk and money. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ragtrace_collector.capacity.coefficients import Coefficients, Spread
from ragtrace_collector.capacity.workload import Workload

USABLE_CORE: Final = 0.6
"""Of a core, how much one process should use at the peak: one event loop serves everything."""
_MOST_OF_CORE: Final = 0.9
"""What it may use if everything costs the most."""
USABLE_WORKERS: Final = 0.8
"""Of the evaluations that may run at once, how many should: the rest is for what comes unevenly."""
MOST_AT_ONCE: Final = 256
"""Evaluations at once in a process: the most that was measured."""
_WORKERS_STEP: Final = 8
MOST_STORE_BYTES: Final = 100 * 1_000_000_000
"""Of one SQLite file: larger ones work, but nobody measured them."""
_PARTITIONS_STEP: Final = 12
_PARTITIONS_A_PROCESS: Final = 2
"""At least: so that more processes can be added later without other partitions."""
_DAY_S: Final = 86_400.0
_MICRO: Final = 1e-6
_MEGA: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What happens in a second of the peak."""

    calls: float
    spans: float
    bytes: float
    evaluations: float
    judge_requests: float
    in_flight: float
    """Requests to the judge that wait for its reply, on average: Little's law."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleProcess:
    """One collector over one SQLite file."""

    objections: tuple[str, ...]
    """Why one is not enough; empty if it is."""
    receive_cores: Spread
    judge_cores: Spread
    concurrency: int
    """For ``evaluate.concurrency`` and ``judge.max_concurrency``."""
    memory_bytes: Spread
    store_bytes: Spread

    @property
    def cores(self) -> Spread:
        """CPU at the peak."""
        return self.receive_cores + self.judge_cores


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCount:
    """How many processes, if everything costs the least, what is likely, and the most."""

    low: int
    likely: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Processes over ``store: kafka://…``."""

    ingest: ProcessCount
    ingest_cores: Spread
    evaluate: ProcessCount
    evaluate_cores: Spread
    concurrency: int
    """In each process that evaluates."""
    partitions: int
    memory_bytes: Spread
    """Of one process that evaluates."""
    cache_bytes: Spread
    """Disk of one process that evaluates."""
    spans_topic_bytes: Spread
    """All copies."""
    state_topic_bytes: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyCost:
    """What the judge takes in a day of average traffic."""

    evaluations: float
    calls: float
    input_tokens: Spread
    output_tokens: Spread
    usd: Spread | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What traffic takes."""

    peak: Rates
    single: SingleProcess
    cluster: Cluster
    daily: DailyCost
    outage_bytes: Spread
    """What the store grows by in an hour of average traffic in which the judge is away."""

    @property
    def fits_one_process(self) -> bool:
        """Whether one collector over SQLite is enough."""
        return not self.single.objections


def plan_capacity(load: Workload, coefficients: Coefficients) -> Plan:
    """Return what a workload takes.

    More traffic, or a slower judge, never takes fewer processes, less disk or less money.
    """
    peak = _rates(load)
    store = _store_bytes(load, coefficients)
    kept_bytes = load.traffic.calls(at_peak=False) * load.traffic.kept_share * load.traffic.call_bytes
    return Plan(
        peak=peak,
        single=_single(load, peak, store, coefficients),
        cluster=_cluster(load, peak, store, coefficients),
        daily=_daily(load),
        outage_bytes=coefficients.stored_byte_bytes * (kept_bytes * 3600),
    )


def _rates(load: Workload) -> Rates:
    traffic, judge = load.traffic, load.judge
    calls, evaluations = traffic.calls(at_peak=True), traffic.evaluations(at_peak=True)
    return Rates(
        calls=calls,
        spans=calls * traffic.spans,
        bytes=calls * traffic.call_bytes,
        evaluations=evaluations,
        judge_requests=evaluations * judge.calls,
        in_flight=evaluations * judge.calls * judge.latency_s,
    )


def _single(load: Workload, peak: Rates, store: Spread, coefficients: Coefficients) -> SingleProcess:
    workers = _workers_for(peak.in_flight)
    concurrency = load.concurrency or min(workers, MOST_AT_ONCE)
    return SingleProcess(
        objections=tuple(_objections(load, peak, store, coefficients)),
        receive_cores=_receive_cores(load, peak, coefficients),
        judge_cores=_judge_cores(load, peak, coefficients),
        concurrency=max(concurrency, min(workers, MOST_AT_ONCE)),
        memory_bytes=_memory_bytes(load, peak.calls, max(concurrency, workers), coefficients),
        store_bytes=store,
    )


def _objections(load: Workload, peak: Rates, store: Spread, coefficients: Coefficients) -> Iterator[str]:
    cores = _receive_cores(load, peak, coefficients) + _judge_cores(load, peak, coefficients)
    if cores.likely > USABLE_CORE or cores.high > _MOST_OF_CORE:
        yield f"it would use {cores.likely:.2g} cores ({cores.low:.2g} to {cores.high:.2g}), and has one"
    if _workers_for(peak.in_flight) > MOST_AT_ONCE:
        yield f"{peak.in_flight:,.0f} requests wait for the judge at once; {MOST_AT_ONCE} were measured"
    if store.likely > MOST_STORE_BYTES:
        yield f"its file would have {store.likely / 1e9:,.0f} GB"


def _receive_cores(load: Workload, peak: Rates, coefficients: Coefficients) -> Spread:
    """CPU of taking spans in: those that are kept, and those that are sampled out."""
    kept = load.traffic.kept_share
    microseconds = _kept_us(peak, coefficients) * kept + _dropped_us(peak, coefficients) * (1 - kept)
    return microseconds * coefficients.other_run * _MICRO


def _kept_us(peak: Rates, coefficients: Coefficients) -> Spread:
    """CPU of all spans of a second, if they are kept."""
    return coefficients.kept_span_us * peak.spans + coefficients.kept_kilobyte_us * (peak.bytes / 1e3)


def _dropped_us(peak: Rates, coefficients: Coefficients) -> Spread:
    """CPU of all spans of a second, if they are sampled out."""
    return coefficients.sampled_out_span_us * peak.spans + coefficients.sampled_out_kilobyte_us * (
        peak.bytes / 1e3
    )


def _to_topic_us(peak: Rates, coefficients: Coefficients) -> Spread:
    """CPU of all spans of a second, if they are written to the topic."""
    return coefficients.kafka_span_us * peak.spans + coefficients.kafka_kilobyte_us * (peak.bytes / 1e3)


def _judge_cores(load: Workload, peak: Rates, coefficients: Coefficients) -> Spread:
    c = coefficients
    each_ms = c.evaluation_ms + c.judge_call_ms * load.judge.calls + load.judge.cpu_ms
    return each_ms * c.other_run * (peak.evaluations / 1e3)


def _workers_for(in_flight: float) -> int:
    """Return how many evaluations must be able to run at once, in steps of eight."""
    wanted = math.ceil(in_flight / USABLE_WORKERS)
    return max(_WORKERS_STEP, _in_steps(wanted, _WORKERS_STEP))


def _in_steps(number: float, step: int) -> int:
    return math.ceil(number / step) * step


def _cluster(load: Workload, peak: Rates, store: Spread, coefficients: Coefficients) -> Cluster:
    c = coefficients
    kept = load.traffic.kept_share
    ingest_us = _dropped_us(peak, c) * (1 - kept) + _to_topic_us(peak, c) * kept
    ingest_cores = ingest_us * c.other_run * _MICRO
    evaluate_cores = (
        _kept_us(peak, c) * kept * c.other_run * _MICRO + _judge_cores(load, peak, c)
    ) * c.kafka_store
    most = load.concurrency or MOST_AT_ONCE
    evaluate = _processes(evaluate_cores, at_least=math.ceil(_workers_for(peak.in_flight) / most))
    concurrency = load.concurrency or min(MOST_AT_ONCE, _workers_for(peak.in_flight / evaluate.likely))
    written = load.traffic.calls(at_peak=False) * load.traffic.call_bytes * kept
    return Cluster(
        ingest=_processes(ingest_cores, at_least=1),
        ingest_cores=ingest_cores,
        evaluate=evaluate,
        evaluate_cores=evaluate_cores,
        concurrency=concurrency,
        partitions=max(
            _PARTITIONS_STEP, _in_steps(_PARTITIONS_A_PROCESS * evaluate.likely, _PARTITIONS_STEP)
        ),
        memory_bytes=_memory_bytes(load, peak.calls / evaluate.likely, concurrency, c),
        cache_bytes=store * (1 / evaluate.likely),
        spans_topic_bytes=c.kafka_spans
        * (written * _seconds(load.retention.spans_topic) * load.retention.replicas),
        state_topic_bytes=store * c.kafka_state * load.retention.replicas,
    )


def _processes(cores: Spread, *, at_least: int) -> ProcessCount:
    low, likely, high = (
        max(at_least, 1, math.ceil(each / USABLE_CORE)) for each in (cores.low, cores.likely, cores.high)
    )
    return ProcessCount(low=low, likely=likely, high=high)


def _memory_bytes(load: Workload, calls: float, at_once: int, coefficients: Coefficients) -> Spread:
    """Memory of a process that takes so many calls a second, and judges so many answers at once."""
    c = coefficients
    open_traces = calls * load.traffic.kept_share * _seconds(load.retention.quiet_period)
    megabytes = (
        c.process_megabytes
        + c.evaluation_megabytes * at_once
        + c.open_trace_kilobytes * (open_traces / 1e3)
        + c.received_megabytes
    )
    return megabytes * _MEGA


def _store_bytes(load: Workload, coefficients: Coefficients) -> Spread:
    """Return the size of the store: spans of the last minutes, outcomes, and the index."""
    traffic, kept = load.traffic, load.retention
    fresh_s = _seconds(kept.linger) + _seconds(kept.quiet_period)
    spans = traffic.calls(at_peak=True) * traffic.kept_share * traffic.call_bytes * fresh_s
    answers_per_s = traffic.calls(at_peak=False) * traffic.kept_share
    judged_per_s = traffic.evaluations(at_peak=False)
    rows = min(kept.most_rows, judged_per_s * _seconds(kept.answers))
    return (
        coefficients.stored_byte_bytes * spans
        + coefficients.outcome_bytes * (answers_per_s * _seconds(kept.outcomes))
        + coefficients.index_row_bytes * rows
    )


def _daily(load: Workload) -> DailyCost:
    judge = load.judge
    evaluations = load.traffic.evaluations(at_peak=False) * _DAY_S
    return DailyCost(
        evaluations=evaluations,
        calls=evaluations * judge.calls,
        input_tokens=judge.input_tokens * evaluations,
        output_tokens=judge.output_tokens * evaluations,
        usd=_money(judge.usd, evaluations),
    )


def _money(usd: Spread | None, evaluations: float) -> Spread | None:
    """Return what evaluations cost: nothing if there are none, whatever the price."""
    if not evaluations:
        return Spread.of(0.0)
    return None if usd is None else usd * evaluations


def _seconds(duration: timedelta) -> float:
    return duration.total_seconds()
