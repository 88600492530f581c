"""Processes of their own: what is loaded when, the global provider, the end of a program."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.backends.otlp_receiver import OtlpReceiver


def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={"PYTHONPATH": ":".join(path for path in sys.path if path), **env},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )


HEAVY = {"openai", "grpc", "httpx", "requests", "pydantic", "opentelemetry.exporter", "opentelemetry.sdk"}


def test_capture_loads_no_exporter_before_instrument() -> None:
    code = """
import sys, ragtrace.capture
with ragtrace.capture.rag(question="Who?"): pass
print(*sys.modules)
"""
    assert not HEAVY & set(run(code).stdout.split())


@pytest.mark.slow
def test_a_program_that_ends_sends_what_it_recorded(grpc_receiver: OtlpReceiver) -> None:
    code = """
import ragtrace
ragtrace.instrument(service_name="short")
with ragtrace.rag(question="Who?") as call:
    call.answer = "Ada"
"""
    ended = run(code, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{grpc_receiver.endpoint}")
    assert [span.name for span in grpc_receiver.spans] == ["invoke_workflow rag"]
    assert (ended.stdout, ended.stderr) == ("", "")


@pytest.mark.slow
def test_the_applications_global_provider_is_joined(http_receiver: Any) -> None:
    code = """
import ragtrace
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
provider = TracerProvider(resource=Resource({"service.name": "application"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
assert ragtrace.instrument(service_name="ignored")
assert trace.get_tracer_provider() is provider
with ragtrace.rag(question="Who?"): pass
"""
    run(code, OTEL_EXPORTER_OTLP_ENDPOINT=http_receiver.endpoint)
    (span,) = http_receiver.spans
    assert span.name == "invoke_workflow rag"
    assert "application" in str(http_receiver.requests[0].resource_spans[0].resource)


@pytest.mark.slow
def test_a_program_with_nothing_listening_ends_soon_and_says_nothing() -> None:
    code = """
import ragtrace
ragtrace.instrument(endpoint="http://127.0.0.1:1")
with ragtrace.rag(question="Who?"): pass
"""
    ended = run(code)
    assert (ended.stdout, ended.stderr) == ("", "")


@pytest.mark.slow
def test_a_forked_worker_sends_and_counts_its_own_spans(http_receiver: Any) -> None:
    code = """
import os, ragtrace
from ragtrace.capture import statistics
ragtrace.instrument()
with ragtrace.rag(question="parent"): pass
child = os.fork()
if child == 0:
    with ragtrace.rag(question="child"): pass
    print(statistics().spans_ended, ragtrace.uninstrument(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    ended = run(
        code, OTEL_EXPORTER_OTLP_ENDPOINT=http_receiver.endpoint, OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf"
    )
    assert ended.stdout == "1 True\n"
    sent = [str(span.attributes) for span in http_receiver.spans]
    assert [sum(word in text for text in sent) for word in ("parent", "child")] == [1, 1]
