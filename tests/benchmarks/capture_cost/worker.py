"""One RAG call, recorded by ragtrace or by the bare SDK, in a process that measures it.

    python -m tests.benchmarks.capture_cost.worker NAME HTTP

A line on stdin is an order, so many calls; a line of JSON answers it. The call: three spans, 13 kB of text.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, Tracer

import ragtrace

QUESTION = ("How long is the warranty on the loom, and does it cover the belt? " * 2)[:100]
ANSWER = ("The warranty lasts 24 months and covers the motor and the frame. " * 10)[:600]
CHUNKS = [
    {
        "id": f"chunk-{index}",
        "text": (f"Section {index} of the handbook. " * 40)[:1_000],
        "score": 0.9 - index / 10,
    }
    for index in range(5)
]
PROMPT = (
    "Answer from these sections.\n"
    + "\n".join(str(chunk["text"]) for chunk in CHUNKS)
    + ANSWER[:400]
    + QUESTION
)
MODEL = "gpt-5-mini"
INPUT_TOKENS = 1_500
OUTPUT_TOKENS = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder:
    """A recorded call, and how to send what is queued."""

    call: Callable[[], object]
    flush: Callable[[], object] = lambda: None


def bare(traces: str) -> Recorder:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    provider = _provider(OTLPSpanExporter(endpoint=traces))
    return Recorder(call=partial(_bare_call, provider.get_tracer("bare")), flush=provider.force_flush)


def captured(traces: str) -> Recorder:
    assert ragtrace.instrument(endpoint=traces, protocol="http/protobuf")
    return Recorder(call=_captured_call, flush=lambda: ragtrace.capture.flush(60))


def captured_not(traces: str) -> Recorder:
    return Recorder(call=_captured_call)


RECORDERS: dict[str, Callable[[str], Recorder]] = {
    "bare SDK": bare,
    "ragtrace": captured,
    "ragtrace, sampled out": captured,
    "ragtrace, not instrumented": captured_not,
}


def _provider(exporter: SpanExporter) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _bare_call(tracer: Tracer) -> None:
    start = {
        "gen_ai.operation.name": "invoke_workflow",
        "ragtrace.kind": "rag",
        "gen_ai.workflow.name": "rag",
    }
    with tracer.start_as_current_span("invoke_workflow rag", attributes=start) as root:
        start = {
            "gen_ai.operation.name": "retrieval",
            "ragtrace.kind": "retrieval",
            "gen_ai.data_source.id": "kb",
        }
        with tracer.start_as_current_span("retrieval kb", kind=SpanKind.CLIENT, attributes=start) as search:
            documents = [
                json.dumps({"id": chunk["id"], "score": chunk["score"], "content": chunk["text"]})
                for chunk in CHUNKS
            ]
            search.set_attribute("gen_ai.retrieval.query.text", QUESTION)
            search.set_attribute("gen_ai.retrieval.documents", f"[{','.join(documents)}]")
            search.set_attribute("ragtrace.retrieval.documents", documents)
        start = {
            "gen_ai.operation.name": "chat",
            "ragtrace.kind": "generation",
            "gen_ai.request.model": MODEL,
        }
        with tracer.start_as_current_span(f"chat {MODEL}", kind=SpanKind.CLIENT, attributes=start) as chat:
            chat.set_attribute("gen_ai.input.messages", _messages("user", PROMPT))
            chat.set_attribute("gen_ai.output.messages", _messages("assistant", ANSWER))
            chat.set_attribute("gen_ai.usage.input_tokens", INPUT_TOKENS)
            chat.set_attribute("gen_ai.usage.output_tokens", OUTPUT_TOKENS)
        root.set_attribute("gen_ai.input.messages", _messages("user", QUESTION))
        root.set_attribute("gen_ai.output.messages", _messages("assistant", ANSWER))


def _messages(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def _captured_call() -> None:
    with ragtrace.rag(question=QUESTION) as call:
        with ragtrace.retrieval(query=QUESTION, data_source="kb") as search:
            search.set_chunks(CHUNKS)
        with ragtrace.generation(model=MODEL, messages=[{"role": "user", "content": PROMPT}]) as chat:
            chat.set_answer(ANSWER)
            chat.set_usage(input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS)
        call.set_answer(ANSWER)


def main() -> None:
    name, http = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # some contenders print
    recorder = RECORDERS[name](f"{http}/v1/traces")
    recorder.call()
    recorder.flush()
    print("{}", file=answers)
    for line in sys.stdin:
        print(json.dumps(measured(recorder, int(line))), file=answers)


def measured(recorder: Recorder, calls: int) -> dict[str, float]:
    """Return microseconds a call: of the caller on the clock, and of the process."""
    process, wall = time.process_time(), time.perf_counter()
    for _ in range(calls):
        recorder.call()
    wall = time.perf_counter() - wall
    recorder.flush()
    process = time.process_time() - process
    return {name: spent / calls * 1e6 for name, spent in (("wall", wall), ("process", process))}


if __name__ == "__main__":
    main()
