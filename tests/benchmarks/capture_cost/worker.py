"""One RAG call, as each library's own guide would have it recorded by hand, in a process that measures it.

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
from typing import Any

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where spans go to be thrown away."""

    http: str

    @property
    def traces(self) -> str:
        return f"{self.http}/v1/traces"


def bare(sink: Sink) -> Recorder:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    provider = _provider(OTLPSpanExporter(endpoint=sink.traces))
    return Recorder(call=partial(_bare_call, provider.get_tracer("bare")), flush=provider.force_flush)


def captured(sink: Sink) -> Recorder:
    assert ragtrace.instrument(endpoint=sink.traces, protocol="http/protobuf")
    return Recorder(call=_captured_call, flush=lambda: ragtrace.capture.flush(60))


def captured_not(sink: Sink) -> Recorder:
    return Recorder(call=_captured_call)


def openinference(sink: Sink) -> Recorder:
    from openinference.instrumentation import OITracer, TraceConfig
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    provider = _provider(OTLPSpanExporter(endpoint=sink.traces))
    tracer = OITracer(provider.get_tracer("openinference"), config=TraceConfig())
    return Recorder(call=partial(_openinference_call, tracer), flush=provider.force_flush)


def openllmetry(sink: Sink) -> Recorder:
    os.environ.update(TRACELOOP_METRICS_ENABLED="false", TRACELOOP_TELEMETRY="false")
    from traceloop.sdk import Traceloop
    from traceloop.sdk.tracing.tracing import TracerWrapper

    Traceloop.init(app_name="bench", api_endpoint=sink.http, api_key="k", instruments=set())
    return Recorder(call=_openllmetry_call(), flush=TracerWrapper().flush)


def langfuse(sink: Sink) -> Recorder:
    from langfuse import Langfuse

    client = Langfuse(public_key="pk-lf-1", secret_key="sk-lf-1", base_url=sink.http)
    return Recorder(call=partial(_langfuse_call, client), flush=client.flush)


def mlflow(sink: Sink) -> Recorder:
    os.environ.update(
        MLFLOW_TRACKING_URI=sink.http,
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=sink.traces,
        OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="http/protobuf",
    )
    import mlflow.tracing.provider as provider

    call = _mlflow_call()
    call()  # it makes its provider with its first span
    return Recorder(call=call, flush=lambda: provider.provider.get().force_flush())


def logfire(sink: Sink) -> Recorder:
    import logfire
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    exporter = BatchSpanProcessor(OTLPSpanExporter(endpoint=sink.traces))
    recorder = logfire.configure(
        send_to_logfire=False, console=False, metrics=False, additional_span_processors=[exporter]
    )
    return Recorder(call=partial(_logfire_call, recorder), flush=recorder.force_flush)


RECORDERS: dict[str, Callable[[Sink], Recorder]] = {
    "bare SDK": bare,
    "ragtrace": captured,
    "OpenInference": openinference,
    "OpenLLMetry (Traceloop SDK)": openllmetry,
    "Langfuse": langfuse,
    "Logfire": logfire,
    "MLflow": mlflow,
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


def _openinference_call(tracer: Any) -> None:
    from openinference.instrumentation import get_llm_attributes, get_retriever_attributes

    with tracer.start_as_current_span("rag", openinference_span_kind="chain") as root:
        root.set_input(QUESTION)
        with tracer.start_as_current_span("retrieve", openinference_span_kind="retriever") as search:
            search.set_input(QUESTION)
            found = [
                {"id": chunk["id"], "score": chunk["score"], "content": chunk["text"]} for chunk in CHUNKS
            ]
            search.set_attributes(get_retriever_attributes(documents=found))
        with tracer.start_as_current_span("chat", openinference_span_kind="llm") as chat:
            chat.set_input(PROMPT)
            chat.set_output(ANSWER)
            chat.set_attributes(
                get_llm_attributes(
                    model_name=MODEL,
                    input_messages=[{"role": "user", "content": PROMPT}],
                    output_messages=[{"role": "assistant", "content": ANSWER}],
                    token_count={"prompt": INPUT_TOKENS, "completion": OUTPUT_TOKENS},
                )
            )
        root.set_output(ANSWER)


def _openllmetry_call() -> Callable[[], object]:
    from traceloop.sdk.decorators import task, workflow
    from traceloop.sdk.tracing.manual import LLMMessage, LLMUsage, track_llm_call

    @task(name="retrieve")
    def retrieve(query: str) -> object:
        return CHUNKS

    @workflow(name="rag")
    def rag(question: str) -> str:
        retrieve(question)
        with track_llm_call(vendor="openai", type="chat") as chat:
            chat.report_request(model=MODEL, messages=[LLMMessage(role="user", content=PROMPT)])
            chat.report_response(MODEL, [ANSWER])
            chat.report_usage(
                LLMUsage(
                    prompt_tokens=INPUT_TOKENS,
                    completion_tokens=OUTPUT_TOKENS,
                    total_tokens=INPUT_TOKENS + OUTPUT_TOKENS,
                )
            )
        return ANSWER

    return partial(rag, QUESTION)


def _langfuse_call(client: Any) -> None:
    start = client.start_as_current_observation
    with start(name="rag", as_type="span", input=QUESTION) as root:
        with start(name="retrieve", as_type="retriever", input=QUESTION) as search:
            search.update(output=CHUNKS)
        with start(
            name="chat", as_type="generation", model=MODEL, input=[{"role": "user", "content": PROMPT}]
        ) as chat:
            chat.update(output=ANSWER, usage_details={"input": INPUT_TOKENS, "output": OUTPUT_TOKENS})
        root.update(output=ANSWER)


def _mlflow_call() -> Callable[[], object]:
    import mlflow
    from mlflow.entities import Document, SpanType

    def call() -> None:
        with mlflow.start_span(name="rag", span_type=SpanType.CHAIN) as root:
            root.set_inputs({"question": QUESTION})
            with mlflow.start_span(name="retrieve", span_type=SpanType.RETRIEVER) as search:
                search.set_inputs({"query": QUESTION})
                search.set_outputs(
                    [
                        Document(
                            id=str(chunk["id"]),
                            page_content=str(chunk["text"]),
                            metadata={"score": chunk["score"]},
                        )
                        for chunk in CHUNKS
                    ]
                )
            with mlflow.start_span(name="chat", span_type=SpanType.CHAT_MODEL) as chat:
                chat.set_inputs({"model": MODEL, "messages": [{"role": "user", "content": PROMPT}]})
                chat.set_outputs({"role": "assistant", "content": ANSWER})
                chat.set_attribute(
                    "mlflow.chat.tokenUsage", {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
                )
            root.set_outputs(ANSWER)

    return call


def _logfire_call(logfire: Any) -> None:
    with logfire.span("rag", question=QUESTION) as root:
        with logfire.span("retrieve", query=QUESTION) as search:
            search.set_attribute("documents", CHUNKS)
        with logfire.span("chat", model=MODEL, messages=[{"role": "user", "content": PROMPT}]) as chat:
            chat.set_attribute("answer", ANSWER)
            chat.set_attribute("input_tokens", INPUT_TOKENS)
            chat.set_attribute("output_tokens", OUTPUT_TOKENS)
        root.set_attribute("answer", ANSWER)


def main() -> None:
    name, http = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # some contenders print
    recorder = RECORDERS[name](Sink(http=http))
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
