"""Log records that the collector passes on: all that come, once, through outages, and never in a circle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)

from ragtrace import semconv
from ragtrace_collector.config import CollectorConfig
from tests.integration.collector.running import config_of, post, request_of, running_collector, until
from tests.integration.collector.test_access import BEARER, TOKEN, entry
from tests.integration.collector.test_evaluation_logs import exports, records_at, results_in
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
from tests.unit.backends.servers import HttpAnswer, HttpServer, http_server

pytestmark = pytest.mark.slow

LOGIN = record("", text("user logged in"))
BODY = logs_of(details(), LOGIN, record("app.other", text("cart emptied")))
RECORDS = list(ExportLogsServiceRequest.FromString(BODY).resource_logs[0].scope_logs[0].log_records)


def forwarding(folder: Path, server: HttpServer, **changes: Any) -> CollectorConfig:
    to_file, to_logs = exports(folder, f"logs:{server.url}")
    return config_of(folder, export=[to_file, {**to_logs, "forward": True}], **changes)


async def test_all_records_go_on_as_they_came_and_messages_are_read_too(tmp_path: Path) -> None:
    with http_server(lambda _: HttpAnswer()) as store:
        async with running_collector(forwarding(tmp_path, store)) as collector:
            assert (await send_logs(collector, BODY)).content == b""
            assert (await send_logs(collector, logs_of(LOGIN))).content == b""
            await post(collector, request_of(*without_messages()))
            assert (await verdict(tmp_path)).attributes[SCORE] == 0.5
            await until(lambda: results_in(records_at(store)))
            counts = collector.counters.snapshot()
            put = (await collector.pipeline.store.ledger()).outbox_items
    of_application = [each for each in records_at(store) if each.event_name not in _OURS]
    assert of_application == [*RECORDS, LOGIN]
    assert (counts["log_records"], counts["log_records_other"], counts["log_records_forwarded"]) == (1, 0, 4)
    assert put[f"forward:logs:{store.url}"]["put"] == 2


_OURS = (semconv.EVALUATION_RESULT, "ragtrace.claim.contradicted", "ragtrace.claim.unsupported")


async def test_evaluations_that_come_back_do_not_go_round(tmp_path: Path) -> None:
    request = ExportLogsServiceRequest.FromString(BODY)
    own = request.resource_logs[0].scope_logs.add()
    own.scope.name = semconv.SCOPE_EVALUATION
    own.log_records.append(record(semconv.EVALUATION_RESULT))
    with http_server(lambda _: HttpAnswer()) as store:
        async with running_collector(forwarding(tmp_path, store)) as collector:
            response = await send_logs(collector, request.SerializeToString())
            await until(lambda: store.requests)
            counts = collector.counters.snapshot()
    told = ExportLogsServiceResponse.FromString(response.content).partial_success
    assert (told.rejected_log_records, counts["log_records_other"]) == (1, 1)
    assert "evaluations by ragtrace" in told.error_message
    assert records_at(store) == RECORDS


async def test_they_bear_the_tenant_of_the_token_and_no_other(tmp_path: Path) -> None:
    claimed = record("", text("mine"), ragtrace__tenant="other")
    tokens = {"tokens": [entry(TOKEN, "checkout", tenant="acme")]}
    with http_server(lambda _: HttpAnswer()) as store:
        async with running_collector(forwarding(tmp_path, store, receive=tokens)) as collector:
            await send_logs(collector, logs_of(claimed), headers=BEARER)
            await until(lambda: store.requests)
    (of_resource,) = ExportLogsServiceRequest.FromString(store.requests[0][2]).resource_logs
    assert [(each.key, each.value.string_value) for each in of_resource.resource.attributes] == [
        (semconv.TENANT, "acme")
    ]
    assert not records_at(store)[0].attributes
