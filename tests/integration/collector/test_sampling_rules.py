"""Rules in a collector: what is judged, what the ledger says of the rest, and what a restart keeps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragtrace import semconv
from ragtrace.model import AttributeValue
from ragtrace.traces.otlp import encode_json
from ragtrace.traces.trace import Span, StatusCode
from ragtrace_collector.service.collector import Collector, open_collector
from tests.integration.cli.program import run
from tests.integration.collector.running import carriers_in, config_of, request_of
from tests.integration.collector.stepping import StandingClock, evaluate_next
from tests.rag_spans import rag_trace, trace_id_of

MINUTE_NS = 60 * 10**9
WRONG = "Refunds take 99 days."


@asynccontextmanager
async def at(clock: StandingClock, folder: Path, **sample: Any) -> AsyncIterator[Collector]:
    """Open a collector that works when it is told to, at the time that is set."""
    config = config_of(folder, sample=sample, judge={"use": "lexical"})
    async with open_collector(config, clock=clock) as collector:
        yield collector


async def take(collector: Collector, *traces: tuple[Span, ...]) -> None:
    """Take traces in, and settle them."""
    spans = [span for trace in traces for span in trace]
    await collector.pipeline.intake.accept(request_of(*spans), encoding="protobuf")
    await collector.pipeline.sample_stage.step(everything=True)


async def judge(collector: Collector, folder: Path) -> Mapping[str, Span]:
    """Judge and deliver what is queued; return all carriers so far, by trace id."""
    while await evaluate_next(collector):
        pass
    for deliverer in collector.pipeline.deliverers:
        await deliverer.step()
    return {carrier.trace_id: carrier for carrier in carriers_in(folder / "out.jsonl")}


def trace_of(
    number: int, *, answer: str = "Refunds take 14 days.", **attributes: AttributeValue
) -> tuple[Span, ...]:
    root, *steps = rag_trace(number, answer=answer)
    return (replace(root, attributes={**root.attributes, **attributes}), *steps)


async def accounts(collector: Collector) -> Mapping[tuple[str, str], int]:
    """Return the ledger by outcome and rule."""
    found: dict[tuple[str, str], int] = {}
    ledger = await collector.pipeline.store.ledger()
    assert ledger.adds_up
    for account in ledger.accounts:
        key = (account.outcome, account.rule)
        if account.number and account.state != "seen":
            found[key] = found.get(key, 0) + account.number
    return found


@pytest.mark.parametrize(("on_request", "judged"), [(False, set()), (True, {2, 4})])
async def test_an_application_turns_evaluation_of_a_call_off_and_on(
    tmp_path: Path, clock: StandingClock, on_request: bool, judged: set[int]
) -> None:
    rules = [{"name": "gold", "attributes": {"ragtrace.metadata.tier": "gold"}}]
    root, retrieval, generation = rag_trace(4)
    inner = replace(retrieval, attributes={**retrieval.attributes, semconv.EVALUATE: "true"})
    gold = {"ragtrace.metadata.tier": "gold"}
    async with at(clock, tmp_path, ratio=0.0, rules=rules, on_request=on_request) as collector:
        await take(
            collector,
            trace_of(0, **gold),
            trace_of(1, **gold, **{semconv.EVALUATE: False}),
            trace_of(2, **{semconv.EVALUATE: True}),
            trace_of(3, **{semconv.EVALUATE: "false"}),
            (root, inner, generation),
        )
        found = await judge(collector, tmp_path)
        counted = await accounts(collector)
    assert set(found) == {trace_id_of(number) for number in (0, *judged)}
    asked = [found[trace_id_of(number)].attributes for number in judged]
    assert {told[semconv.SAMPLE_RULE] for told in asked} <= {"application"}
    assert {told[semconv.SAMPLE_PROBABILITY] for told in asked} <= {1.0}
    assert counted["filtered", "application"] == 2


@pytest.fixture
def clock() -> StandingClock:
    clock = StandingClock()
    clock.time_ns -= clock.time_ns % MINUTE_NS
    return clock


async def test_each_answer_is_judged_by_the_rule_that_names_it(tmp_path: Path, clock: StandingClock) -> None:
    rules = [
        {"name": "errors", "status": "error"},
        {"name": "gold", "attributes": {"ragtrace.metadata.tier": "gold"}},
        {"name": "slow", "slower_than": "1m"},
        {"name": "probes", "attributes": {"ragtrace.metadata.probe": True}, "rate": 0},
    ]
    root, retrieval, generation = rag_trace(0)
    failed = (root, replace(retrieval, status_code=StatusCode.ERROR), generation)
    root, *steps = rag_trace(3)
    slow = (replace(root, end_ns=root.start_ns + 2 * MINUTE_NS), *steps)
    gold = {"ragtrace.metadata.tier": "gold"}
    async with at(clock, tmp_path, ratio=0.0, rules=rules) as collector:
        await take(
            collector,
            failed,
            trace_of(1, **gold),
            trace_of(2, **gold, **{"ragtrace.metadata.probe": True}),
            slow,
            trace_of(4),
        )
        found = await judge(collector, tmp_path)
        counted = await accounts(collector)
    assert {trace_id: carrier.attributes[semconv.SAMPLE_RULE] for trace_id, carrier in found.items()} == {
        trace_id_of(0): "errors",
        trace_id_of(1): "gold",
        trace_id_of(3): "slow",
    }
    assert counted[("filtered", "probes")] == 1
    assert counted[("sampled_out", "ratio")] == 1


async def test_a_restart_neither_lifts_a_limit_nor_changes_rates(
    tmp_path: Path, clock: StandingClock
) -> None:
    sample = {"limit": {"answers": 4}}
    async with at(clock, tmp_path, **sample) as collector:
        await take(collector, *(trace_of(number) for number in range(20)))
    async with at(clock, tmp_path, **sample) as collector:
        await take(collector, *(trace_of(number) for number in range(20, 30)))
        assert (await accounts(collector))[("queued", "ratio")] == 4
        clock.time_ns += MINUTE_NS
    async with at(clock, tmp_path, **sample) as collector:
        await take(collector, *(trace_of(number) for number in range(30, 60)))
        found = await judge(collector, tmp_path)
        assert (await accounts(collector))[("judged", "ratio")] <= 8
    # 30 came in the minute before, and half of so small a limit is aimed at
    expected = {trace_id_of(number): 2 / 30 for number in range(30, 60)}
    for trace_id, carrier in found.items():
        assert carrier.attributes[semconv.SAMPLE_PROBABILITY] == expected.get(trace_id, 1.0)
    assert found.keys() & expected.keys()


async def test_late_spans_of_what_was_left_out_bring_it_back_only_for_a_higher_rate(
    tmp_path: Path, clock: StandingClock
) -> None:
    rules = [
        {"name": "disliked", "attributes": {semconv.FEEDBACK_LABEL: "down"}},
        {"name": "errors", "status": "error"},
    ]
    root, retrieval, generation = rag_trace(0)
    more = replace(generation, span_id="00000000000000a9", name="embed", attributes={})
    async with at(clock, tmp_path, ratio=0.0, rules=rules) as collector:
        await take(collector, (root, retrieval, generation))
        await take(collector, (more,))
        assert (await accounts(collector)) == {("sampled_out", "ratio"): 1}
        await take(collector, (replace(more, span_id="00000000000000aa", status_code=StatusCode.ERROR),))
        (carrier,) = (await judge(collector, tmp_path)).values()
    assert carrier.attributes[semconv.SAMPLE_RULE] == "errors"
    assert semconv.SAMPLE_PROBABILITY not in carrier.attributes


GOOD = "The guarantee covers the frame for ten years, and refunds take 14 days after the parcel arrives."
BAD = "Refunds take 99 days. Customers praise the friendly staff in Hamburg and the free coffee they serve."


def grounded(number: int, *, is_good: bool) -> tuple[Span, ...]:
    """Return a call whose answer is one of its chunks, or not at all."""
    root, retrieval, *rest = rag_trace(number, chunks=(GOOD,), answer=GOOD if is_good else BAD)
    return (root, retrieval, *rest)


async def test_suspicious_answers_are_judged_more_often_with_a_known_probability(
    tmp_path: Path, clock: StandingClock
) -> None:
    suspicion = {"to": 1.0, "power": 3}
    async with at(clock, tmp_path, ratio=0.05, suspicion=suspicion) as collector:
        await take(collector, *(grounded(number, is_good=number % 2 == 0) for number in range(60)))
        found = await judge(collector, tmp_path)
        counted = await accounts(collector)
    good = [found[trace] for number in range(0, 60, 2) if (trace := trace_id_of(number)) in found]
    bad = [found[trace] for number in range(1, 60, 2) if (trace := trace_id_of(number)) in found]
    assert len(bad) > 20
    assert len(good) < 10
    for carrier in (*good, *bad):
        told = carrier.attributes
        assert told[semconv.SAMPLE_RULE] == "suspicion"
        assert told[semconv.SAMPLE_SUSPICION] == told[semconv.SUSPICION]
        expected = 0.05 + 0.95 * float(str(told[semconv.SUSPICION])) ** 3
        assert told[semconv.SAMPLE_PROBABILITY] == pytest.approx(expected)
    assert counted["sampled_out", "suspicion"] == 60 - len(found)


async def test_back_fill_chooses_what_the_collector_chose(tmp_path: Path, clock: StandingClock) -> None:
    traces = [grounded(number, is_good=number % 2 == 0) for number in range(40)]
    sample = {"ratio": 0.05, "suspicion": {"to": 0.8, "power": 2}}
    async with at(clock, tmp_path, **sample) as collector:
        await take(collector, *traces)
        live = await judge(collector, tmp_path)
    stored, out, file = tmp_path / "stored.jsonl", tmp_path / "back.jsonl", tmp_path / "sampling.yaml"
    stored.write_text("".join(f"{encode_json(trace)}\n" for trace in traces))
    file.write_text(json.dumps({"sample": sample}))
    places = ("--from", f"otlp-file:{stored}", "--to", f"otlp-file:{out}", "--progress", f"{out}.db")
    told = await asyncio.to_thread(
        run, "backfill", *places, "--sampling", str(file), "--judge", "lexical", "--yes"
    )
    assert told.exit_code == 0, told.stderr
    back = {carrier.trace_id: carrier for carrier in carriers_in(out)}
    keys = (semconv.SAMPLE_RULE, semconv.SAMPLE_PROBABILITY, semconv.SAMPLE_SUSPICION)
    assert back.keys() == live.keys()
    for trace, carrier in back.items():
        assert [carrier.attributes[key] for key in keys] == [live[trace].attributes[key] for key in keys]
