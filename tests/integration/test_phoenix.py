"""Traces in a real Phoenix: they are read whole, and scores go onto the spans they are about."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import count

import pytest

from ragtrace import semconv
from ragtrace.backends import open_carrier_sink, open_reader
from ragtrace.backends.http_api import windows
from ragtrace.backends.phoenix import PhoenixReader
from ragtrace.errors import SendRejected
from ragtrace.model import RagRecord, Sample
from ragtrace.ports import TraceQuery
from ragtrace.traces.attach import AttachOptions, carrier
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span, Trace
from tests.backends.phoenix_server import Phoenix
from tests.rag_spans import rag_trace
from tests.unit.traces.builders import a_record, a_result, an_evaluation
from tests.unit.traces.recordings import all_recordings

NAMES = (
    *("haystack.haystack-hybrid", "langfuse.langfuse-langchain", "llamaindex.llamaindex"),
    *("openinference.langchain", "openinference.langchain-agent", "openinference.two-services"),
    *("openllmetry.chroma", "otel-genai.openai-chat", "ragtrace.openai-chat", "vercel.generate"),
)
_SECOND_NS = 10**9
_numbers = count(time.time_ns() % 10**12 * 1_000)


def told(records: Sequence[RagRecord]) -> list[RagRecord]:
    """Leave out what Phoenix does not keep: resources, flags, and times below a microsecond.

    It also writes its own convention beside others, and may be read by it.
    """
    return [replace(record, target=None, provenance=(), passed_over=()) for record in records]


@pytest.mark.parametrize("name", NAMES)
async def test_phoenix_and_a_file_give_the_same_record(name: str, phoenix: Phoenix) -> None:
    (recording,) = (each for each in all_recordings() if each.name == name)
    phoenix.store(recording.spans, project=name)
    (trace_id,) = {span.trace_id for span in recording.spans}
    async with aclosing(open_reader(f"phoenix:{phoenix.url}")) as reader:
        found = await reader.get(trace_id)
    assert found is not None
    stored = Trace.of(trace_id, recording.spans)
    assert [(span.span_id, span.parent_span_id, span.name, span.status_code) for span in found.spans] == [
        (span.span_id, span.parent_span_id, span.name, span.status_code) for span in stored.spans
    ]
    assert max(abs(a.start_ns - b.start_ns) for a, b in zip(found.spans, stored.spans, strict=True)) <= 1_000
    assert told(extract_records(found).records) == told(extract_records(stored).records)


def some_traces(number: int, *, first_ns: int, apart_ns: int = _SECOND_NS) -> Iterator[tuple[Span, ...]]:
    """Make traces with span ids of their own, which Phoenix tells spans apart by."""
    for each in range(number):
        spans = rag_trace(next(_numbers), start_ns=first_ns + each * apart_ns)
        named = {span.span_id: f"{next(_numbers):016x}" for span in spans}
        yield tuple(
            replace(span, span_id=named[span.span_id], parent_span_id=named.get(span.parent_span_id or ""))
            for span in spans
        )


def stored(phoenix: Phoenix, project: str, traces: Iterator[tuple[Span, ...]]) -> list[tuple[Span, ...]]:
    sent = list(traces)
    phoenix.store([span for spans in sent for span in spans], project=project)
    return sent


async def searched(phoenix: Phoenix, query: TraceQuery, *, limit: int = 100) -> dict[str, Trace | None]:
    async with aclosing(PhoenixReader(phoenix.url, traces_at_once=limit)) as reader:
        return {key: trace async for each in windows(reader, query) for key, trace in each.found.items()}


@pytest.mark.parametrize("limit", [3, 100])
@pytest.mark.parametrize("apart_ns", [_SECOND_NS, 1_000], ids=["spread", "in one moment"])
async def test_search_finds_every_trace_whatever_the_page(
    phoenix: Phoenix, limit: int, apart_ns: int
) -> None:
    project, first_ns = f"windows-{limit}-{apart_ns}", time.time_ns() - 3_600 * _SECOND_NS
    sent = stored(phoenix, project, some_traces(20, first_ns=first_ns, apart_ns=apart_ns))
    query = TraceQuery(since_ns=first_ns - _SECOND_NS, until_ns=first_ns + 100 * _SECOND_NS, service=project)
    found = await searched(phoenix, query, limit=limit)
    assert sorted(found) == sorted(spans[0].trace_id for spans in sent)
    assert all(len(trace.spans) == 3 for trace in found.values() if trace)


async def test_phoenix_searches_by_project_operation_and_tag(phoenix: Phoenix) -> None:
    first_ns = time.time_ns() - 7_200 * _SECOND_NS
    sent = stored(phoenix, "tagged", some_traces(2, first_ns=first_ns))
    stored(phoenix, "another", some_traces(1, first_ns=first_ns))
    query = TraceQuery(since_ns=first_ns - _SECOND_NS, until_ns=first_ns + 10 * _SECOND_NS, service="tagged")
    for wanted, number in (
        (replace(query, service=None), 3),
        (replace(query, operation="retrieval faq"), 2),
        (replace(query, operation="nothing"), 0),
        (replace(query, tags={semconv.RAG_KIND: "retrieval"}), 2),
        (replace(query, tags={semconv.RAG_KIND: "true"}), 0),
        (replace(query, until_ns=sent[1][0].start_ns - 1_000_000), 1),
    ):
        found = await searched(phoenix, wanted)
        assert len(found) == number, wanted
        assert all(trace and len(trace.spans) == 3 for trace in found.values())


async def test_score_for_a_span_that_phoenix_has_not_is_rejected(phoenix: Phoenix) -> None:
    verdict = carrier(
        an_evaluation(a_result()),
        a_record(),
        sample=Sample(rule="ratio", rate=1, probability=1),
        options=AttachOptions(),
        now_ns=time.time_ns(),
    )
    async with aclosing(open_carrier_sink(f"phoenix:{phoenix.url}")) as sink:
        with pytest.raises(SendRejected, match="has no such span: send the traces there first"):
            await sink.send(encode([verdict]))
