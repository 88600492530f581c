"""Stored RAG traces for the tests of back-fill and the command line."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from ragtrace import semconv
from ragtrace.model import AttributeValue
from ragtrace.traces.otlp import encode_json
from ragtrace.traces.trace import Resource, Span, Trace

CHUNK = "Orders can be returned within 14 days. Refunds take 5 working days."
RIGHT = "Orders can be returned within 14 days."
WRONG = "Orders can be returned within 30 days."
_START_NS = 1_795_299_214_022_000_000


def trace_id(number: int) -> str:
    return f"{number + 0xABC:032x}"


def rag_trace(
    number: int = 0,
    answer: str | None = RIGHT,
    *,
    question: str = "How long can I return an order?",
    chunks: Mapping[str, str] = MappingProxyType({"faq-12": CHUNK}),
    retrieves: bool = True,
) -> Trace:
    """Build a trace of a question, a retrieval and an answer, as capture writes them."""
    call: dict[str, AttributeValue] = {
        semconv.RAG_KIND: semconv.KIND_RAG,
        semconv.RAG_QUESTION: (question,),
    }
    if answer is not None:
        call[semconv.RAG_ANSWER] = (answer,)
    spans = [_span(number, 1, None, "ask", call)]
    if retrieves:
        found = [
            json.dumps({"id": name, "score": 0.8, "content": text, "metadata": {}})
            for name, text in chunks.items()
        ]
        retrieval: dict[str, AttributeValue] = {
            semconv.RAG_KIND: semconv.KIND_RETRIEVAL,
            semconv.OPERATION_NAME: semconv.OP_RETRIEVAL,
            semconv.RAG_DOCUMENTS: tuple(found),
        }
        spans.append(_span(number, 2, 1, "retrieval faq", retrieval))
    return Trace.of(trace_id(number), spans)


def plain_trace(number: int = 0) -> Trace:
    """Build a trace without a RAG call."""
    return Trace.of(trace_id(number), [_span(number, 1, None, "GET /health", {})])


def write_traces(path: Path, traces: Iterable[Trace]) -> Path:
    """Write traces as OTLP JSON lines, one a trace."""
    path.write_text("".join(f"{encode_json(trace.spans)}\n" for trace in traces), "utf-8")
    return path


class StoredTraces:
    """A reader of given traces."""

    def __init__(self, *traces: Trace) -> None:
        self._traces = {trace.trace_id: trace for trace in traces}

    async def get(self, trace_id: str) -> Trace | None:
        return self._traces.get(trace_id)

    async def traces(self) -> AsyncIterator[Trace]:
        for trace in self._traces.values():
            yield trace

    async def aclose(self) -> None:
        pass


def _span(
    trace: int, number: int, parent: int | None, name: str, attributes: dict[str, AttributeValue]
) -> Span:
    start_ns = _START_NS + number * 1_000_000
    return Span(
        trace_id=trace_id(trace),
        span_id=f"{number:016x}",
        parent_span_id=f"{parent:016x}" if parent else None,
        name=name,
        start_ns=start_ns,
        end_ns=start_ns + 50_000_000 // number,
        attributes=attributes,
        resource=Resource(attributes={"service.name": "support-bot"}),
    )
