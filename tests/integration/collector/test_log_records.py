"""Messages in log records: read with their span in any order, durable as spans; others are refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from ragtrace import semconv
from ragtrace.traces.otlp import decode
from ragtrace.traces.trace import Span
from ragtrace_collector.service.collector import Collector
from tests.backends.otelcol import OtelCol
from tests.backends.otlp_receiver import running_receiver
from tests.backends.process import free_ports
from tests.integration.cli.program import run
from tests.integration.collector.running import (
    PROTOBUF,
    carriers_in,
    config_of,
    post,
    request_of,
    running_collector,
    until,
)
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace
from tests.unit.traces.recordings import FOLDER, Recording, all_recordings

pytestmark = pytest.mark.slow

OTELCOL_CONFIG = Path(__file__).parents[3] / "otel-config.yaml"
SCORE = f"{semconv.SCORE_PREFIX}faithfulness"
QUESTION, ANSWER = "How long do refunds take?", "Refunds take 14 days. Refunds take 30 days."


def without_messages() -> tuple[Span, ...]:
    """Return a retrieval and a model call whose messages are not on its span."""
    root, retrieval, generation = rag_trace(0)
    bare = {
        key: value
        for key, value in generation.attributes.items()
        if key not in (semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES)
    }
    plain = replace(root, attributes={}, name="GET /ask")
    return plain, retrieval, replace(generation, attributes=bare)


def text(value: str) -> AnyValue:
    return AnyValue(string_value=value)


def record(name: str, body: AnyValue | None = None, /, **attributes: str) -> LogRecord:
    generation = rag_trace(0)[2]
    return LogRecord(
        event_name=name,
        trace_id=bytes.fromhex(generation.trace_id),
        span_id=bytes.fromhex(generation.span_id),
        time_unix_nano=generation.start_ns,
        body=body,
        attributes=[
            KeyValue(key=key.replace("__", "."), value=text(said)) for key, said in attributes.items()
        ],
    )


def a_map(**pairs: Any) -> AnyValue:
    values = [
        KeyValue(key=key, value=value if isinstance(value, AnyValue) else text(value))
        for key, value in pairs.items()
    ]
    return AnyValue(kvlist_value=KeyValueList(values=values))


def details() -> LogRecord:
    """Return the event of OpenTelemetry's conventions from 1.37 on."""
    asked = json.dumps([{"role": "user", "parts": [{"type": "text", "content": QUESTION}]}])
    answered = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}])
    return record(
        "gen_ai.client.inference.operation.details",
        gen_ai__input__messages=asked,
        gen_ai__output__messages=answered,
    )


OLD = (
    record("gen_ai.user.message", a_map(content=QUESTION)),
    record("gen_ai.choice", a_map(finish_reason="stop", message=a_map(role="assistant", content=ANSWER))),
)
"""The events of the conventions before."""
NAMED_BY_ATTRIBUTE = tuple(LogRecord.FromString(each.SerializeToString()) for each in OLD)
for each in NAMED_BY_ATTRIBUTE:
    each.attributes.add(key="event.name").value.string_value = each.event_name
    each.event_name = ""


def logs_of(*records: LogRecord) -> bytes:
    request = ExportLogsServiceRequest()
    request.resource_logs.add().scope_logs.add().log_records.extend(records)
    return request.SerializeToString()


async def send_logs(
    collector: Collector,
    body: bytes,
    content_type: str = "application/x-protobuf",
    headers: Mapping[str, str] = MappingProxyType({}),
) -> httpx.Response:
    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        return await client.post(
            f"http://127.0.0.1:{collector.http_port}/v1/logs",
            content=body,
            headers={"content-type": content_type, **headers},
        )


async def verdict(folder: Path, number: int = 1) -> Span:
    found = await until(lambda: len(all_of := carriers_in(folder / "out.jsonl")) >= number and all_of)
    return found[-1]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "records", [(details(),), OLD, NAMED_BY_ATTRIBUTE], ids=["details", "messages", "named by an attribute"]
)
async def test_an_answer_in_log_records_is_judged(tmp_path: Path, records: Sequence[LogRecord]) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        assert (await send_logs(collector, logs_of(*records))).content == b""
        await post(collector, request_of(*without_messages()))
        carrier = await verdict(tmp_path)
    assert carrier.attributes[SCORE] == 0.5
    assert carrier.parent_span_id == without_messages()[2].span_id


