"""A back end that takes OTLP over HTTP and answers as an attack has it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from ragtrace.traces.otlp import decode
from ragtrace.traces.trace import Span
from tests.attack.serving import QuietHandler, serving

__all__ = ["Answer", "BackEnd", "Rule", "refusing", "running_back_end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What it says to a request."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    took: tuple[Span, ...] = ()
    """Spans that it keeps."""


Rule = Callable[[tuple[Span, ...]], Answer]


@dataclass(slots=True)
class BackEnd:
    """Its address, and what came."""

    url: str = ""
    requests: list[int] = field(default_factory=list)
    """How many spans each had."""
    spans: list[Span] = field(default_factory=list)
    """Those that it took, as often as it took them."""

    def times(self) -> dict[str, int]:
        """Return how often the spans of each trace were taken."""
        ids = [span.trace_id for span in self.spans]
        return {trace_id: ids.count(trace_id) for trace_id in ids}


def refusing(is_refused: Callable[[Span], bool]) -> Rule:
    """Take what is not refused, and say of the rest how many they are: a partial success."""

    def answer(spans: tuple[Span, ...]) -> Answer:
        took = tuple(span for span in spans if not is_refused(span))
        refused = len(spans) - len(took)
        partial = ExportTracePartialSuccess(rejected_spans=refused, error_message="quota" if refused else "")
        body = ExportTraceServiceResponse(partial_success=partial).SerializeToString() if refused else b""
        return Answer(body=body, took=took)

    return answer


@contextmanager
def running_back_end(rule: Rule) -> Iterator[BackEnd]:
    """Serve on a free loopback port until the block ends."""
    back_end, lock = BackEnd(), threading.Lock()

    class Handler(QuietHandler):
        def do_POST(self) -> None:  # noqa: N802 -- the name in http.server
            spans = tuple(decode(self.rfile.read(int(self.headers["content-length"]))))
            with lock:
                answer = rule(spans)
                back_end.requests.append(len(spans))
                back_end.spans.extend(answer.took)
            self.send_response(answer.status)
            for name, value in {"content-length": str(len(answer.body)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

    with serving(Handler) as address:
        back_end.url = f"{address}/v1/traces"
        yield back_end
