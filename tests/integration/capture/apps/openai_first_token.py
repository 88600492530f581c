"""Read a streamed answer of a model that waits, after its first token, until that token was read.

Prints, as one JSON list, what was read and what was recorded. Runs where the openai SDK and an instrumentor
of it are installed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from openai import OpenAI
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace
from ragtrace import semconv

PATIENCE_S = 20
PIECES = ("Two ", "years, ", "says Ada.")
_first_was_read = threading.Event()


class Model(BaseHTTPRequestHandler):
    """Streams a chat completion."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for number, piece in enumerate(PIECES):
            if number and not _first_was_read.wait(PATIENCE_S):
                return
            self._send({"role": "assistant", "content": piece}, None)
        self._send({}, "stop")
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *args: object) -> None:
        pass

    def _send(self, delta: dict[str, str], finish_reason: str | None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        chunk = {
            "id": "1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [choice],
        }
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())


@ragtrace.rag
def ask(client: OpenAI, question: str) -> Iterator[str]:
    stream = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": question}], stream=True
    )
    for chunk in stream:
        yield chunk.choices[0].delta.content or ""


def main() -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    assert ragtrace.instrument(tracer_provider=provider)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="k", max_retries=0)
    read = []
    for piece in ask(client, "How long is the warranty?"):
        read.append(piece)
        _first_was_read.set()
    ended = spans.get_finished_spans()
    (call,) = [span for span in ended if (span.attributes or {}).get(semconv.RAG_KIND) == semconv.KIND_RAG]
    messages = (call.attributes or {})[semconv.OUTPUT_MESSAGES]
    recorded = json.loads(str(messages))[0]["parts"][0]["content"]
    print(json.dumps(["".join(read), recorded, len(ended)]))


if __name__ == "__main__":
    main()