async def test_other_records_are_a_partial_success_and_are_not_kept(tmp_path: Path) -> None:
    no_span = details()
    no_span.span_id = b""
    others = [record("", text("user logged in")), record("gen_ai.evaluation.result"), no_span]
    async with running_collector(config_of(tmp_path)) as collector:
        answer = ExportLogsServiceResponse.FromString(
            (await send_logs(collector, logs_of(details(), *others))).content
        )
        counts = collector.counters.snapshot()
    assert answer.partial_success.rejected_log_records == 3
    assert "no messages of a GenAI call" in answer.partial_success.error_message
    assert (counts["log_records"], counts["log_records_other"]) == (1, 3)


async def test_back_ends_get_the_spans_and_no_stand_in(tmp_path: Path) -> None:
    with running_receiver() as downstream:
        config = config_of(
            tmp_path, export=[{"endpoint": downstream.endpoint, "forward": True}], attach={"mode": "hold"}
        )
        async with running_collector(config) as collector:
            await send_logs(collector, logs_of(details()))
            await post(collector, request_of(*without_messages()))
            await until(lambda: len(downstream.spans) >= 3)
        spans = [each for request in downstream.requests for each in decode(request.SerializeToString())]
    assert len(spans) == 3
    assert semconv.LOG_RECORDS_SPAN not in {span.name for span in spans}
    assert any(span.attributes.get(SCORE) == 0.5 for span in spans)


async def test_the_shipped_otelcol_configuration_passes_on_messages_and_no_other_logs(
    tmp_path: Path, otelcol: OtelCol
) -> None:
    grpc_port, http_port, metrics_port, nowhere = free_ports(4)
    async with running_collector(config_of(tmp_path, assemble={"quiet_period": "2s"})) as collector:
        env = {
            "OTELCOL_OTLP_GRPC": f"127.0.0.1:{grpc_port}",
            "OTELCOL_OTLP_HTTP": f"127.0.0.1:{http_port}",
            "OTELCOL_METRICS": str(metrics_port),
            "TRACES_ENDPOINT": f"127.0.0.1:{nowhere}",
            "RAGTRACE_ENDPOINT": f"127.0.0.1:{collector.grpc_port}",
        }
        with otelcol.run(OTELCOL_CONFIG, env=env, listens_on=(grpc_port, http_port)):
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{http_port}", headers=PROTOBUF
            ) as client:
                logged = logs_of(*NAMED_BY_ATTRIBUTE, record("", text("user logged in")))
                assert (await client.post("/v1/logs", content=logged)).status_code == 200
                spans = request_of(*without_messages())
                assert (await client.post("/v1/traces", content=spans)).status_code == 200
            assert (await verdict(tmp_path)).attributes[SCORE] == 0.5
        counts = collector.counters.snapshot()
    assert (counts["log_records"], counts["log_records_other"]) == (2, 0)


# -- of real instrumentations
LOGS = {file.name.removesuffix(".logs.jsonl"): file for file in sorted(FOLDER.glob("*.logs.jsonl"))}
RECORDINGS = tuple(each for each in all_recordings() if each.name in LOGS)
WITHOUT_PASSAGES = {f"otel-genai.{agent}.events" for agent in ("langchain-agent", "llamaindex-agent")} | {
    f"otel-genai.openai-agents{how}.events" for how in ("", "-streaming")
}
"""What their tools found is in no log record, and in no attribute."""


def trace_of(recording: Recording) -> str:
    return recording.spans[0].trace_id


async def test_recorded_ones_are_judged_on_their_question_their_passages_and_their_answer(
    tmp_path: Path,
) -> None:
    """Recorded spans and log records of real instrumentations, logs before spans."""
    judged = {trace_of(each) for each in RECORDINGS if each.name not in WITHOUT_PASSAGES}
    async with running_collector(config_of(tmp_path)) as collector:
        for each in RECORDINGS:
            for line in LOGS[each.name].read_text("utf-8").splitlines():
                assert (await send_logs(collector, line.encode(), "application/json")).json() == {}
        for each in RECORDINGS:
            await post(collector, request_of(*each.spans))
        written = tmp_path / "out.jsonl"
        await until(
            lambda: {each.trace_id for each in carriers_in(written) if SCORE in each.attributes} >= judged
        )
    for each in RECORDINGS:
        place = ("--from", f"store:{tmp_path / 'store.db'}", "--json")
        (record,) = json.loads((await asyncio.to_thread(run, "explain", trace_of(each), *place)).stdout)[
            "records"
        ]
        assert (record["question"], record["answer"]) == (each.question, each.answer), each.name
        context = "\n".join(chunk["text"] for chunk in record["contexts"])
        has_passages = each.name not in WITHOUT_PASSAGES
        assert all(chunk["text"] in context for chunk in each.chunks) == has_passages, each.name
        gaps = [gap["reason"] for gap in record["gaps"] if gap["part"] == "context"]
        assert has_passages or gaps == ["no_content"], each.name
