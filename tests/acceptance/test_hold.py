"""Hold mode as users meet it: the score is found on the answer span, and a crash loses and mixes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from ragtrace import semconv
from ragtrace.traces.otlp import encode
from tests.acceptance.collector_process import CollectorProcess, collector_process, settings_of
from tests.backends.jaeger_server import Jaeger
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace

pytestmark = pytest.mark.slow

LABEL = f"{semconv.LABEL_PREFIX}faithfulness"
WRONG = "Refunds take 30 days."


def config_of(folder: Path, back_end: str) -> dict[str, Any]:
    export = [{"endpoint": f"grpc://{back_end}", "forward": True}]
    return settings_of(folder, attach={"mode": "hold"}, export=export)


def send(collector: CollectorProcess, request: bytes) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")(
            request, timeout=PATIENCE_S
        )


def test_jaeger_finds_the_score_by_tag_on_the_answer_span_itself(tmp_path: Path, jaeger: Jaeger) -> None:
    right = rag_trace(900, service="held-shop")
    wrong = rag_trace(901, answer=WRONG, service="held-shop")
    with collector_process(tmp_path, config_of(tmp_path, jaeger.otlp_grpc)) as collector:
        send(collector, encode([*right, *wrong]))
        for spans in (right, wrong):
            jaeger.wait_for_trace(spans[0].trace_id, spans=3)
    (found,) = jaeger.search("held-shop", {LABEL: "fail"})
    (answer,) = [span for span in found["spans"] if any(tag["key"] == LABEL for tag in span["tags"])]
    assert int(found["traceID"], 16) == int(wrong[0].trace_id, 16)
    assert answer["operationName"] == wrong[0].name
    assert len(found["spans"]) == 3
    assert not any(span["warnings"] for span in found["spans"])
    events = [field["value"] for log in answer["logs"] for field in log["fields"] if field["key"] == "event"]
    assert events == [semconv.EVALUATION_RESULT, "ragtrace.claim.unsupported"]
    assert len(jaeger.search("held-shop", {LABEL: "pass"})) == 1
