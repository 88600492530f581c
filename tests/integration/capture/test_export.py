"""What an application records arrives at a real OTLP receiver, or is counted, and never gets in its way."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import socketserver
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

import ragtrace
from ragtrace import semconv
from ragtrace.capture import pipeline, statistics
from tests.backends.otlp_receiver import OtlpReceiver


def call_once(question: str = "Who?", chunks: Any = ("one",)) -> str:
    with ragtrace.rag(question=question) as call:
        with ragtrace.retrieval(query=question) as search:
            search.set_chunks(chunks)
        with ragtrace.generation(model="m", prompt=question) as chat:
            chat.set_answer("Ada")
        call.answer = "Ada"
    assert call.trace_id is not None
    return call.trace_id


def attributes(span: Any) -> dict[str, Any]:
    return {pair.key: pair.value for pair in span.attributes}


def service(receiver: Any) -> str:
    (resource,) = {
        pair.value.string_value
        for request in receiver.requests
        for spans in request.resource_spans
        for pair in spans.resource.attributes
        if pair.key == semconv.SERVICE_NAME
    }
    return resource


def test_a_call_arrives_by_http_with_headers(http_receiver: Any) -> None:
    assert ragtrace.instrument(
        endpoint=http_receiver.endpoint, protocol="http/protobuf", headers={"Authorization": "Bearer k"}
    )
    call_once()
    assert ragtrace.flush()
    counts = statistics()
    assert (counts.spans_ended, counts.spans_exported, counts.spans_waiting) == (3, 3, 0)
    assert ragtrace.uninstrument()
    assert len(http_receiver.spans) == 3
    assert http_receiver.paths == ["/v1/traces"]
    assert http_receiver.headers[0]["authorization"] == "Bearer k"


def test_the_environment_is_honoured(http_receiver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", http_receiver.endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "from-env")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    ragtrace.instrument()
    call_once()
    ragtrace.uninstrument()
    assert service(http_receiver) == "from-env"
    assert http_receiver.headers[0]["x-tenant"] == "a"
    assert http_receiver.headers[0]["content-encoding"] == "gzip"
    resource = http_receiver.requests[0].resource_spans[0].resource
    assert attributes(resource)["deployment.environment.name"].string_value == "test"


def test_a_second_instrument_changes_nothing(
    grpc_receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    assert ragtrace.instrument(endpoint=grpc_receiver.endpoint)
    caplog.clear()  # the first may hint at a library that another test imported
    assert ragtrace.instrument(endpoint=grpc_receiver.endpoint)
    assert caplog.records == []
    assert ragtrace.instrument(endpoint=grpc_receiver.endpoint, content="off")
    assert "already instrumented" in caplog.text
    call_once()
    ragtrace.uninstrument()
    assert len(grpc_receiver.spans) == 3
    assert "Who?" in str(grpc_receiver.spans)


def test_a_joined_provider_gets_an_exporter_only_for_an_endpoint_given(grpc_receiver: OtlpReceiver) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    ragtrace.instrument(tracer_provider=provider)
    call_once()
    ragtrace.uninstrument()
    for _ in range(2):
        ragtrace.instrument(tracer_provider=provider, endpoint=grpc_receiver.endpoint)
        call_once()
        ragtrace.uninstrument()
    assert len(grpc_receiver.spans) == 6


def test_nothing_is_evicted_from_large_spans(grpc_receiver: OtlpReceiver) -> None:
    ragtrace.instrument(endpoint=grpc_receiver.endpoint)
    with ragtrace.rag(question="Who?") as call:
        for index in range(300):
            call.span.set_attribute(f"app.{index}", index)  # type: ignore[union-attr]
        with ragtrace.retrieval(query="who") as search:
            search.set_chunks([(f"chunk {index} " + "x" * 1_000, index) for index in range(1_000)])
    assert ragtrace.uninstrument()
    by_name = {span.name: span for span in grpc_receiver.spans}
    assert {span.dropped_attributes_count for span in by_name.values()} == {0}
    assert len(by_name["invoke_workflow rag"].attributes) > 300
    documents = attributes(by_name["retrieval"])[semconv.RAG_DOCUMENTS].array_value.values
    assert [json.loads(each.string_value)["score"] for each in documents] == list(range(1_000))


def test_a_batch_larger_than_a_receiver_takes_is_sent_in_parts(grpc_receiver: OtlpReceiver) -> None:
    ragtrace.instrument(endpoint=grpc_receiver.endpoint)
    for _ in range(8):
        call_once(chunks=["é" * 30_000] * 10)
    assert ragtrace.uninstrument()
    assert len(grpc_receiver.spans) == 24
    assert len(grpc_receiver.requests) > 1
    assert max(request.ByteSize() for request in grpc_receiver.requests) < 4 * 1024 * 1024


def test_what_a_full_queue_drops_is_counted(monkeypatch: pytest.MonkeyPatch, silent_endpoint: str) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    monkeypatch.setattr(pipeline, "STALL_TIMEOUT_S", 0.1)
    ragtrace.instrument(endpoint=silent_endpoint)
    for _ in range(10):
        call_once()
    counts = statistics()
    assert counts.spans_ended == 30
    # Four are queued, and at most four more are on their way: each is somewhere.
    assert 22 <= counts.spans_dropped <= 26
    assert counts.spans_waiting == 30 - counts.spans_dropped
    ragtrace.uninstrument()


@pytest.fixture
def silent_endpoint() -> Iterator[str]:
    """An endpoint that accepts connections and never says a word."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def babbling_endpoint() -> Iterator[str]:
    """An endpoint that answers everything with what is no protocol at all."""

    class Babble(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            self.request.sendall(b"\x00garbage\xff\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Babble) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("protocol", "endpoint"),
    [
        ("grpc", "http://127.0.0.1:1"),
        ("grpc", "silent_endpoint"),
        ("http/protobuf", "silent_endpoint"),
        ("http/protobuf", "babbling_endpoint"),
    ],
)
def test_an_endpoint_that_is_down_neither_breaks_nor_blocks(
    protocol: Any,
    endpoint: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(pipeline, "STALL_TIMEOUT_S", 0.1)
    address = endpoint if "://" in endpoint else request.getfixturevalue(endpoint)
    assert ragtrace.instrument(endpoint=address, protocol=protocol)
    call_once()
    assert not ragtrace.uninstrument()
    assert "ragtrace: of 3 spans 0 were sent" in caplog.text
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]


def test_a_receiver_that_refuses_is_reported_once(
    http_receiver: Any, caplog: pytest.LogCaptureFixture
) -> None:
    http_receiver.status = 400
    ragtrace.instrument(endpoint=http_receiver.endpoint, protocol="http/protobuf")
    for _ in range(2):
        call_once()
        assert not ragtrace.capture.flush()
    assert statistics().spans_failed == 6
    (told,) = caplog.records
    # the first time in a process it is a hint, then a warning
    assert told.name == "ragtrace"
    assert "no span could be sent" in caplog.text or "spans could not be sent" in caplog.text


def test_threads_that_instrument_at_once_install_one_exporter(grpc_receiver: OtlpReceiver) -> None:
    threads = [
        threading.Thread(target=ragtrace.instrument, kwargs={"endpoint": grpc_receiver.endpoint})
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    call_once()
    ragtrace.uninstrument()
    assert len(grpc_receiver.spans) == 3


def test_log_level_shows_diagnostics_without_content(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAGTRACE_LOG_LEVEL", "debug")
    log = logging.getLogger("ragtrace")
    before, level = list(log.handlers), log.level
    try:
        ragtrace.instrument(
            tracer_provider=TracerProvider(shutdown_on_exit=False), redact=lambda text, part: text[10**6]
        )
        call_once("secret")
    finally:
        log.handlers[:], log.level = before, level
    said = capsys.readouterr().err
    assert "IndexError" in said
    assert "secret" not in said
