"""What every work store promises of held traces, run on each adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from ragtrace.model import Sample
from ragtrace.traces.attach import add_to_spans, encode_addition
from ragtrace.traces.otlp import SpanRef, TraceSlice, encode
from ragtrace.traces.trace import Span
from ragtrace_collector.store.records import HoldMode, Job, ReleasedTraces
from ragtrace_collector.store.store import Store
from tests.rag_spans import rag_trace
from tests.stores.place import Place

ROOT, RETRIEVAL, GENERATION = rag_trace(0)
JOB = Job(
    trace_id=ROOT.trace_id, span_id=ROOT.span_id, sample=Sample(rule="ratio", rate=1.0, probability=1.0)
)
ADDITION = encode_addition({"ragtrace.pass": True})
CARRIERS = {"back end": b"carrier", "other": b"carrier"}
PLENTY = 1 << 40
FORWARD_TO = ["back end"]


def part(*spans: Span) -> TraceSlice:
    refs = tuple(SpanRef(span_id=span.span_id, parent_span_id=span.parent_span_id) for span in spans)
    return TraceSlice(trace_id=spans[0].trace_id, payload=encode(spans), spans=refs)


@pytest.fixture
async def store(place: Place) -> AsyncIterator[Store]:
    opened = await place.open(forward_to=FORWARD_TO)
    yield opened
    await opened.aclose()


async def hold(store: Store, *spans: Span, holding: HoldMode = HoldMode.NEW, now_ns: int = 10) -> None:
    await store.append([part(*spans)], forward={}, now_ns=now_ns, holding=holding)


async def settle(store: Store, *jobs: Job) -> None:
    await store.decide_trace(ROOT.trace_id, jobs=jobs, outcomes=[], keep_spans=bool(jobs), now_ns=20)


async def finish(store: Store, job: Job = JOB, addition: bytes = ADDITION) -> bool:
    outbox_items = CARRIERS if addition else {}
    return await store.finish(job, "judged", outbox_items=outbox_items, now_ns=30, addition=addition)


async def sent_to(store: Store, sink: str = "back end") -> list[bytes]:
    return [outbox_item.payload for outbox_item in await store.outbox_items(sink, 200)]


async def test_the_last_answer_to_end_releases_its_trace_with_what_was_added(store: Store) -> None:
    second = replace(JOB, span_id=GENERATION.span_id)
    await hold(store, ROOT, GENERATION)
    await settle(store, JOB, second)
    assert await finish(store)
    assert await sent_to(store) == []
    await finish(store, second, b"")
    added = {ROOT.span_id: ADDITION}
    assert await sent_to(store) == [add_to_spans(encode([ROOT, GENERATION]), added)]


async def test_the_traces_that_waited_longest_go_on_where_too_much_is_held(store: Store) -> None:
    traces = [rag_trace(number) for number in range(4)]
    for number, spans in enumerate(traces):
        await hold(store, *spans, now_ns=10 + number)
    size = len(encode(traces[0]))
    released = await store.release(before_ns=0, now_ns=20, most_bytes=2 * size)
    assert released == ReleasedTraces(overdue=0, surplus=2)
    assert await sent_to(store) == [encode(traces[0]), encode(traces[1])]


async def test_what_waits_since_a_time_to_come_goes_on_because_the_clock_was_set_back(
    store: Store,
) -> None:
    await hold(store, ROOT, now_ns=1_000)
    assert await store.release(before_ns=0, now_ns=1_000, most_bytes=PLENTY) == ReleasedTraces(0, 0)
    assert await store.release(before_ns=0, now_ns=999, most_bytes=PLENTY) == ReleasedTraces(1, 0)


async def test_held_traces_are_there_after_a_restart_and_released_once(place: Place) -> None:
    first = await place.open(forward_to=FORWARD_TO)
    await hold(first, ROOT)
    await settle(first, JOB)
    await finish(first, addition=b"")  # released
    await hold(first, *rag_trace(1))
    await first.aclose()
    second = await place.open(forward_to=FORWARD_TO)
    for _ in range(2):
        await second.release(before_ns=10, now_ns=20, most_bytes=PLENTY)
    sent = await sent_to(second)
    await second.aclose()
    assert sent == [encode([ROOT]), encode(rag_trace(1))]


async def test_a_store_that_is_nearly_full_holds_no_more(place: Place) -> None:
    store = await place.open(max_bytes=2 << 20, forward_to=FORWARD_TO)
    await store.append([], forward={"other": bytes(1_700_000)}, now_ns=1)
    await hold(store, ROOT)
    sent = await sent_to(store)
    await store.aclose()
    assert sent == [encode([ROOT])]
