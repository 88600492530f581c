"""Traces built to be slow: what one costs is proportional to its spans, in whatever shape they hang."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ragtrace import semconv
from ragtrace.traces.attach import record_sha256
from ragtrace.traces.extract import ExtractRules
from ragtrace.traces.otlp import encode, parse_request, split_by_trace
from ragtrace.traces.trace import Lineage
from ragtrace_collector.assemble import AssemblePolicy, Assembly, TraceAnswers, _answers
from ragtrace_collector.store.records import StoredSpans
from tests.attack.graph_shapes import SHAPES
from tests.attack.steps import Steps, counted_steps
from tests.integration.collector.running import config_of
from tests.integration.collector.stepping import stepped_collector
from tests.rag_spans import trace_id_of

SIZE = 60
MOST_GROWTH = 2.2
"""What a trace of twice the size may cost, in instructions."""
MOST_GROWTH_OF_ONE = 2.7
"""The same of any function by itself: less than the 4 of a square, more than chance makes of 2."""
FEW = 1_000
"""Instructions of a function that says nothing about how it grows."""
TRACE_ID = f"{1:032x}"
_ABSENT = "ff" * 8
POLICY = AssemblePolicy(quiet_ns=10, deadline_ns=1_000, max_open_traces=10)


class Clock:
    time_ns = 0


def wait_for_spans(slices: Sequence[bytes], clock: Clock) -> None:
    """Take in a trace as a receiver does, look for calls that are whole, and then for all there is."""
    assembly = Assembly(POLICY, monotonic_ns=lambda: clock.time_ns)
    for body in slices:
        for part in split_by_trace(parse_request(body, encoding="protobuf"), body=body).slices:
            assert not assembly.has_all(part.trace_id, part.spans)
            assert assembly.has_room(part.trace_id, part.spans)
            assembly.add(part.trace_id, part.spans)
    for _ in range(3):
        clock.time_ns += 400
        list(assembly.take_ready())
    assert not len(assembly)


def use_answers(answers: TraceAnswers) -> None:
    """Ask of the answers all that is asked from when they are settled until they are judged."""
    found = [each.target.span_id for each in answers.records if each.target]
    answers.of_calls(frozenset(found[::2]))
    assert len(answers.moved()) == len(answers.stored.answers)
    for span_id in found:
        record = answers.of(span_id)
        assert record is not None
        assert record_sha256(record) == answers.judged(span_id).record_sha256
        answers.is_evaluation(span_id)


def steps_of(shape: str, size: int) -> Steps:
    """Count what a trace costs: taken in, waited for, read, and asked about."""
    spans = list(SHAPES[shape](size))
    gone = tuple(span.span_id for span in spans if span.name == "step") or (_ABSENT,)
    random.Random(1).shuffle(spans)  # half of them come before their parents
    slices = (encode(spans[: size // 2]), encode(spans[size // 2 :]))
    with counted_steps() as steps:
        wait_for_spans(slices, Clock())
        use_answers(_answers(TRACE_ID, StoredSpans(payloads=slices, slices=2, answers=gone), ExtractRules()))
    return steps


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_a_trace_of_twice_the_size_costs_twice_as_much_in_any_shape(shape: str) -> None:
    steps_of(shape, 20)  # what is made once and kept
    once, twice = (steps_of(shape, size) for size in (SIZE, 2 * SIZE))
    assert twice.total <= MOST_GROWTH * once.total
    growth = {name: number / max(once.by_function[name], FEW) for name, number in twice.by_function.items()}
    assert {name: by for name, by in growth.items() if by > MOST_GROWTH_OF_ONE} == {}


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_eight_chains_of_4900_spans_are_judged_by_the_process_that_is_killed_and_the_next(
    tmp_path: Path,
) -> None:
    config = config_of(tmp_path, assemble={"quiet_period": "1s"})
    async with stepped_collector(config) as first:
        for number in range(8):
            chain = [replace(span, trace_id=trace_id_of(number)) for span in SHAPES["chain"](4_900)]
            await first.send(*chain)
            if number == 3:
                await first.pass_time(2)
        assert await first.outcomes() == {"judged": 4}
    async with stepped_collector(config, clock=first.clock) as second:
        await second.pass_time(1)
        await second.pass_time(2)
        assert await second.outcomes() == {"judged": 8}
        assert second.collector.counters.snapshot()["traces_poison"] == 0
    carriers = second.carriers()
    assert sorted(span.trace_id for span in carriers) == [trace_id_of(number) for number in range(8)]
    assert {span.attributes[semconv.EVAL_STATUS] for span in carriers} == {"ok"}


def test_a_walk_for_each_span_would_be_seen() -> None:
    """What counts the steps sees a quadratic one."""
    lineage = Lineage({str(number): str(number + 1) for number in range(400)})

    def walk(size: int) -> int:
        with counted_steps() as steps:
            for number in range(size):
                list(lineage.line(str(400 - number)))
        return steps.total

    assert walk(400) > 3 * walk(200)
