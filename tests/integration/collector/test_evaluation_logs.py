"""Evaluations as log records: through a real OpenTelemetry Collector, and through outages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from ragtrace import semconv
from ragtrace.errors import ConfigError
from tests.backends.otelcol import OtelCol
from tests.backends.process import free_ports
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    post,
    request_of,
    running_collector,
    until,
)
from tests.rag_spans import rag_trace, trace_id_of
from tests.unit.backends.servers import HttpAnswer, HttpServer, http_server

WRONG = "Refunds take 99 years."


def records_at(server: HttpServer) -> list[LogRecord]:
    """Return the log records that a receiver was sent."""
    requests = [ExportLogsServiceRequest.FromString(body) for path, _, body in server.requests]
    assert {path for path, _, _ in server.requests} <= {"/v1/logs"}
    return [
        record
        for request in requests
        for of_resource in request.resource_logs
        for of_scope in of_resource.scope_logs
        for record in of_scope.log_records
    ]


def results_in(records: list[LogRecord]) -> list[LogRecord]:
    return [record for record in records if record.event_name == semconv.EVALUATION_RESULT]


def told(record: LogRecord, key: str) -> Any:
    """Return the value of an attribute, or ``None``."""
    for pair in record.attributes:
        if pair.key == key:
            return getattr(pair.value, pair.value.WhichOneof("value") or "string_value")
    return None


def exports(folder: Path, logs: str) -> list[dict[str, object]]:
    return [{"endpoint": f"otlp-file:{folder / 'out.jsonl'}"}, {"endpoint": logs}]


@contextmanager
def otelcol_for_logs(otelcol: OtelCol, folder: Path, *, to: str) -> Iterator[dict[str, str]]:
    """Run an OpenTelemetry Collector with a pipeline of logs; yield our address for each protocol."""
    grpc, http, metrics = free_ports(3)
    config = folder / "logs.yaml"
    config.write_text(
        f"""
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: "127.0.0.1:{grpc}"}}
      http: {{endpoint: "127.0.0.1:{http}"}}
exporters:
  otlphttp: {{endpoint: "{to}", compression: none}}
service:
  telemetry:
    metrics: {{readers: [{{pull: {{exporter: {{prometheus: {{host: 127.0.0.1, port: {metrics}}}}}}}}}]}}
  pipelines: {{logs: {{receivers: [otlp], exporters: [otlphttp]}}}}
"""
    )
    with otelcol.run(config, env={}, listens_on=(grpc, http)):
        yield {"grpc": f"logs:grpc://127.0.0.1:{grpc}", "http": f"logs:http://127.0.0.1:{http}"}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_results_reach_a_log_store_through_a_real_collector_on_the_judged_span(
    tmp_path: Path, otelcol: OtelCol, protocol: str
) -> None:
    with (
        http_server(lambda _: HttpAnswer()) as store,
        otelcol_for_logs(otelcol, tmp_path, to=store.url) as addresses,
    ):
        async with running_collector(
            config_of(tmp_path, export=exports(tmp_path, addresses[protocol]))
        ) as ours:
            await post(ours, request_of(*rag_trace(0, answer=WRONG)))
            await until(lambda: len(records_at(store)) >= 2)
        records = records_at(store)
    (carrier,) = carriers_in(tmp_path / "out.jsonl")
    assert {record.trace_id.hex() for record in records} == {trace_id_of(0)}
    assert {record.span_id.hex() for record in records} == {carrier.parent_span_id}
    assert {told(record, semconv.CARRIER_SPAN_ID) for record in records} == {carrier.span_id}
    failed = [record for record in results_in(records) if told(record, semconv.EVALUATION_LABEL) == "fail"]
    assert failed
    assert {record.severity_text for record in failed} == {"WARN"}
    claims = [record for record in records if record not in results_in(records)]
    assert {record.event_name for record in claims} <= {
        "ragtrace.claim.contradicted",
        "ragtrace.claim.unsupported",
    }
    assert {told(claim, semconv.CLAIM_ASSERTION) for claim in claims} == {WRONG}


async def test_records_have_no_text_if_carriers_have_none(tmp_path: Path) -> None:
    with http_server(lambda _: HttpAnswer()) as store:
        config = config_of(tmp_path, export=exports(tmp_path, f"logs:{store.url}"), attach={"content": False})
        async with running_collector(config) as ours:
            await post(ours, request_of(*rag_trace(0, answer=WRONG)))
            await until(lambda: len(records_at(store)) >= 2)
        sent = b"".join(body for _, _, body in store.requests)
    assert b"99 years" not in sent
    assert b"ragtrace.claim.offset_start" in sent


@pytest.mark.parametrize("address", ["phoenix:http://host:6006", "langfuse:https://host"])
def test_what_accepts_only_evaluations_gets_no_spans(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError, match="accept evaluations only"):
        config_of(tmp_path, export=[{"endpoint": address, "forward": True}])


async def test_scores_go_to_langfuse_while_the_collector_runs(tmp_path: Path) -> None:
    with http_server(lambda _: HttpAnswer()) as langfuse:
        config = config_of(tmp_path, export=exports(tmp_path, f"langfuse:{langfuse.url}"))
        async with running_collector(config) as ours:
            await post(ours, request_of(*rag_trace(0)))
            await until(lambda: langfuse.requests)
    assert {path for path, _, _ in langfuse.requests} == {"/api/public/scores"}
