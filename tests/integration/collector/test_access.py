"""Tokens: who has none is told so before anything is read, and nobody speaks for another tenant."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace import semconv
from ragtrace.errors import ConfigError
from ragtrace.traces.otlp import decode, encode_json
from ragtrace_collector.service.collector import Collector
from ragtrace_collector.store.records import trace_key
from tests.integration.collector.running import PROTOBUF, config_of, post, request_of, running_collector
from tests.integration.collector.running import send_grpc as send
from tests.rag_spans import rag_trace, trace_id_of

GOOD = request_of(*rag_trace(0))
TOKEN = "rt_the-token-of-checkout"
READER = "rt_the-token-of-prometheus"
BEARER = {"authorization": f"Bearer {TOKEN}"}


def entry(token: str, name: str, **more: Any) -> Mapping[str, Any]:
    return {"name": name, "sha256": hashlib.sha256(token.encode()).hexdigest(), **more}


def guarded_config(folder: Path, **of_token: Any) -> Any:
    return config_of(
        folder,
        receive={"tokens": [entry(TOKEN, "checkout", **of_token), entry(READER, "prometheus", may=["read"])]},
        assemble={"quiet_period": "10m", "deadline": "10m"},
        drain_timeout="0s",
    )


async def refused_over_grpc(collector: Collector, metadata: tuple[tuple[str, str], ...] = ()) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await send(collector, GOOD, metadata=metadata)
    return caught.value


async def stored(collector: Collector, number: int = 0, tenant: str | None = None) -> list[Any]:
    return [
        span
        for payload in (await collector.pipeline.store.spans(trace_key(trace_id_of(number), tenant))).payloads
        for span in decode(payload)
    ]


async def test_who_has_no_token_sends_nothing(tmp_path: Path) -> None:
    async with running_collector(guarded_config(tmp_path)) as collector:
        for given in ("", "Bearer rt_guessed", TOKEN, "Basic x"):
            headers = {"authorization": given} if given else {}
            over_http = await post(collector, GOOD, {**PROTOBUF, **headers})
            assert (over_http.status_code, over_http.headers["www-authenticate"]) == (401, "Bearer")
            error = await refused_over_grpc(collector, tuple(headers.items()))
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        assert await stored(collector) == []


async def test_a_token_is_known_by_every_byte_of_its_digest(tmp_path: Path) -> None:
    """Each token of the configuration has the digest of ours but for one byte: none of them is ours."""
    digest = hashlib.sha256(TOKEN.encode()).digest()
    almost = [
        {"name": f"byte {place}", "sha256": bytes((*digest[:place], byte ^ 1, *digest[place + 1 :])).hex()}
        for place, byte in enumerate(digest)
    ]
    async with running_collector(config_of(tmp_path, receive={"tokens": almost})) as collector:
        assert (await post(collector, GOOD, {**PROTOBUF, **BEARER})).status_code == 401
        error = await refused_over_grpc(collector, tuple(BEARER.items()))
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        assert await stored(collector) == []


async def test_a_token_may_do_what_it_was_made_for_alone(tmp_path: Path) -> None:
    async with running_collector(guarded_config(tmp_path)) as collector:
        reader = {"authorization": f"Bearer {READER}"}
        assert (await post(collector, GOOD, {**PROTOBUF, **reader})).status_code == 403
        error = await refused_over_grpc(collector, tuple(reader.items()))
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{collector.http_port}") as client:
            answers = [await client.get("/status", headers=each) for each in ({}, BEARER, reader)]
        assert [answer.status_code for answer in answers] == [401, 403, 200]


@pytest.mark.parametrize("tenant", ["shop", None])
async def test_a_sender_cannot_claim_another_tenant(tmp_path: Path, tenant: str | None) -> None:
    request = ExportTraceServiceRequest.FromString(GOOD)
    resource_spans = request.resource_spans[0]
    resource_spans.resource.attributes.add(key=semconv.TENANT).value.string_value = "victim"
    for span in resource_spans.scope_spans[0].spans:
        span.attributes.add(key=semconv.TENANT).value.string_value = "victim"
    in_json = encode_json(rag_trace(1)).replace(
        '"attributes":[', '"attributes":[{"key":"ragtrace.ten\\u0061nt","value":{"stringValue":"victim"}},'
    )
    of_token = {"tenant": tenant} if tenant else {}
    async with running_collector(guarded_config(tmp_path, **of_token)) as collector:
        await send(collector, request.SerializeToString(), metadata=tuple(BEARER.items()))
        await post(collector, in_json.encode(), {"content-type": "application/json", **BEARER})
        spans = [span for number in (0, 1) for span in await stored(collector, number, tenant)]
    assert len(spans) == 2 * len(rag_trace(0))
    assert {span.resource.attributes.get(semconv.TENANT) for span in spans} == {tenant}
    assert not any(semconv.TENANT in span.attributes for span in spans)


async def test_an_allowance_that_is_used_up_is_answered_with_the_time_to_wait(tmp_path: Path) -> None:
    async with running_collector(guarded_config(tmp_path, limits={"spans": 6})) as collector:
        headers = {**PROTOBUF, **BEARER}
        statuses = [(await post(collector, GOOD, headers)).status_code for _ in range(2)]
        over_http = await post(collector, GOOD, headers)
        error = await refused_over_grpc(collector, tuple(BEARER.items()))
    assert statuses == [200, 200]
    assert over_http.status_code == 429
    assert 1 <= int(over_http.headers["retry-after"]) <= 30
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    details = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"]).details
    retry = error_details_pb2.RetryInfo()
    assert details[0].Unpack(retry)
    assert retry.retry_delay.seconds >= 1


async def test_tokens_are_changed_while_the_collector_runs(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text(json.dumps([entry(TOKEN, "old")]))
    config = config_of(tmp_path, receive={"tokens_file": str(tokens)})
    async with running_collector(config) as collector:
        assert (await post(collector, GOOD, {**PROTOBUF, **BEARER})).status_code == 200
        tokens.write_text(json.dumps([entry(READER, "new")]))
        collector.auth.reload(config.receive)
        assert (await post(collector, GOOD, {**PROTOBUF, **BEARER})).status_code == 401
        new = {"authorization": f"Bearer {READER}"}
        assert (await post(collector, GOOD, {**PROTOBUF, **new})).status_code == 200
        tokens.write_text(f"- {TOKEN}")
        with pytest.raises(ConfigError, match="is not a list of tokens") as caught:
            collector.auth.reload(config.receive)
        assert TOKEN not in str(caught.value)
        assert (await post(collector, GOOD, {**PROTOBUF, **new})).status_code == 200
