"""When answers are judged: traces in parts, clocks that are wrong, roots that stay open, too many spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace import semconv
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import encode, split_by_trace
from ragtrace.traces.trace import Span, SpanLink, Trace
from ragtrace_collector.config import CollectorConfig
from tests.integration.collector.running import config_of
from tests.integration.collector.stepping import StandingClock, Stepped, stepped_collector
from tests.rag_spans import rag_trace, trace_id_of

QUIET_S, DEADLINE_S = 5, 60
HOUR_NS = 3600 * 10**9
ROOT, RETRIEVAL, GENERATION = rag_trace(0)


def config(folder: Path, **assemble: Any) -> CollectorConfig:
    times = {"quiet_period": f"{QUIET_S}s", "deadline": f"{DEADLINE_S}s"}
    return config_of(folder, assemble={**times, **assemble}, judge={"use": "lexical"})


def call_in(session_id: str, number: int) -> Sequence[Span]:
    """Return the spans of a RAG call in a session that goes on, its own span last, as they are exported."""
    root, retrieval, generation = (
        replace(span, span_id=f"{number + 1:014x}{span.span_id[-2:]}") for span in rag_trace(0)
    )
    steps = [replace(span, parent_span_id=root.span_id) for span in (retrieval, generation)]
    return [*steps, replace(root, parent_span_id=session_id)]


async def judged(spans: Stepped) -> int:
    return (await spans.outcomes()).get("judged", 0)


@pytest.mark.parametrize("shift_ns", [-48 * HOUR_NS, 48 * HOUR_NS], ids=["in the past", "in the future"])
async def test_what_time_spans_say_it_is_does_not_matter(tmp_path: Path, shift_ns: int) -> None:
    shifted = replace(
        RETRIEVAL, start_ns=RETRIEVAL.start_ns - 10 * HOUR_NS, end_ns=RETRIEVAL.end_ns - 10 * HOUR_NS
    )
    parts = [
        replace(span, start_ns=span.start_ns + shift_ns, end_ns=span.end_ns + shift_ns)
        for span in (ROOT, shifted, GENERATION)
    ]
    async with stepped_collector(config(tmp_path)) as spans:
        await spans.send(*parts[1:])
        await spans.pass_time(QUIET_S)
        assert await judged(spans) == 0
        await spans.send(parts[0])
        await spans.pass_time(QUIET_S - 1)
        assert await judged(spans) == 0
        await spans.pass_time(1)
        assert await judged(spans) == 1


@pytest.mark.parametrize("leap_ns", [-HOUR_NS, HOUR_NS], ids=["back", "forth"])
async def test_a_clock_that_is_set_while_nothing_runs_neither_stalls_nor_rushes_a_trace(
    tmp_path: Path, leap_ns: int
) -> None:
    clock = StandingClock()
    async with stepped_collector(config(tmp_path), clock=clock) as spans:
        await spans.send(RETRIEVAL, GENERATION)
        await spans.pass_time(DEADLINE_S / 2)
    clock.wrong_by_ns += leap_ns
    async with stepped_collector(config(tmp_path), clock=clock) as spans:
        await spans.pass_time(DEADLINE_S - 1)
        assert await judged(spans) == 0
        await spans.send(ROOT)
        await spans.pass_time(QUIET_S)
        (carrier,) = spans.carriers()
    assert carrier.parent_span_id == ROOT.span_id


@pytest.mark.parametrize("leap_ns", [-HOUR_NS, HOUR_NS], ids=["back", "forth"])
async def test_a_clock_that_is_set_while_spans_are_waited_for_does_not_matter(
    tmp_path: Path, leap_ns: int
) -> None:
    async with stepped_collector(config(tmp_path)) as spans:
        await spans.send(RETRIEVAL, GENERATION)
        spans.clock.wrong_by_ns = leap_ns
        await spans.pass_time(DEADLINE_S - 1)
        assert await judged(spans) == 0
        await spans.send(ROOT)
        await spans.pass_time(QUIET_S)
        assert await judged(spans) == 1


async def test_late_spans_are_seen_after_a_crash_though_the_clock_was_set_back_before_them(
    tmp_path: Path,
) -> None:
    clock = StandingClock()
    async with stepped_collector(config(tmp_path), clock=clock) as spans:
        await spans.send(ROOT, GENERATION)
        await spans.pass_time(QUIET_S)
        late = split_by_trace(ExportTraceServiceRequest.FromString(encode([RETRIEVAL]))).slices
        await spans.collector.pipeline.store.append(late, forward={}, now_ns=clock.now_ns() - HOUR_NS)
    async with stepped_collector(config(tmp_path), clock=clock) as spans:
        await spans.pass_time(QUIET_S)
        assert await judged(spans) == 1


async def test_a_rag_call_is_judged_though_its_session_goes_on(tmp_path: Path) -> None:
    session = replace(ROOT, span_id="00000000000000ff", attributes={})
    async with stepped_collector(config(tmp_path)) as spans:
        for number in range(10):
            *steps, call = call_in(session.span_id, number)
            await spans.send(*steps)
            await spans.pass_time(QUIET_S)
            await spans.send(call)
            await spans.pass_time(QUIET_S)
            assert await judged(spans) == number + 1
        await spans.send(session)
        await spans.pass_time(QUIET_S)
        assert await spans.outcomes() == {"judged": 10}
        assert len(spans.carriers()) == 10


async def test_a_session_that_goes_on_is_known_after_a_crash(tmp_path: Path) -> None:
    clock = StandingClock()
    async with stepped_collector(config(tmp_path), clock=clock) as spans:
        await spans.send(*call_in("00000000000000ff", 0))
        await spans.pass_time(QUIET_S)
    async with stepped_collector(config(tmp_path), clock=clock) as spans:
        await spans.send(*call_in("00000000000000ff", 1))
        await spans.pass_time(QUIET_S)
        await spans.pass_time(QUIET_S)
        assert await spans.outcomes() == {"judged": 2}
        assert len(spans.carriers()) == 2


async def test_a_trace_of_too_many_spans_is_not_judged_on_a_part_of_them(tmp_path: Path) -> None:
    more = replace(RETRIEVAL, span_id="00000000000000b2")
    async with stepped_collector(config(tmp_path, max_spans_per_trace=3)) as spans:
        await spans.send(ROOT, RETRIEVAL, GENERATION)
        await spans.send(more)
        await spans.pass_time(QUIET_S)
        (carrier,) = spans.carriers()
        assert await spans.outcomes() == {"ineligible:incomplete": 1}
        assert spans.collector.counters.snapshot()["spans_over_limit"] == 1
    assert carrier.name == "evaluation skipped"
    assert carrier.attributes[semconv.EVAL_SKIP_REASON] == "incomplete"


async def test_what_was_judged_before_its_trace_grew_too_large_stays(tmp_path: Path) -> None:
    more = replace(RETRIEVAL, span_id="00000000000000b2")
    async with stepped_collector(config(tmp_path, max_spans_per_trace=3)) as spans:
        await spans.send(ROOT, RETRIEVAL, GENERATION)
        await spans.pass_time(QUIET_S)
        await spans.send(replace(more, attributes={}), more, replace(more, span_id="00000000000000b3"))
        await spans.send(replace(more, span_id="00000000000000b4"))
        await spans.pass_time(DEADLINE_S)
        assert await judged(spans) == 1


async def test_a_retrieval_in_a_linked_trace_is_not_taken_for_the_answers_own(tmp_path: Path) -> None:
    other = replace(RETRIEVAL, trace_id=trace_id_of(1), parent_span_id=None)
    linked = replace(ROOT, links=(SpanLink(trace_id=other.trace_id, span_id=other.span_id),))
    async with stepped_collector(config(tmp_path)) as spans:
        await spans.send(linked, GENERATION, other)
        await spans.pass_time(QUIET_S)
        assert await spans.outcomes() == {"ineligible:no_retrieval": 1}
    (record,) = extract_records(Trace.of(ROOT.trace_id, [linked, GENERATION])).records
    assert "linked to another trace" in record.gaps[0].detail


async def test_a_late_part_of_another_service_finds_what_came_before_it(
    tmp_path: Path,
) -> None:
    root = replace(ROOT, attributes={}, name="GET /page")
    async with stepped_collector(config(tmp_path)) as spans:
        await spans.send(root, RETRIEVAL)
        await spans.pass_time(QUIET_S)
        assert await spans.outcomes() == {}
        await spans.send(GENERATION)
        await spans.pass_time(QUIET_S)
        (carrier,) = spans.carriers()
    assert carrier.attributes[semconv.CONTEXT_COUNT] == 1
