"""How a plan is told: lines of 80 columns for people, one object for machines."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Final

from ragtrace.cli.render import dollars, one_line
from ragtrace_collector.capacity.coefficients import Coefficients, Spread
from ragtrace_collector.capacity.plan import USABLE_CORE, Plan, ProcessCount, plan_capacity
from ragtrace_collector.capacity.workload import Workload
from ragtrace_collector.config import CollectorConfig

_WIDTH: Final = 80
_LABEL: Final = 32
_NUMBER: Final = 12
_STEPS: Final = 20
_MILLION: Final = 1e6
_SIZES: Final = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_SPARE: Final = 1.25
"""Room above the likely size of a store."""


def lines(
    load: Workload, plan: Plan, coefficients: Coefficients, config: CollectorConfig | None
) -> Iterator[str]:
    """Tell a plan to a person."""
    yield _title(load)
    yield ""
    for text in _answer(load, plan, coefficients, config):
        yield _filled(text, "  ")
    yield ""
    yield from _peak(plan)
    yield ""
    yield from _single(plan)
    if not plan.fits_one_process:
        yield ""
        yield from _cluster(plan)
    yield ""
    yield from _daily(plan)
    yield ""
    yield "assumptions"
    for text in _assumptions(load, plan, coefficients):
        yield textwrap.fill(text, _WIDTH, initial_indent="  - ", subsequent_indent="    ")


def as_json(load: Workload, plan: Plan, coefficients: Coefficients) -> dict[str, object]:
    """Return a plan for machines: numbers in the units of their names, spreads as low, likely, high."""
    return {
        "fits_one_process": plan.fits_one_process,
        **asdict(plan),
        "workload": {
            "calls_per_s": load.traffic.calls_per_s,
            "peak": load.traffic.peak,
            "spans": load.traffic.spans,
            "call_bytes": load.traffic.call_bytes,
            "rate": load.traffic.rate,
            "kept": load.traffic.kept_share,
            "judge": load.judge.name,
            "judge_calls": load.judge.calls,
            "judge_latency_s": load.judge.latency_s,
            "concurrency": load.concurrency,
        },
        "measured": asdict(coefficients.measured),
    }


def _title(load: Workload) -> str:
    traffic = load.traffic
    peak = traffic.calls(at_peak=True)
    text = (
        f"{_short(traffic.calls_per_s)} calls/s on average, {_short(peak)} at the peak;"
        f" {_percent(traffic.rate)} judged by {one_line(load.judge.name)}"
    )
    return textwrap.fill(text, _WIDTH)


def _answer(
    load: Workload, plan: Plan, coefficients: Coefficients, config: CollectorConfig | None
) -> Iterator[str]:
    single = plan.single
    if plan.fits_one_process:
        yield "One process with SQLite is enough: you need nothing more."
        if load.concurrency is not None and load.concurrency < single.concurrency:
            yield (
                f"Set `evaluate.concurrency` and `judge.max_concurrency` to {single.concurrency}:"
                f" {load.concurrency} are too few for this judge."
            )
        elif load.concurrency is None and plan.peak.in_flight:
            yield f"`evaluate.concurrency` and `judge.max_concurrency`: {single.concurrency}."
    else:
        yield f"One process is not enough: {'; '.join(single.objections)}."
        yield _instead(load, plan, coefficients)
    yield from _limits(plan, config)


def _instead(load: Workload, plan: Plan, coefficients: Coefficients) -> str:
    cluster = plan.cluster
    several = (
        f"several processes over Kafka (docs/scale.md): {cluster.partitions} partitions,"
        f" {cluster.ingest.likely} with `role: ingest`, {cluster.evaluate.likely} with `role: evaluate`."
    )
    rate = _fitting_rate(load, coefficients)
    return f"Judge less (`--rate {rate:.2g}` fits into one), or run {several}" if rate else f"Run {several}"


def _fitting_rate(load: Workload, coefficients: Coefficients) -> float:
    """Return the highest rate, in two digits, that one process can take; 0 if there is none."""
    low, high = 0.0, load.traffic.rate
    for _ in range(_STEPS):
        middle = (low + high) / 2
        tried = replace(load, traffic=replace(load.traffic, rate=middle))
        low, high = (middle, high) if plan_capacity(tried, coefficients).fits_one_process else (low, middle)
    return float(f"{0.95 * low:.2g}")


def _limits(plan: Plan, config: CollectorConfig | None) -> Iterator[str]:
    """Tell which limits of the configuration are too low."""
    if config is None:
        return
    wanted, store = plan.single.store_bytes.likely * _SPARE, config.store.max_bytes
    if plan.fits_one_process and wanted > store:
        yield (
            f"`store.max_bytes` is {_bytes(store)}: set at least {_bytes(wanted)}, or what is finished is"
            " forgotten early."
        )
    limit = config.budget.live.day.usd
    if limit is not None and plan.daily.usd is not None and plan.daily.usd.likely > limit:
        yield (
            f"`budget.live.day.usd` is {limit:g}: enough for"
            f" {float(limit) / plan.daily.usd.likely:.0%} of these answers."
        )


def _peak(plan: Plan) -> Iterator[str]:
    peak = plan.peak
    yield "at the peak, a second"
    yield _row("spans", _short(peak.spans), f"{_bytes(peak.bytes)}")
    yield _row("evaluations", _short(peak.evaluations))
    yield _row("requests to the judge", _short(peak.judge_requests))
    yield _row("requests in flight", _short(peak.in_flight), "a second, times latency")


def _single(plan: Plan) -> Iterator[str]:
    single = plan.single
    yield "one process with SQLite" if plan.fits_one_process else "one process would need"
    yield _spread("cores, in all", single.cores)
    yield _spread("  receiving", single.receive_cores)
    yield _spread("  judging", single.judge_cores)
    yield _spread("memory", single.memory_bytes, _bytes)
    yield _spread("store", single.store_bytes, _bytes)
    yield _spread("  + an hour without the judge", plan.outage_bytes, _bytes)


def _cluster(plan: Plan) -> Iterator[str]:
    cluster = plan.cluster
    yield "with store: kafka://… (what topics take on disk is assumed, not measured)"
    yield _count("ingest processes", cluster.ingest)
    yield _spread("  cores, in all", cluster.ingest_cores)
    yield _count("evaluate processes", cluster.evaluate)
    yield _spread("  cores, in all", cluster.evaluate_cores)
    yield _row("  evaluate.concurrency of each", str(cluster.concurrency))
    yield _spread("  memory of each", cluster.memory_bytes, _bytes)
    yield _spread("  disk of each", cluster.cache_bytes, _bytes)
    yield _row("partitions", str(cluster.partitions))
    yield _spread("topic of spans, all copies", cluster.spans_topic_bytes, _bytes)
    yield _spread("topic of state, all copies", cluster.state_topic_bytes, _bytes)


def _daily(plan: Plan) -> Iterator[str]:
    daily = plan.daily
    yield "a day of average traffic"
    yield _row("evaluations", _short(daily.evaluations))
    yield _row("requests to the judge", _short(daily.calls))
    yield _spread("tokens in", daily.input_tokens)
    yield _spread("tokens out", daily.output_tokens)
    if daily.usd is None:
        yield _row("cost", "unknown", "give --judge-usd or --prices")
    else:
        yield _spread("cost", daily.usd, dollars)


def _assumptions(load: Workload, plan: Plan, coefficients: Coefficients) -> Iterator[str]:
    traffic, judge, measured = load.traffic, load.judge, coefficients.measured
    yield f"The busiest minutes have {_short(traffic.peak)} times the average (--peak)."
    yield (
        f"A call has {_short(traffic.spans)} spans, {_bytes(traffic.call_bytes)} in all"
        f" (--spans, --call-size); {_percent(traffic.kept_share)} of the traces are stored."
    )
    if judge.calls:
        yield (
            f"An evaluation makes {_short(judge.calls)} requests, one after the other, of"
            f" {_short(judge.latency_s)} s; retries and canary repeats are not counted."
        )
        yield "Tokens are estimated by the length of RAGTruth's answers unless you give them."
    yield (
        f"CPU, memory and disk: measured {measured.date} on {measured.machine}, while others used"
        f" {measured.others:.0%} of it; CPU with a fifth less to three fifths more for other runs. Your"
        " machine and texts differ: `python -m tests.benchmarks.capacity` measures again."
    )
    yield (
        f"A process uses at most {USABLE_CORE:.0%} of a core at the peak. If one may fail, run at least two"
        " of each role."
    )
    if not plan.fits_one_process:
        yield "Processes with `role: ingest` sample first. If others write the topic, it has all spans."
    yield "The judge's limits of requests and tokens a minute are not known here."


def _row(label: str, number: str, note: str = "") -> str:
    return f"  {label:<{_LABEL}}{number:>{_NUMBER}}   {note}".rstrip()


def _spread(label: str, spread: Spread, write: Callable[[float], str] | None = None) -> str:
    written = [(write or _short)(each) for each in (spread.low, spread.likely, spread.high)]
    note = f"{written[0]} to {written[2]}" if written[0] != written[2] else ""
    return _row(label, written[1], note)


def _count(label: str, count: ProcessCount) -> str:
    note = f"{count.low} to {count.high}" if count.low != count.high else ""
    return _row(label, str(count.likely), note)


def _short(number: float) -> str:
    """Write a number in three digits, or in all before its point: ``0.12``, ``1,500``, ``2.1 million``."""
    if number >= _MILLION:
        scale, name = (1e9, "billion") if number >= 1e9 else (_MILLION, "million")
        return f"{_short(number / scale)} {name}"
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _percent(share: float) -> str:
    return "all" if share == 1 else f"{share * 100:.3g}%"


def _bytes(number: float) -> str:
    size, unit = next((each for each in _SIZES if number >= each[0]), (1.0, "B"))
    return f"{_short(number / size)} {unit}"


def _filled(text: str, indent: str) -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
