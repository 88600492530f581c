"""The same traffic, stored in a real Jaeger, a real Tempo and a file, is the same records."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from ragtrace.backends import open_reader
from ragtrace.backends.http_api import windows
from ragtrace.backends.jaeger import JaegerReader
from ragtrace.backends.tempo import TempoReader
from ragtrace.errors import ReadError
from ragtrace.model import RagRecord
from ragtrace.ports import TraceQuery, TraceReader, TraceSearch
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import encode, encode_json
from ragtrace.traces.trace import Span, Trace
from tests.backends.jaeger_server import Jaeger
from tests.backends.process import eventually
from tests.backends.tempo_server import Tempo
from tests.rag_spans import rag_trace
from tests.unit.traces.recordings import all_recordings

NAMES = (
    *("langfuse.langfuse-langchain", "llamaindex.llamaindex", "openinference.langchain"),
    *("openinference.two-services", "openllmetry.chroma", "ragtrace.openai-chat", "vercel.generate"),
)
"""Recordings of no longer strings than Tempo keeps."""


def stored(name: str) -> tuple[Span, ...]:
    (recording,) = (each for each in all_recordings() if each.name == name)
    return recording.spans


def send(url: str, spans: Sequence[Span]) -> None:
    headers = {"content-type": "application/x-protobuf"}
    httpx.post(f"{url}/v1/traces", content=encode(spans), headers=headers).raise_for_status()


async def records(reader: TraceReader, trace_id: str) -> tuple[RagRecord, ...]:
    async with aclosing(reader):
        trace = await reader.get(trace_id)
    assert trace is not None
    return without_flags(extract_records(trace).records)


def without_flags(found: tuple[RagRecord, ...]) -> tuple[RagRecord, ...]:
    """Leave out a span's flags: Tempo keeps them until the trace is written into a block."""
    return tuple(
        replace(record, target=replace(record.target, trace_flags=0) if record.target else None)
        for record in found
    )


@pytest.mark.parametrize("name", NAMES)
async def test_jaeger_tempo_and_a_file_give_the_same_record(
    name: str, jaeger: Jaeger, tempo: Tempo, tmp_path: Path
) -> None:
    spans = stored(name)
    trace_id = spans[0].trace_id
    (tmp_path / "traces.jsonl").write_text(encode_json(spans))
    for url in (jaeger.otlp_http, tempo.otlp_http):
        send(url, spans)
    jaeger.wait_for_trace(trace_id, spans=len(spans))
    tempo.wait_for_trace(trace_id, spans=len(spans))

    expected = without_flags(extract_records(Trace.of(trace_id, spans)).records)
    for source in (
        f"jaeger:{jaeger.query_url}",
        f"tempo:{tempo.url}",
        f"otlp-file:{tmp_path / 'traces.jsonl'}",
    ):
        assert await records(open_reader(source), trace_id) == expected, source


async def search_ids(reader: TraceSearch, query: TraceQuery) -> list[str]:
    async with aclosing(reader):
        return [trace_id async for window in windows(reader, query) for trace_id in window.found]


def send_some(url: str, *, service: str, number: int, first_ns: int) -> set[str]:
    """Send traces a second apart, and return their ids."""
    base = first_ns // 1_000 % 10**12 * 1_000  # ids of their own
    traces = [
        rag_trace(base + each, service=service, start_ns=first_ns + each * 10**9) for each in range(number)
    ]
    send(url, [span for spans in traces for span in spans])
    return {spans[0].trace_id for spans in traces}


async def test_search_in_jaeger_finds_every_trace_whatever_its_limit(jaeger: Jaeger) -> None:
    service, now_ns = "windows-jaeger", time.time_ns()
    sent = send_some(jaeger.otlp_http, service=service, number=40, first_ns=now_ns - 3_600 * 10**9)
    eventually(lambda: len(jaeger.search(service)) == len(sent), what="the traces in Jaeger")
    query = TraceQuery(since_ns=now_ns - 7_200 * 10**9, until_ns=now_ns, service=service)
    found = await search_ids(JaegerReader(jaeger.query_url, traces_at_once=3), query)
    assert sorted(found) == sorted(sent)


async def test_jaeger_searches_by_operation_and_tag(jaeger: Jaeger) -> None:
    service, now_ns = "tagged-jaeger", time.time_ns()
    sent = send_some(jaeger.otlp_http, service=service, number=3, first_ns=now_ns - 60 * 10**9)
    eventually(lambda: len(jaeger.search(service)) == len(sent), what="the traces in Jaeger")
    query = TraceQuery(since_ns=now_ns - 120 * 10**9, until_ns=now_ns, service=service)
    for wanted, number in (
        (replace(query, operation="retrieval faq"), 3),
        (replace(query, operation="nothing"), 0),
        (replace(query, tags={"ragtrace.kind": "retrieval"}), 3),
        (replace(query, tags={"ragtrace.kind": "nothing"}), 0),
        (replace(query, service="nobody"), 0),
        (replace(query, until_ns=now_ns - 90 * 10**9), 0),
    ):
        assert len(await search_ids(JaegerReader(jaeger.query_url), wanted)) == number, wanted


async def test_search_in_tempo_finds_every_trace_whatever_its_limit(tempo: Tempo) -> None:
    service, now_ns = "windows", time.time_ns()
    sent = send_some(tempo.otlp_http, service=service, number=30, first_ns=now_ns - 60 * 10**9)
    query = TraceQuery(since_ns=now_ns - 90 * 10**9, until_ns=now_ns + 10**9, service=service)
    ql = f'{{ resource.service.name = "{service}" }}'
    span = {"start_s": query.since_ns // 10**9, "end_s": query.until_ns // 10**9, "limit": 100}
    eventually(lambda: len(tempo.search(ql, **span)) == len(sent), what="the traces in Tempo")
    found = await search_ids(TempoReader(tempo.url, traces_at_once=3), query)
    assert sorted(found) == sorted(sent)


async def test_tempo_searches_by_operation_tag_and_traceql(tempo: Tempo) -> None:
    now_ns = time.time_ns()
    sent = send_some(tempo.otlp_http, service="tagged", number=3, first_ns=now_ns - 20 * 10**9)
    query = TraceQuery(since_ns=now_ns - 60 * 10**9, until_ns=now_ns + 10**9, service="tagged")
    span = {"start_s": query.since_ns // 10**9, "end_s": query.until_ns // 10**9}
    eventually(
        lambda: len(tempo.search('{ resource.service.name = "tagged" }', **span)) == len(sent),
        what="the traces in Tempo",
    )
    for wanted, number in (
        (replace(query, operation="retrieval faq"), 3),
        (replace(query, tags={"ragtrace.kind": "retrieval"}), 3),
        (replace(query, tags={"ragtrace.kind": 'no"thing'}), 0),
        (replace(query, traceql='{ resource.service.name = "tagged" && duration > 1m }'), 0),
    ):
        assert len(await search_ids(TempoReader(tempo.url), wanted)) == number, wanted


async def test_query_that_tempo_does_not_understand_is_told(tempo: Tempo) -> None:
    query = TraceQuery(since_ns=0, until_ns=10**9, traceql="{ nonsense")
    async with aclosing(TempoReader(tempo.url)) as reader:
        with pytest.raises(ReadError, match="does not understand the query: invalid TraceQL"):
            await reader.search(query)
