"""Measure what one captured RAG call costs the application, against the bare OpenTelemetry SDK.

    python tests/benchmarks/capture_cost.py [--rounds 30] [--calls 150] [--seconds 10]

The payload: a root span (100-character question, 600-character answer), a retrieval (five chunks of 1 kB
with ids and scores) and a generation (6 kB prompt, answer, model, usage), exported by OTLP/HTTP to a
process that throws it away. The bare SDK writes it twice: *lean*, each text once, and *full*, with every
attribute that ragtrace writes, which includes the chunks a second time, one by one. Costs are the caller's
processor time; rounds are interleaved, so that a noisy machine is noisy for all, and 150 calls are one
batch, exported after the round. Then the captured call runs 1,000 times a second, and the spans that never
arrive are counted.
"""

from __future__ import annotations

import argparse
import json
import statistics as numbers
import subprocess
import sys
import time
from collections.abc import Callable

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Tracer

import ragtrace
from ragtrace.capture import statistics

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
    "Answer from these sections.\n" + "\n".join(chunk["text"] for chunk in CHUNKS) + ANSWER[:400] + QUESTION
)
MODEL = "gpt-5-mini"

SINK = """
import http.server, socketserver
class Sink(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
print(server.server_port, flush=True)
server.serve_forever()
"""


def lean_call(tracer: Tracer) -> None:
    """Write each text once, in the conventions' form."""
    with tracer.start_as_current_span("invoke_workflow rag") as root:
        root.set_attribute("gen_ai.operation.name", "invoke_workflow")
        root.set_attribute("gen_ai.input.messages", messages("user", QUESTION))
        with tracer.start_as_current_span("retrieval kb", kind=SpanKind.CLIENT) as search:
            search.set_attribute("gen_ai.operation.name", "retrieval")
            search.set_attribute("gen_ai.retrieval.query.text", QUESTION)
            documents = [
                {"id": chunk["id"], "score": chunk["score"], "content": chunk["text"]} for chunk in CHUNKS
            ]
            search.set_attribute("gen_ai.retrieval.documents", json.dumps(documents))
        with tracer.start_as_current_span(f"chat {MODEL}", kind=SpanKind.CLIENT) as chat:
            chat.set_attribute("gen_ai.operation.name", "chat")
            chat.set_attribute("gen_ai.request.model", MODEL)
            chat.set_attribute("gen_ai.input.messages", messages("user", PROMPT))
            chat.set_attribute("gen_ai.output.messages", messages("assistant", ANSWER))
            chat.set_attribute("gen_ai.usage.input_tokens", 1_500)
            chat.set_attribute("gen_ai.usage.output_tokens", 150)
        root.set_attribute("gen_ai.output.messages", messages("assistant", ANSWER))


def full_call(tracer: Tracer) -> None:
    """Write every attribute that ragtrace writes, by hand."""
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
            chat.set_attribute("gen_ai.input.messages", messages("user", PROMPT))
            chat.set_attribute("gen_ai.output.messages", messages("assistant", ANSWER))
            chat.set_attribute("gen_ai.usage.input_tokens", 1_500)
            chat.set_attribute("gen_ai.usage.output_tokens", 150)
        root.set_attribute("gen_ai.input.messages", messages("user", QUESTION))
        root.set_attribute("gen_ai.output.messages", messages("assistant", ANSWER))


def messages(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def captured_call() -> None:
    """Write it with ragtrace, which also writes the chunks one by one."""
    with ragtrace.rag(question=QUESTION) as call:
        with ragtrace.retrieval(query=QUESTION, data_source="kb") as search:
            search.set_chunks(CHUNKS)
        with ragtrace.generation(model=MODEL, messages=[{"role": "user", "content": PROMPT}]) as chat:
            chat.set_answer(ANSWER)
            chat.set_usage(input_tokens=1_500, output_tokens=150)
        call.set_answer(ANSWER)


def cost_us(call: Callable[[], None], calls: int) -> float:
    started = time.thread_time()
    for _ in range(calls):
        call()
    return (time.thread_time() - started) / calls * 1e6


def at_rate(call: Callable[[], None], per_second: int, seconds: float) -> float:
    """Run the call at a steady rate; return the rate reached."""
    started = time.perf_counter()
    total = int(per_second * seconds)
    for number in range(total):
        ahead = started + number / per_second - time.perf_counter()
        if ahead > 0:
            time.sleep(ahead)
        call()
    return total / (time.perf_counter() - started)


def compare(
    variants: dict[str, Callable[[], None]], settle: Callable[[], object], rounds: int, calls: int
) -> None:
    costs: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(rounds + 1):
        for name in sorted(variants, reverse=number % 2 == 1):
            cost = cost_us(variants[name], calls)
            settle()
            if number:  # the first round warms up
                costs[name].append(cost)
    for name, measured in costs.items():
        ratio = numbers.median(
            mine / theirs for mine, theirs in zip(costs["ragtrace"], measured, strict=True)
        )
        best = min(costs["ragtrace"]) / min(measured)
        print(
            f"{name:9} {numbers.median(measured):6.1f} µs a call, best {min(measured):6.1f};"
            f" ragtrace costs {ratio:.2f} of it, best by best {best:.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=150)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    sink = subprocess.Popen([sys.executable, "-c", SINK], stdout=subprocess.PIPE, text=True)
    try:
        assert sink.stdout is not None
        endpoint = f"http://127.0.0.1:{int(sink.stdout.readline())}/v1/traces"
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        tracer = provider.get_tracer("bare")
        ragtrace.instrument(endpoint=endpoint, protocol="http/protobuf")

        def settle() -> None:
            provider.force_flush()
            ragtrace.capture.flush(60)

        variants = {
            "bare lean": lambda: lean_call(tracer),
            "bare full": lambda: full_call(tracer),
            "ragtrace": captured_call,
        }
        compare(variants, settle, options.rounds, options.calls)
        reached = at_rate(captured_call, 1_000, options.seconds)
        ragtrace.capture.flush(60)
        counts = statistics()
        print(
            f"{reached:.0f} calls/s for {options.seconds:g} s: of {counts.spans_ended} spans since the start,"
        )
        print(f"{counts.spans_ended - counts.spans_exported} lost ({counts})")
        ragtrace.uninstrument()
        provider.shutdown()
    finally:
        sink.terminate()
        sink.wait()


if __name__ == "__main__":
    main()
