"""Work on a store: a trace from its spans to its carrier, and what it says was acknowledged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ragtrace.answers.summary import AnswerKey
from ragtrace.model import Sample
from ragtrace.traces.otlp import SpanRef, TraceSlice, encode
from ragtrace_collector.store.records import Job, KeptCarrier
from ragtrace_collector.store.store import Store
from tests.rag_spans import rag_trace
from tests.unit.answers.rows import a_row

SINK: Final = "back end"
SPAN: Final = f"{0xB1:016x}"
CARRIER: Final = f"{0xC1:016x}"
SAMPLE: Final = Sample(rule="ratio", rate=1.0, probability=1.0)


def payload_of(trace_id: str) -> bytes:
    return f"spans of {trace_id}".encode()


def carrier_of(trace_id: str) -> bytes:
    return f"carrier of {trace_id}".encode()


def kept_of(trace_id: str) -> KeptCarrier:
    summary = replace(a_row(), key=AnswerKey(trace_id, SPAN), carrier_span_id=CARRIER)
    span = replace(rag_trace(0)[0], trace_id=trace_id, span_id=CARRIER)
    return KeptCarrier(summary=summary, payload=encode([span]))


async def follow_trace(store: Store, trace_id: str, say: Callable[[str, str], None]) -> None:
    """Take a trace from its spans to its carrier; say each change that was acknowledged."""
    ref = SpanRef(span_id=SPAN, parent_span_id=None)
    part = TraceSlice(trace_id=trace_id, payload=payload_of(trace_id), spans=(ref,))
    await store.append([part], forward={SINK: payload_of(trace_id)}, now_ns=1)
    say("appended", trace_id)
    job = Job(trace_id=trace_id, span_id=SPAN, sample=SAMPLE)
    await store.decide_trace(trace_id, jobs=[job], outcomes=[], keep_spans=True, now_ns=2)
    say("decided", trace_id)
    for taken in await store.take_jobs(1, now_ns=3):
        carriers = {SINK: carrier_of(taken.trace_id)}
        await store.finish(
            taken, "judged", outbox_items=carriers, now_ns=4, carrier=CARRIER, kept=kept_of(trace_id)
        )
        say("judged", taken.trace_id)
