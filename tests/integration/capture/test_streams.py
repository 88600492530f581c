"""Whether a streamed answer was read whole, left or failed: recorded, and told by ``ragtrace explain``."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace
from ragtrace import semconv
from tests.integration.cli.program import json_lines, run

pytestmark = pytest.mark.slow

WHOLE, LEFT, FAILED = None, "its reader went away before the end", "broke off with an error"


@ragtrace.rag
def pieces(question: str) -> Iterator[str]:
    yield "Refunds take "
    if question == "fail":
        raise LookupError
    yield "14 days."


@ragtrace.rag
async def later(question: str) -> AsyncIterator[str]:
    if question == "wait":
        await asyncio.Event().wait()
    yield "Refunds take "
    if question == "fail":
        raise LookupError
    await asyncio.sleep(0)
    yield "14 days."


async def read(question: str) -> None:
    with contextlib.suppress(LookupError):
        list(pieces(question))


async def leave(question: str) -> None:
    for _ in pieces(question):
        break


async def read_later(question: str) -> None:
    with contextlib.suppress(LookupError):
        async for _ in later(question):
            pass


async def leave_later(question: str) -> None:
    reading = later(question)
    await anext(reading)
    await reading.aclose()  # type: ignore[attr-defined]  # a generator


async def cancel_later(question: str) -> None:
    task = asyncio.create_task(read_later(question))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def time_out_later(question: str) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0):
            await read_later(question)


READERS: dict[str, tuple[Callable[[str], Awaitable[None]], str, str | None]] = {
    "read": (read, "How long?", WHOLE),
    "failed": (read, "fail", FAILED),
    "left": (leave, "How long?", LEFT),
    "read later": (read_later, "How long?", WHOLE),
    "failed later": (read_later, "fail", FAILED),
    "left later": (leave_later, "How long?", LEFT),
    "cancelled": (cancel_later, "wait", LEFT),
    "timed out": (time_out_later, "wait", LEFT),
}


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Record every reader in a trace of its own; return its span's attributes and what explain says."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    ragtrace.uninstrument()
    assert ragtrace.instrument(tracer_provider=provider)
    try:
        for reader, question, _ in READERS.values():
            asyncio.run(reader(question))  # type: ignore[arg-type]  # a coroutine
    finally:
        ragtrace.uninstrument()
    spans = memory.get_finished_spans()
    file: Path = tmp_path_factory.mktemp("traces") / "traces.pb"
    file.write_bytes(encode_spans(spans).SerializeToString())
    told = {each["trace_id"]: each for each in json_lines(run("explain", str(file), "--json").stdout)}
    by_start = sorted(spans, key=lambda span: span.start_time)
    traces = [(dict(span.attributes), told[format(span.context.trace_id, "032x")]) for span in by_start]
    return dict(zip(READERS, traces, strict=True))


@pytest.mark.parametrize("reader", READERS)
def test_why_a_stream_ended_is_recorded_and_told(explained: Any, reader: str) -> None:
    attributes, told = explained[reader]
    reason = READERS[reader][2]
    end = {WHOLE: None, LEFT: semconv.READER_LEFT, FAILED: semconv.STREAM_FAILED}[reason]
    assert (attributes[semconv.RAG_STREAM_COMPLETE], attributes.get(semconv.RAG_STREAM_END)) == (
        reason is WHOLE,
        end,
    )
    assert (semconv.ERROR_TYPE in attributes) == (reason is FAILED)
    gaps = json.dumps(told["records"][0]["gaps"]) if told["records"] else json.dumps(told)
    assert ("incomplete" in gaps) == (reason is not WHOLE)
    assert reason is WHOLE or reason in gaps
