"""The main job in a real Jaeger: an instrumented application, the collector, verdicts on the traces."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import ragtrace
from tests.acceptance.collector_process import collector_process, settings_of
from tests.backends.jaeger_server import Jaeger, JsonTrace
from tests.backends.otelcol import OtelCol
from tests.backends.process import eventually, free_ports

pytestmark = pytest.mark.slow


OTEL_CONFIG = Path(__file__).parents[2] / "otel-config.yaml"
CHUNKS = [
    ragtrace.Chunk(
        id="faq-12", text="Refunds take 14 days. They go to the card that was charged.", score=0.9
    ),
    ragtrace.Chunk(id="faq-7", text="Shipping is free above 50 euros.", score=0.4),
]
TEXTS = {chunk.id: chunk.text or "" for chunk in CHUNKS}
GOOD = {
    "How long do refunds take?": "Refunds take 14 days.",
    "Is shipping free?": "Shipping is free above 50 euros.",
}
BAD = {
    "How long do refunds take, roughly?": "Refunds take 30 days. They go to the card that was charged.",
    "Who pays for shipping?": "Shipping is free above 90 euros.",
}


def ask(question: str, answer: str) -> None:
    """Be an application: one RAG call, instrumented by hand."""
    with ragtrace.rag(question=question, name="ask") as call:
        with ragtrace.retrieval(query=question, data_source="faq", top_k=2) as retrieval:
            retrieval.set_chunks(CHUNKS)
        with ragtrace.generation(model="m-1", messages=[{"role": "user", "content": question}]) as generation:
            generation.set_answer(answer)
        call.set_answer(answer)


def tags(holder: Mapping[str, Any], key: str = "tags") -> dict[str, Any]:
    return {tag["key"]: tag["value"] for tag in holder[key]}


def question_of(trace: JsonTrace) -> str:
    messages = json.loads(tags(root_of(trace))["gen_ai.input.messages"])
    return str(messages[-1]["parts"][0]["content"])


def root_of(trace: JsonTrace) -> Mapping[str, Any]:
    (root,) = (span for span in trace["spans"] if not span["references"])
    return root  # type: ignore[no-any-return]


def claims_of(carrier: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    claims = [tags(log, "fields") for log in carrier["logs"]]
    found = [claim for claim in claims if "ragtrace.claim.assertion" in claim]
    assert found, "the carrier has no claims"
    return found


def carrier_of(trace: JsonTrace) -> Mapping[str, Any]:
    (carrier,) = (span for span in trace["spans"] if span["operationName"].startswith("evaluation "))
    return carrier  # type: ignore[no-any-return]


def config_of(folder: Path, export: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    evaluate = {"metrics": [{"name": "faithfulness", "threshold": 0.9}]}
    return settings_of(folder, judge={"use": "scripted"}, evaluate=evaluate, export=export)


def run_application(service: str, endpoint: str) -> None:
    ragtrace.instrument(service_name=service, endpoint=endpoint, protocol="grpc")
    try:
        for question, answer in {**GOOD, **BAD}.items():
            ask(question, answer)
    finally:
        ragtrace.uninstrument()


def wait_for_verdicts(jaeger: Jaeger, service: str) -> None:
    def all_judged() -> bool:
        traces = jaeger.search(service)
        return len(traces) == 4 and all(len(trace["spans"]) == 4 for trace in traces)

    eventually(all_judged, what=f"four judged traces of {service}")


@contextmanager
def through_the_collector_alone(folder: Path, jaeger: Jaeger) -> Iterator[str]:
    """application → ragtrace collector (forwards) → Jaeger."""
    export = [{"endpoint": jaeger.otlp_grpc, "forward": True}]
    with collector_process(folder, config_of(folder, export)) as collector:
        yield f"http://127.0.0.1:{collector.grpc_port}"


@contextmanager
def through_otelcol(folder: Path, jaeger: Jaeger, otelcol: OtelCol) -> Iterator[str]:
    """application → OpenTelemetry Collector → Jaeger and ragtrace; carriers go the same way."""
    grpc, http, metrics = free_ports(3)
    with collector_process(folder, config_of(folder, [{"endpoint": f"127.0.0.1:{grpc}"}])) as collector:
        env = {
            "OTELCOL_OTLP_GRPC": f"127.0.0.1:{grpc}",
            "OTELCOL_OTLP_HTTP": f"127.0.0.1:{http}",
            "OTELCOL_METRICS": str(metrics),
            "TRACES_ENDPOINT": jaeger.otlp_grpc,
            "RAGTRACE_ENDPOINT": f"127.0.0.1:{collector.grpc_port}",
        }
        with otelcol.run(OTEL_CONFIG, env=env, listens_on=(grpc, http)):
            yield f"http://127.0.0.1:{grpc}"


@pytest.mark.parametrize("way", ["alone", "otelcol"])
def test_bad_answers_are_found_in_jaeger_with_the_claim_and_the_chunk_that_contradicts_it(
    jaeger: Jaeger, otelcol: OtelCol, tmp_path: Path, way: str
) -> None:
    service, folder = f"shop-{way}", tmp_path
    path = (
        through_the_collector_alone(folder, jaeger)
        if way == "alone"
        else through_otelcol(folder, jaeger, otelcol)
    )
    with path as endpoint:
        run_application(service, endpoint)
        wait_for_verdicts(jaeger, service)

    def questions(**search: Any) -> set[str]:
        return {question_of(trace) for trace in jaeger.search(service, **search)}

    for search in (
        {"tags": {"ragtrace.label.faithfulness": "fail"}},
        {"tags": {"ragtrace.pass": "false"}},
        {"operation": "evaluation fail"},
    ):
        assert questions(**search) == set(BAD), search
    assert questions(tags={"ragtrace.label.faithfulness": "pass"}) == set(GOOD)
    wrong = set()
    for trace in jaeger.search(service):
        assert not trace["warnings"]
        assert not any(span["warnings"] for span in trace["spans"])
        names = sorted(span["operationName"].partition(" ")[0] for span in trace["spans"])
        assert names == ["chat", "evaluation", "invoke_workflow", "retrieval"]
        carrier, root = carrier_of(trace), root_of(trace)
        (reference,) = carrier["references"]
        assert reference["spanID"] == root["spanID"] == tags(carrier)["ragtrace.target.span_id"]
        assert carrier["startTime"] >= root["startTime"]
        assert carrier["startTime"] + carrier["duration"] <= root["startTime"] + root["duration"]
        for claim in claims_of(carrier):
            (chunk_id, *_) = json.loads(claim["ragtrace.claim.chunk_ids"])
            assert claim["ragtrace.claim.quote_verified"] is True
            assert claim["ragtrace.claim.quote"] in TEXTS[chunk_id]
            if claim["ragtrace.claim.verdict"] == "contradicted":
                wrong.add(claim["ragtrace.claim.assertion"])
    assert wrong == {"Refunds take 30 days.", "Shipping is free above 90 euros."}
