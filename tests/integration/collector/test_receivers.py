"""The receivers: every kind of bad input gets the answer OTLP prescribes, and the collector lives on."""

from __future__ import annotations

import gc
import gzip
import json
import tracemalloc
import zlib
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
from ragtrace.traces.otlp import decode, encode_json, request_to_json
from ragtrace_collector.service.collector import Collector
from tests.integration.collector.running import (
    PROTOBUF,
    config_of,
    half_a_request,
    post,
    request_of,
    running_collector,
    send_grpc,
    until,
)
from tests.patience import PATIENCE_S
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


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (GOOD, PROTOBUF),
        (gzip.compress(GOOD), GZIP),
        (encode_json(rag_trace(0)).encode(), JSON),
        (gzip.compress(encode_json(rag_trace(0)).encode()), {**JSON, "content-encoding": "gzip"}),
        (GOOD, {"content-type": "application/x-protobuf; charset=utf-8"}),
    ],
    ids=["protobuf", "protobuf gzip", "json", "json gzip", "with a parameter"],
)
async def test_http_takes_what_otlp_allows(
    collector: Collector, body: bytes, headers: dict[str, str]
) -> None:
    response = await post(collector, body, headers)
    assert response.status_code == 200
    assert response.headers["content-type"] == headers["content-type"].partition(";")[0]
    assert await kept(collector) == ALL_THREE


async def test_a_full_success_is_an_empty_answer(collector: Collector) -> None:
    assert (await post(collector, GOOD)).content == b""
    assert (await post(collector, encode_json(rag_trace(1)).encode(), JSON)).json() == {}
    assert await send_grpc(collector, GOOD) == ExportTraceServiceResponse()


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_grpc_takes_what_otlp_allows(collector: Collector, compression: grpc.Compression) -> None:
    await send_grpc(collector, GOOD, compression=compression)
    assert await kept(collector) == ALL_THREE


async def test_an_empty_request_is_a_success(collector: Collector) -> None:
    assert (await post(collector, b"")).status_code == 200
    assert await send_grpc(collector, b"") == ExportTraceServiceResponse()


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


async def test_an_id_that_is_none_rejects_its_span_of_a_json_request_alone(collector: Collector) -> None:
    tree = json.loads(request_to_json(ExportTraceServiceRequest.FromString(GOOD)))
    spans = tree["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans[1]["spanId"] = "abc"
    spans[2]["traceId"] = "not hex"
    answer = await post(collector, json.dumps(tree).encode(), JSON)
    assert (answer.status_code, answer.json()["partialSuccess"]["rejectedSpans"]) == (200, "2")
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


async def test_what_is_under_way_is_bounded_however_many_send(collector: Collector) -> None:
    stuck = [await half_a_request(collector.http_port, 900_000) for _ in range(9)]
    await until(lambda: collector.counters.snapshot()["requests_put_off"] == 1)
    assert (await post(collector, GOOD)).status_code == 200
    large = request_of(*rag_trace(1, answer="x" * 400_000))
    response = await post(collector, large)
    assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await send_grpc(collector, large)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    for _, writer in stuck:
        writer.close()
    await until(lambda: collector.pipeline.intake.room._free_bytes == 8_000_000)
    assert (await post(collector, large)).status_code == 200


async def test_a_gzip_bomb_is_refused_before_it_unfolds(collector: Collector) -> None:
    # A hundred times the limit in 100 kB.
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    piece = bytes(1 << 20)
    bomb = b"".join(squeeze.compress(piece) for _ in range(100)) + squeeze.flush()
    tracemalloc.start()
    try:
        response = await post(collector, bomb, GZIP)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert response.status_code == 413
    assert peak_bytes < 16 << 20


@pytest.mark.parametrize("body", [b"\xff\xfe garbage \x00", GOOD[:-7]], ids=["garbage", "cut off"])
async def test_grpc_refuses_garbage_for_good(collector: Collector, body: bytes) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await send_grpc(collector, body)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert await send_grpc(collector, GOOD) == ExportTraceServiceResponse()


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_grpc_refuses_twenty_megabytes(collector: Collector, compression: grpc.Compression) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await send_grpc(collector, bytes(20 << 20), compression=compression)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await send_grpc(collector, GOOD) == ExportTraceServiceResponse()


async def test_grpc_keeps_no_message_after_its_answer(collector: Collector) -> None:
    """Cycles are looked for seldom: what is in one would fill the memory meanwhile."""
    await send_grpc(collector, request_of(*rag_trace(0, answer="x" * 100_000)))
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for number in range(1, 21):
            await send_grpc(collector, request_of(*rag_trace(number, answer="x" * 100_000)))
        left_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert left_bytes < 1_000_000  # of more than four million that came


@pytest.mark.parametrize(
    ("messages", "number"), [([], "no message"), ([GOOD, GOOD], "more than one message")]
)
async def test_grpc_refuses_a_call_without_one_message(
    collector: Collector, messages: list[bytes], number: str
) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        call = channel.stream_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(iter(messages), timeout=PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == f"the call holds {number}"


async def test_a_lone_surrogate_in_json_is_answered(collector: Collector) -> None:
    body = encode_json(rag_trace(0)).replace("Refunds take", "\\ud800 take").encode()
    assert (await post(collector, body, JSON)).status_code == 200


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
