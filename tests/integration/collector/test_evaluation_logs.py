"""Log records that leave the collector: evaluations, and those of applications that it passes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from ragtrace import semconv
from ragtrace_collector.config import CollectorConfig
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    post,
    request_of,
    running_collector,
    until,
)
from tests.integration.collector.test_access import BEARER, TOKEN, entry
from tests.integration.collector.test_log_records import (
    SCORE,
    details,
    logs_of,
    record,
    send_logs,
    text,
    verdict,
    without_messages,
)
from tests.rag_spans import rag_trace, trace_id_of
from tests.unit.backends.servers import HttpAnswer, HttpServer, http_server

pytestmark = pytest.mark.slow

WRONG = "Refunds take 99 years."
LOGIN = record("", text("user logged in"))
BODY = logs_of(details(), LOGIN, record("app.other", text("cart emptied")))
RECORDS = list(ExportLogsServiceRequest.FromString(BODY).resource_logs[0].scope_logs[0].log_records)
OURS = (semconv.EVALUATION_RESULT, "ragtrace.claim.contradicted", "ragtrace.claim.unsupported")


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


def told(record: LogRecord, key: str) -> str:
    return "".join(pair.value.string_value for pair in record.attributes if pair.key == key)


def exporting(folder: Path, address: str, *, forward: bool = False, **changes: Any) -> CollectorConfig:
    """Return a configuration with one more export."""
    file = {"endpoint": f"otlp-file:{folder / 'out.jsonl'}"}
    return config_of(folder, export=[file, {"endpoint": address, "forward": forward}], **changes)


@pytest.mark.parametrize("content", [True, False])
async def test_results_and_wrong_claims_are_log_records_on_the_judged_span(
    tmp_path: Path, content: bool
) -> None:
    with http_server(lambda _: HttpAnswer()) as store:
        config = exporting(tmp_path, f"logs:{store.url}", attach={"content": content})
        async with running_collector(config) as ours:
            await post(ours, request_of(*rag_trace(0, answer=WRONG)))
            await until(lambda: len(records_at(store)) >= 2)
        records = records_at(store)
    (carrier,) = carriers_in(tmp_path / "out.jsonl")
    assert {(each.trace_id.hex(), each.span_id.hex()) for each in records} == {
        (trace_id_of(0), carrier.parent_span_id)
    }
    assert {told(each, semconv.CARRIER_SPAN_ID) for each in records} == {carrier.span_id}
    results = [each for each in records if each.event_name == semconv.EVALUATION_RESULT]
    assert [(told(each, semconv.EVALUATION_LABEL), each.severity_text) for each in results] == [
        ("fail", "WARN")
    ]
    (claim,) = [each for each in records if each not in results]
    assert (claim.event_name in OURS, told(claim, semconv.CLAIM_ASSERTION)) == (True, WRONG * content)
    assert (b"99 years" in b"".join(body for _, _, body in store.requests)) is content


async def test_scores_go_to_langfuse_while_the_collector_runs(tmp_path: Path) -> None:
    with http_server(lambda _: HttpAnswer()) as langfuse:
        async with running_collector(exporting(tmp_path, f"langfuse:{langfuse.url}")) as ours:
            await post(ours, request_of(*rag_trace(0)))
            await until(lambda: langfuse.requests)
    assert {path for path, _, _ in langfuse.requests} == {"/api/public/scores"}


async def test_all_records_go_on_as_they_came_and_messages_are_read_too(tmp_path: Path) -> None:
    with http_server(lambda _: HttpAnswer()) as store:
        config = exporting(tmp_path, f"logs:{store.url}", forward=True)
        async with running_collector(config) as collector:
            assert (await send_logs(collector, BODY)).content == b""
            assert (await send_logs(collector, logs_of(LOGIN))).content == b""
            await post(collector, request_of(*without_messages()))
            assert (await verdict(tmp_path)).attributes[SCORE] == 0.5
            await until(lambda: any(each.event_name in OURS for each in records_at(store)))
            counts = collector.counters.snapshot()
    assert [each for each in records_at(store) if each.event_name not in OURS] == [*RECORDS, LOGIN]
    assert (counts["log_records"], counts["log_records_other"], counts["log_records_forwarded"]) == (1, 0, 4)


async def test_evaluations_that_come_back_do_not_go_round(tmp_path: Path) -> None:
    request = ExportLogsServiceRequest.FromString(BODY)
    own = request.resource_logs[0].scope_logs.add()
    own.scope.name = semconv.SCOPE_EVALUATION
    own.log_records.append(record(semconv.EVALUATION_RESULT))
    with http_server(lambda _: HttpAnswer()) as store:
        config = exporting(tmp_path, f"logs:{store.url}", forward=True)
        async with running_collector(config) as collector:
            response = await send_logs(collector, request.SerializeToString())
            await until(lambda: store.requests)
    partial = ExportLogsServiceResponse.FromString(response.content).partial_success
    assert partial.rejected_log_records == 1
    assert "evaluations by ragtrace" in partial.error_message
    assert records_at(store) == RECORDS


async def test_they_bear_the_tenant_of_the_token_and_no_other(tmp_path: Path) -> None:
    claimed = record("", text("mine"), ragtrace__tenant="other")
    tokens = {"tokens": [entry(TOKEN, "checkout", tenant="acme")]}
    with http_server(lambda _: HttpAnswer()) as store:
        config = exporting(tmp_path, f"logs:{store.url}", forward=True, receive=tokens)
        async with running_collector(config) as collector:
            await send_logs(collector, logs_of(claimed), headers=BEARER)
            await until(lambda: store.requests)
    (of_resource,) = ExportLogsServiceRequest.FromString(store.requests[0][2]).resource_logs
    assert [(each.key, each.value.string_value) for each in of_resource.resource.attributes] == [
        (semconv.TENANT, "acme")
    ]
    assert not records_at(store)[0].attributes
