"""The receivers: every kind of bad input gets the answer OTLP prescribes, and the collector lives on."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import httpx
import pytest
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from ragtrace.errors import ConfigError
from ragtrace.traces.otlp import decode, encode_json
from ragtrace_collector.service.collector import Collector
from tests.integration.collector.running import (
    PROTOBUF,
    config_of,
    post,
    request_of,
    running_collector,
    send_grpc,
)
from tests.rag_spans import rag_trace, trace_id_of

pytestmark = pytest.mark.slow

JSON = {"content-type": "application/json"}
GZIP = {**PROTOBUF, "content-encoding": "gzip"}
GOOD = request_of(*rag_trace(0))


@pytest.fixture
async def collector(tmp_path: Path) -> AsyncIterator[Collector]:
    # A quiet period longer than any test: what was kept stays in the store to be looked at.
    config = config_of(
        tmp_path,
        assemble={"quiet_period": "10m", "deadline": "10m"},
        receive={"max_message_bytes": 1_000_000},
        drain_timeout="0s",
    )
    async with running_collector(config) as running:
        yield running


async def kept(collector: Collector, number: int = 0) -> set[str]:
    payloads = (await collector.pipeline.store.spans(trace_id_of(number))).payloads
    return {span.span_id for payload in payloads for span in decode(payload)}


ALL_THREE = {span.span_id for span in rag_trace(0)}


def refusal(response: httpx.Response) -> str:
    if response.headers["content-type"] == "application/json":
        return str(response.json()["message"])
    return status_pb2.Status.FromString(response.content).message


async def test_http_and_grpc_take_what_otlp_allows_and_a_success_is_an_empty_answer(
    collector: Collector,
) -> None:
    bodies = {number: request_of(*rag_trace(number)) for number in range(7)}
    in_json = {number: encode_json(rag_trace(number)).encode() for number in range(7)}
    sent = [
        (bodies[0], PROTOBUF),
        (gzip.compress(bodies[1]), GZIP),
        (in_json[2], JSON),
        (gzip.compress(in_json[3]), {**JSON, "content-encoding": "gzip"}),
        (bodies[4], {"content-type": "application/x-protobuf; charset=utf-8"}),
        (b"", PROTOBUF),
    ]
    for body, headers in sent:
        response = await post(collector, body, headers)
        assert response.headers["content-type"] == headers["content-type"].partition(";")[0]
        assert (response.status_code, response.content in (b"", b"{}")) == (200, True), headers
    for number, compression in ((5, grpc.Compression.NoCompression), (6, grpc.Compression.Gzip)):
        answer = await send_grpc(collector, bodies[number], compression=compression)
        assert answer == ExportTraceServiceResponse()
    for number in range(7):
        assert await kept(collector, number) == ALL_THREE, number


async def test_spans_without_ids_are_a_partial_success_and_the_others_are_kept(collector: Collector) -> None:
    request = ExportTraceServiceRequest.FromString(GOOD)
    spans = request.resource_spans[0].scope_spans[0].spans
    spans[1].span_id = bytes(8)
    spans[2].trace_id = b"short"
    answer = await send_grpc(collector, request.SerializeToString())
    assert answer.partial_success.rejected_spans == 2
    assert "id" in answer.partial_success.error_message
    over_http = await post(collector, request.SerializeToString())
    assert ExportTraceServiceResponse.FromString(over_http.content) == answer
    assert len(await kept(collector)) == 1


DEEP_JSON = b'{"resourceSpans":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("body", "headers", "status", "said"),
    [
        (b"\xff\xfe garbage \x00", PROTOBUF, 400, "not an OTLP protobuf"),
        (GOOD[:-7], PROTOBUF, 400, "not an OTLP protobuf"),
        (b"{", JSON, 400, "JSON"),
        (b"[1, 2]", JSON, 400, ""),
        (b"\xff\xfe", JSON, 400, ""),
        (DEEP_JSON, JSON, 400, ""),
        (GOOD, {"content-type": "text/plain"}, 415, "application/x-protobuf"),
        (GOOD, {}, 415, "application/x-protobuf"),
        (GOOD, {**PROTOBUF, "content-encoding": "br"}, 415, "gzip"),
        (b"not gzip", GZIP, 400, "not gzip"),
        (gzip.compress(GOOD)[:-20], GZIP, 400, "truncated"),
        (bytes(1_000_001), PROTOBUF, 413, "max_message_bytes"),
        (gzip.compress(bytes(1_000_001)), GZIP, 413, "max_message_bytes"),
    ],
    ids=[
        "garbage", "cut off", "cut off json", "json list", "json not utf-8", "deep json",
        "wrong type", "no type",
        "unknown coding", "not gzip", "cut off gzip", "too large", "too large unpacked",
    ],
)  # fmt: skip
async def test_http_refuses_as_otlp_prescribes(
    collector: Collector, body: bytes, headers: dict[str, str], status: int, said: str
) -> None:
    response = await post(collector, body, headers)
    assert response.status_code == status
    assert said in refusal(response)
    assert (await post(collector, GOOD)).status_code == 200


@pytest.mark.parametrize("body", [b"\xff\xfe garbage \x00", GOOD[:-7]], ids=["garbage", "cut off"])
async def test_grpc_refuses_garbage_for_good(collector: Collector, body: bytes) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await send_grpc(collector, body)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert await send_grpc(collector, GOOD) == ExportTraceServiceResponse()


async def test_other_methods_and_paths_are_refused(collector: Collector) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{collector.http_port}") as client:
        assert (await client.get("/v1/traces")).status_code == 405
        assert (await client.post("/v1/metrics", content=b"")).status_code == 404
        assert (await client.get("/healthz")).json() == {"status": "ok"}


async def test_a_full_store_asks_senders_to_come_back(tmp_path: Path) -> None:
    config = config_of(
        tmp_path, store={"max_bytes": 400_000}, assemble={"quiet_period": "10m"}, drain_timeout="0s"
    )
    async with running_collector(config) as collector:
        body = request_of(*rag_trace(0, answer="x" * 500_000))
        assert (await post(collector, body)).status_code == 200
        response = await post(collector, GOOD)
        assert (response.status_code, response.headers["retry-after"]) == (503, "5")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await send_grpc(collector, GOOD)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    details = dict(caught.value.trailing_metadata() or ())["grpc-status-details-bin"]
    info = error_details_pb2.RetryInfo()
    assert status_pb2.Status.FromString(details).details[0].Unpack(info)
    assert info.retry_delay.seconds == 5


async def test_a_taken_port_is_named(tmp_path: Path, collector: Collector) -> None:
    (tmp_path / "second").mkdir()
    for receiver in ("grpc", "http"):
        port = collector.grpc_port if receiver == "grpc" else collector.http_port
        taken = config_of(tmp_path / "second", receive={receiver: f"127.0.0.1:{port}"})
        with pytest.raises(ConfigError, match=rf"`receive\.{receiver}`: cannot listen"):
            async with running_collector(taken):
                pass
