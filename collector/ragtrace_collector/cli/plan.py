"""``ragtrace plan``: what traffic takes, before anything runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ragtrace.cli.extras import needs_extra
from ragtrace.cli.options import EXISTING_FILE, JsonOption
from ragtrace.cli.render import print_json
from ragtrace.cli.settings import command, group, option, section, takes
from ragtrace.cli.times import duration
from ragtrace.clock import SystemClock

if TYPE_CHECKING:
    from ragtrace.budget import Price
    from ragtrace_collector.capacity.coefficients import Spread
    from ragtrace_collector.capacity.workload import JudgeUse, Retention, Traffic, Workload
    from ragtrace_collector.config import CollectorConfig


_UNITS: Final = {"B": 1.0, "kB": 1e3, "MB": 1e6}
_JUDGE: Final = "openai:gpt-4o-mini"
_COMPUTED: Final = ("lexical", "nli", "scripted")
"""Judges that make no request."""
_CALLS: Final = 2.0
"""Of an evaluation by faithfulness: its claims, then their verdicts."""
_CALLS_OF_MANY: Final = 4.0
"""Of an evaluation by all six metrics (docs/migrating.md)."""


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("write a number, such as 12.5") from None


def _above_zero(text: str) -> float:
    number = _number(text)
    if not 0 < number < math.inf:
        raise ValueError("write a number above 0, such as 12.5")
    return number


def _from_zero(text: str) -> float:
    number = _number(text)
    if not 0 <= number < math.inf:
        raise ValueError("write a number that is not below 0, such as 0.002")
    return number


def _share(text: str) -> float:
    number = _number(text)
    if not 0 <= number <= 1:
        raise ValueError("write a share from 0 to 1, such as 0.1 for one answer in ten")
    return number


def _multiple(text: str) -> float:
    number = _number(text)
    if not 1 <= number < math.inf:
        raise ValueError("write a multiple of the average, at least 1")
    return number


def _size(text: str) -> float:
    digits = text.rstrip("BkM")
    unit = text[len(digits) :]
    if unit not in _UNITS:
        raise ValueError("write a size with its unit, such as 22kB or 1.5MB")
    return _above_zero(digits) * _UNITS[unit]


def _longer_than_zero(text: str) -> timedelta:
    found = duration(text)
    if not found:
        raise ValueError("write a duration longer than zero")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficOptions:
    """What comes in, and how much of it is judged."""

    calls_per_s: float = option(
        "--rps",
        parse=_above_zero,
        required=True,
        metavar="NUMBER",
        help="RAG calls a second, on average over a day.",
    )
    peak: float = option(
        "--peak",
        parse=_multiple,
        default="3",
        show_default=True,
        metavar="TIMES",
        help="The busiest minutes, as a multiple of the average. Processes are planned for these.",
    )
    spans: float = option(
        "--spans",
        parse=_above_zero,
        default="10",
        show_default=True,
        metavar="NUMBER",
        help="Spans of a call.",
    )
    size: float = option(
        "--call-size",
        parse=_size,
        default="22kB",
        show_default=True,
        metavar="SIZE",
        help="All spans of a call: question, chunks, prompt and answer make most of it.",
    )
    rate: float | None = option(
        "--rate",
        parse=_share,
        metavar="SHARE",
        help="The share of answers that is judged. [default: `sample.ratio`, or 1]",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeCostOptions:
    """What one evaluation takes of the judge."""

    name: str | None = option(
        "--judge",
        metavar="JUDGE",
        help=f"Whose prices are taken. [default: `judge.use`, or {_JUDGE}]",
    )
    latency: timedelta = option(
        "--judge-latency",
        parse=_longer_than_zero,
        default="2s",
        show_default=True,
        metavar="DURATION",
        help="How long a request takes.",
    )
    calls: float | None = option(
        "--judge-calls",
        parse=_above_zero,
        metavar="NUMBER",
        help="Requests of an evaluation, one after the other. [default: 2, with several metrics 4]",
    )
    input_tokens: float | None = option(
        "--tokens-in", parse=_from_zero, metavar="NUMBER", help="Prompt tokens of an evaluation."
    )
    output_tokens: float | None = option(
        "--tokens-out", parse=_from_zero, metavar="NUMBER", help="Reply tokens of an evaluation."
    )
    usd: float | None = option(
        "--judge-usd",
        parse=_from_zero,
        metavar="USD",
        help="What an evaluation costs. [default: by its tokens and the judge's prices]",
    )
    prices: Path | None = option(
        "--prices",
        type=EXISTING_FILE,
        metavar="FILE",
        help="Prices that override the built-in ones. [default: `judge.prices`]",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepOptions:
    """How processes are set, and how long they keep what."""

    config: Path | None = option(
        "--config",
        type=EXISTING_FILE,
        metavar="FILE",
        help="A collector's configuration: its rates, judge, concurrency and retention.",
    )
    concurrency: int | None = option(
        "--concurrency",
        type=click.IntRange(min=1),
        metavar="N",
        help="Evaluations at once in a process. [default: as configured, or as many as it takes]",
    )
    retention: timedelta | None = option(
        "--retention",
        parse=_longer_than_zero,
        metavar="DURATION",
        help="How long outcomes of answers are kept. [default: `store.retention`, or 7d]",
    )
    answers: timedelta | None = option(
        "--keep-answers",
        parse=_longer_than_zero,
        metavar="DURATION",
        help="How long judged answers stay on the page. [default: `index.max_age`, or 90d]",
    )
    spans_topic: timedelta = option(
        "--topic-retention",
        parse=_longer_than_zero,
        default="1d",
        show_default=True,
        metavar="DURATION",
        help="With Kafka: how long spans stay in their topic, longer than evaluators may be away.",
    )
    replication: int = option(
        "--replication",
        type=click.IntRange(min=1),
        default=3,
        show_default=True,
        metavar="N",
        help="With Kafka: copies of each topic.",
    )
    json: JsonOption = group(JsonOption)


@command()
@takes(
    traffic=section("The traffic", TrafficOptions),
    judge=section("The judge", JudgeCostOptions),
    keep=KeepOptions,
)
def plan(traffic: TrafficOptions, judge: JudgeCostOptions, keep: KeepOptions) -> None:
    """Say what traffic takes: processes, cores, memory, disk and money.

    Most traffic needs one process with SQLite, and the plan says so. The numbers come from benchmarks of one
    machine, each with its spread. Nothing is started or asked.

    \b
    Examples:
      ragtrace plan --rps 5 --judge-latency 1.5s
      ragtrace plan --rps 200 --rate 0.1 --judge openai:gpt-4o-mini
      ragtrace plan --rps 50 --config collector.yaml --json | jq .daily.usd
    """
    with needs_extra("collector"):
        from ragtrace_collector.capacity.coefficients import load_coefficients
        from ragtrace_collector.capacity.plan import plan_capacity
        from ragtrace_collector.cli._plan_text import as_json, lines
    config = _config(keep.config)
    coefficients = load_coefficients()
    load = _workload(traffic, judge, keep, config)
    found = plan_capacity(load, coefficients)
    if keep.json.wanted:
        print_json(as_json(load, found, coefficients))
        return
    for line in lines(load, found, coefficients, config):
        click.echo(line)


def _config(file: Path | None) -> CollectorConfig | None:
    if file is None:
        return None
    from ragtrace_collector.config import load_config

    return load_config(file)


def _workload(
    traffic: TrafficOptions, judge: JudgeCostOptions, keep: KeepOptions, config: CollectorConfig | None
) -> Workload:
    from ragtrace_collector.capacity.workload import Workload

    return Workload(
        traffic=_traffic(traffic, config),
        judge=_judge_use(judge, config),
        retention=_retention(keep, config),
        concurrency=keep.concurrency or _concurrency(config),
    )


def _concurrency(config: CollectorConfig | None) -> int | None:
    return None if config is None else min(config.evaluate.concurrency, config.judge.max_concurrency)


def _traffic(options: TrafficOptions, config: CollectorConfig | None) -> Traffic:
    from ragtrace_collector.capacity.workload import Traffic

    found = Traffic(
        calls_per_s=options.calls_per_s,
        peak=options.peak,
        spans=options.spans,
        call_bytes=options.size,
        rate=1.0 if options.rate is None else options.rate,
    )
    if config is None:
        return found
    sample = config.sample
    follow_ups = sample.neighbours.rate if sample.neighbours else 0.0
    floor = 1.0 if sample.tenant_floor else 0.0
    return replace(
        found,
        rate=sample.ratio if options.rate is None else options.rate,
        kept=max(sample.plan().highest_rate, follow_ups, floor) if _is_ruled(config) else None,
        most_per_minute=sample.limit.answers if sample.limit else None,
    )


def _is_ruled(config: CollectorConfig) -> bool:
    """Say whether more than the ratio decides which spans are stored."""
    sample = config.sample
    return bool(
        sample.rules or sample.on_request or sample.suspicion or sample.tenant_floor or sample.neighbours
    )


def _judge_use(options: JudgeCostOptions, config: CollectorConfig | None) -> JudgeUse:
    from ragtrace_collector.capacity.coefficients import Spread, load_coefficients
    from ragtrace_collector.capacity.workload import JudgeUse

    name = options.name or (config.judge.asked_and_screen()[0] if config else _JUDGE)
    nothing, assumed = Spread.of(0.0), load_coefficients()
    if name.partition(":")[0] in _COMPUTED:
        cpu_ms = assumed.lexical_ms if name == "lexical" else nothing
        return JudgeUse(
            name=name,
            calls=0.0,
            latency_s=0.0,
            cpu_ms=cpu_ms,
            input_tokens=nothing,
            output_tokens=nothing,
            usd=nothing,
        )
    calls = options.calls or (_CALLS_OF_MANY if config and len(config.evaluate.metrics) > 1 else _CALLS)
    tokens = [
        assumed_tokens * (calls / _CALLS) if given is None else Spread.of(given)
        for given, assumed_tokens in (
            (options.input_tokens, assumed.input_tokens),
            (options.output_tokens, assumed.output_tokens),
        )
    ]
    return JudgeUse(
        name=name,
        calls=calls,
        latency_s=options.latency.total_seconds(),
        cpu_ms=nothing,
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        usd=_usd(options, name, tokens, config),
    )


def _usd(
    options: JudgeCostOptions, name: str, tokens: list[Spread], config: CollectorConfig | None
) -> Spread | None:
    """Return what an evaluation costs; ``None`` if the judge has no price."""
    from ragtrace_collector.capacity.coefficients import Spread

    if options.usd is not None:
        return Spread.of(options.usd)
    if name.startswith("llama:"):
        return Spread.of(0.0)
    price = _price(options.prices or (config.judge.prices if config else None), name)
    if price is None:
        return None
    return tokens[0] * (price.input / 1e6) + tokens[1] * (price.output / 1e6)


def _price(file: Path | None, name: str) -> Price | None:
    from ragtrace.budget import load_prices
    from ragtrace.model import JudgeIdentity

    provider, _, model = name.partition(":")
    return load_prices(file, clock=SystemClock()).price_of(JudgeIdentity(provider=provider, model=model))


def _retention(keep: KeepOptions, config: CollectorConfig | None) -> Retention:
    from ragtrace_collector.capacity.workload import Retention

    found = Retention(spans_topic=keep.spans_topic, replicas=keep.replication)
    if config is not None:
        found = replace(
            found,
            linger=config.assemble.linger,
            quiet_period=config.assemble.quiet_period,
            outcomes=config.store.retention,
            answers=config.index.max_age,
            most_rows=config.most_index_rows if config.index.enabled else 0,
        )
    return replace(found, outcomes=keep.retention or found.outcomes, answers=keep.answers or found.answers)
