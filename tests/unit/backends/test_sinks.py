"""The sinks, against real servers on loopback."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import grpc
import pytest
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from ragtrace.backends import OtlpFileSink, OtlpGrpcSink, OtlpHttpSink, open_sink
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.errors import ConfigError, SendError, SendRefused, SendRejected, SendRetryable, SendUnconfirmed
from ragtrace.ports import SpanSink
from ragtrace.traces.otlp import decode_json, encode, encode_json
from tests.rag_spans import rag_trace, trace_id_of
from tests.unit.backends.servers import GrpcAnswer, HttpAnswer, grpc_server, http_server
from tests.unit.traces.builders import a_span

REQUEST = encode([a_span(1)])
PARTIAL = ExportTraceServiceResponse(
    partial_success=ExportTracePartialSuccess(rejected_spans=3, error_message="too old")
)
WARNING = ExportTraceServiceResponse(partial_success=ExportTracePartialSuccess(error_message="slow down"))


def retry_info(seconds: int) -> bytes:
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=seconds)))
    return bytes(status_pb2.Status(code=8, details=[detail]).SerializeToString())


async def send(sink: SpanSink) -> None:
    async with aclosing(sink):
        await sink.send(REQUEST)


async def refused(sink: SpanSink, error: type[SendError], match: str | None = None) -> SendError:
    with pytest.raises(error, match=match) as caught:
        await send(sink)
    assert type(caught.value) is error
    return caught.value


async def test_grpc_sink_sends_the_bytes_as_they_are_with_headers() -> None:
    async with grpc_server(GrpcAnswer()) as server:
        await send(OtlpGrpcSink(server.endpoint, access=ConnectionSettings(token="x")))
    assert server.requests == [REQUEST]
    assert server.metadata[0]["authorization"] == "Bearer x"


GRPC_CODES: dict[type[SendError], str] = {
    SendRetryable: "CANCELLED DEADLINE_EXCEEDED RESOURCE_EXHAUSTED ABORTED OUT_OF_RANGE UNAVAILABLE"
    " DATA_LOSS",
    SendRejected: "INVALID_ARGUMENT INTERNAL",
    SendRefused: "UNAUTHENTICATED PERMISSION_DENIED UNIMPLEMENTED",
}
TOO_LARGE = "grpc: received message larger than max (5 vs. 4)"


async def test_each_grpc_code_is_a_passing_trouble_or_final_or_about_the_sender() -> None:
    cases = [(code, "busy", error) for error, codes in GRPC_CODES.items() for code in codes.split()]
    for code, details, error in (*cases, ("RESOURCE_EXHAUSTED", TOO_LARGE, SendRejected)):
        async with grpc_server(GrpcAnswer(code=grpc.StatusCode[code], details=details)) as server:
            await refused(OtlpGrpcSink(server.endpoint), error, code)


@pytest.mark.parametrize(("details", "wait_s"), [(retry_info(7), 7.0), (b"\xff\xff", None), (None, None)])
async def test_grpc_retry_info_says_how_long_to_wait(details: bytes | None, wait_s: float | None) -> None:
    answer = GrpcAnswer(code=grpc.StatusCode.RESOURCE_EXHAUSTED, status_details=details)
    async with grpc_server(answer) as server:
        error = await refused(OtlpGrpcSink(server.endpoint), SendRetryable)
    assert isinstance(error, SendRetryable)
    assert error.retry_after_s == wait_s


async def test_partial_success_is_rejected_with_the_number_of_spans_and_a_warning_is_a_success() -> None:
    async with grpc_server(GrpcAnswer(response=PARTIAL)) as server:
        await refused(OtlpGrpcSink(server.endpoint), SendRejected, "rejected 3 spans: too old")
    async with grpc_server(GrpcAnswer(response=WARNING)) as server:
        await send(OtlpGrpcSink(server.endpoint))
    with http_server(lambda _: HttpAnswer(body=PARTIAL.SerializeToString())) as by_http:
        await refused(OtlpHttpSink(by_http.url), SendRejected, "rejected 3 spans: too old")


async def test_http_sink_posts_the_bytes_as_protobuf() -> None:
    with http_server(lambda _: HttpAnswer()) as server:
        await send(OtlpHttpSink(f"{server.url}/v1/traces", access=ConnectionSettings(headers={"x-key": "k"})))
    ((path, headers, body),) = server.requests
    assert (path, body) == ("/v1/traces", REQUEST)
    assert (headers["content-type"], headers["x-key"]) == ("application/x-protobuf", "k")


HTTP_STATUSES: dict[type[SendError], tuple[int, ...]] = {
    SendRetryable: (429, 502, 503, 504),
    SendRejected: (400, 413, 500, 501),
    SendRefused: (301, 401, 403, 404),
}


async def test_each_http_status_is_a_passing_trouble_or_final_or_about_the_sender() -> None:
    for error, statuses in HTTP_STATUSES.items():
        for status in statuses:
            answer = HttpAnswer(status=status, headers={"Retry-After": "12"})
            with http_server(lambda _, answer=answer: answer) as server:
                raised = await refused(OtlpHttpSink(server.url), error, str(status))
            assert not isinstance(raised, SendRetryable) or raised.retry_after_s == 12


async def test_page_of_a_proxy_with_status_200_confirms_nothing() -> None:
    with http_server(lambda _: HttpAnswer(body=b"<html>ok</html>")) as server:
        await refused(OtlpHttpSink(server.url), SendUnconfirmed, "is not OTLP")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("endpoint", "kind", "name"),
    [
        ("localhost:4317", OtlpGrpcSink, "grpc://localhost:4317"),
        ("grpc://tempo:4317", OtlpGrpcSink, "grpc://tempo:4317"),
        ("grpc://tempo", OtlpGrpcSink, "grpc://tempo:4317"),
        ("grpcs://api.example.com:443", OtlpGrpcSink, "grpcs://api.example.com:443"),
        ("http://localhost:4317", OtlpGrpcSink, "grpc://localhost:4317"),
        ("http://localhost:14317", OtlpGrpcSink, "grpc://localhost:14317"),
        ("https://localhost:4317/", OtlpGrpcSink, "grpcs://localhost:4317"),
        ("grpc://[::1]:4317", OtlpGrpcSink, "grpc://[::1]:4317"),
        ("http://localhost:4317/v1/traces", OtlpHttpSink, "http://localhost:4317/v1/traces"),
        ("http://localhost:4318", OtlpHttpSink, "http://localhost:4318/v1/traces"),
        ("http://localhost", OtlpHttpSink, "http://localhost:4318/v1/traces"),
        ("https://otlp.example.com/otlp/v1/traces", OtlpHttpSink, "https://otlp.example.com/otlp/v1/traces"),
        ("http://[::1]:4318", OtlpHttpSink, "http://[::1]:4318/v1/traces"),
        ("http://localhost:4318/x?key=secret", OtlpHttpSink, "http://localhost:4318/x"),
        ("otlp-file:traces.jsonl", OtlpFileSink, "otlp-file:traces.jsonl"),
    ],
)
def test_address_chooses_the_sink(endpoint: str, kind: type, name: str) -> None:
    sink = open_sink(endpoint)
    assert isinstance(sink, kind)
    assert sink.name == name


@pytest.mark.parametrize(
    "endpoint",
    [
        *("", "localhost", "ftp://host:1", "http://", "http://host:port", "otlp-file:", "http://[::1:4318"),
        *("grpc://host:4317/path", "http://a b:4318", "http://user:secret@host:4318", "kafka://host"),
        "http://u:secret@host:port",
    ],
)
def test_bad_address_is_a_config_error_that_shows_no_secret(endpoint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_sink(endpoint)
    assert "secret" not in str(caught.value)
    assert "otlp-file:PATH" in str(caught.value) or "header" in str(caught.value)


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b'{"resourceSpans":[{"sco', id="its beginning"),
        pytest.param(bytes(40), id="zeros"),
        pytest.param(bytes(40) + b"\n", id="zeros and its end"),
        pytest.param(b'{"resourceSp' + bytes(9), id="its beginning and zeros"),
    ],
)
async def test_a_file_whose_last_line_a_power_loss_damaged_goes_on_with_whole_lines(
    tmp_path: Path, left: bytes
) -> None:
    file = tmp_path / "out.jsonl"
    file.write_bytes(encode_json(rag_trace(1)).encode() + b"\n" + left)
    async with aclosing(open_sink(f"otlp-file:{file}")) as sink:
        await sink.send(encode(rag_trace(2)))
    read = [decode_json(line) for line in file.read_text("utf-8").split("\n")[:-1]]
    assert [spans[0].trace_id for spans in read] == [trace_id_of(1), trace_id_of(2)]
