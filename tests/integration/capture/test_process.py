"""Processes of their own: what is loaded when, the global provider, the end of a program."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ragtrace import semconv
from tests.backends.otlp_receiver import OtlpReceiver, running_receiver
from tests.patience import PATIENCE_S


def environment(**env: str) -> dict[str, str]:
    return {"PYTHONPATH": ":".join(path for path in sys.path if path), **env}


def run(code: str, *, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=check,
    )


def question(span: Span) -> str:
    (message,) = [pair.value for pair in span.attributes if pair.key == semconv.INPUT_MESSAGES]
    text: str = json.loads(message.string_value)[0]["parts"][0]["content"]
    return text


HEAVY = {"openai", "grpc", "httpx", "requests", "pydantic", "opentelemetry.exporter", "opentelemetry.sdk"}


def test_capture_loads_no_exporter_before_instrument() -> None:
    code = """
import sys, ragtrace.capture
with ragtrace.capture.rag(question="Who?"): pass
print(*sys.modules)
"""
    assert not HEAVY & set(run(code).stdout.split())


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
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_forked_worker_sends_and_counts_its_own_spans(
    protocol: str, grpc_receiver: OtlpReceiver, http_receiver: Any
) -> None:
    code = """
import os, ragtrace
ragtrace.instrument()
with ragtrace.rag(question="parent"): pass
assert ragtrace.flush()
for number in range(2):
    child = os.fork()
    if child == 0:
        assert ragtrace.instrument()
        with ragtrace.rag(question=f"child {number}"): pass
        print(ragtrace.statistics().spans_ended, ragtrace.uninstrument(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
    receiver = grpc_receiver if protocol == "grpc" else http_receiver
    endpoint = receiver.endpoint if protocol != "grpc" else f"http://{receiver.endpoint}"
    ended = run(code, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_EXPORTER_OTLP_PROTOCOL=protocol)
    assert ended.stdout == "1 True\n" * 2
    assert [question(span) for span in receiver.spans] == ["parent", "child 0", "child 1"]


@pytest.mark.slow
def test_a_fork_amid_an_export_leaves_both_processes_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived, both, export = threading.Event(), threading.Barrier(2), OtlpReceiver.Export

    def export_together(receiver: OtlpReceiver, *request: Any) -> Any:
        arrived.set()
        both.wait(timeout=PATIENCE_S)
        return export(receiver, *request)

    monkeypatch.setattr(OtlpReceiver, "Export", export_together)
    code = """
import os, ragtrace, sys, threading
ragtrace.instrument()
with ragtrace.rag(question="parent"): pass
threading.Thread(target=ragtrace.flush).start()
sys.stdin.readline()
child = os.fork()
if child == 0:
    with ragtrace.rag(question="child"): pass
    os._exit(0 if ragtrace.flush(40) else 1)
sys.exit(os.waitpid(child, 0)[1])
"""
    with running_receiver() as receiver:
        env = environment(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{receiver.endpoint}")
        with subprocess.Popen(
            [sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, text=True
        ) as process:
            assert arrived.wait(timeout=PATIENCE_S)
            process.communicate("fork now\n", timeout=PATIENCE_S)
    assert process.returncode == 0
    assert {question(span) for span in receiver.spans} == {"parent", "child"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "ending",
    [
        "raise SystemExit(3)",
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); os.kill(os.getpid(), 15)",
    ],
    ids=["exception", "handled signal"],
)
def test_however_a_program_ends_what_it_recorded_is_sent(ending: str, grpc_receiver: OtlpReceiver) -> None:
    code = f"""
import os, ragtrace, signal, sys, threading
ragtrace.instrument()
@ragtrace.rag
def ask(question):
    yield "A"
    yield "da"
assert list(ask("Who?")) == ["A", "da"]
{ending}
"""
    run(code, check=False, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{grpc_receiver.endpoint}")
    assert [question(span) for span in grpc_receiver.spans] == ["Who?"]


@pytest.mark.slow
def test_an_async_stream_left_open_by_a_loop_that_is_gone_still_ends_its_span(
    grpc_receiver: OtlpReceiver,
) -> None:
    code = """
import asyncio, gc, ragtrace
ragtrace.instrument()
@ragtrace.rag
async def ask(question):
    yield "A"
    yield "da"
async def begin(question):
    stream = ask(question)
    await anext(stream)
    return stream
loop = asyncio.new_event_loop()
stream = loop.run_until_complete(begin("left"))
loop.close()
del stream
gc.collect()
for number in range(2):
    asyncio.run(begin(f"loop {number}"))
assert ragtrace.statistics().spans_ended == 3
"""
    ended = run(code, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{grpc_receiver.endpoint}")
    assert ended.stderr == ""
    assert [question(span) for span in grpc_receiver.spans] == ["left", "loop 0", "loop 1"]


@pytest.mark.slow
def test_a_worker_of_multiprocessing_sends_what_it_recorded(grpc_receiver: OtlpReceiver) -> None:
    code = """
import multiprocessing, ragtrace
ragtrace.instrument()
def work():
    with ragtrace.rag(question="child"): pass
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
"""
    run(code, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{grpc_receiver.endpoint}")
    assert [question(span) for span in grpc_receiver.spans] == ["child"]
