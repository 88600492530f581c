"""The main job, seen in a real Jaeger: an instrumented application, the collector, verdicts on the traces."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ragtrace
from tests.acceptance.collector_process import collector_process, settings_of
from tests.backends.jaeger_server import Jaeger, JsonTrace
from tests.backends.otelcol import OtelCol
from tests.backends.process import eventually, free_ports

OTEL_CONFIG = Path(__file__).parents[2] / "otel-config.yaml"
CHUNKS = [
    ragtrace.Chunk(
        id="faq-12", text="Refunds take 14 days. They go to the card that was charged.", score=0.9
    ),
    ragtrace.Chunk(id="faq-7", text="Shipping is free above 50 euros.", score=0.4),
]
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


@dataclass(frozen=True)
class Job:
    """What the job left in Jaeger."""

    jaeger: Jaeger
    service: str

    def traces(self, **search: Any) -> list[JsonTrace]:
        return self.jaeger.search(self.service, **search)


def tags(holder: Mapping[str, Any], key: str = "tags") -> dict[str, Any]:
    return {tag["key"]: tag["value"] for tag in holder[key]}


def question_of(trace: JsonTrace) -> str:
    messages = json.loads(tags(root_of(trace))["gen_ai.input.messages"])
    return str(messages[-1]["parts"][0]["content"])


def root_of(trace: JsonTrace) -> Mapping[str, Any]:
    (root,) = (span for span in trace["spans"] if not span["references"])
    return root  # type: ignore[no-any-return]


def claim_events(carrier: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    events = [log for log in carrier["logs"] if "ragtrace.claim.assertion" in tags(log, "fields")]
    assert events, "the carrier has no claims"
    return events


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


@pytest.fixture(scope="module", params=["alone", "otelcol"])
def job(
    request: pytest.FixtureRequest, jaeger: Jaeger, otelcol: OtelCol, tmp_path_factory: pytest.TempPathFactory
) -> Job:
    """Run the job: through the collector alone, and through a real OpenTelemetry Collector."""
    folder, service = tmp_path_factory.mktemp("job"), f"shop-{request.param}"
    path = (
        through_the_collector_alone(folder, jaeger)
        if request.param == "alone"
        else through_otelcol(folder, jaeger, otelcol)
    )
    with path as endpoint:
        run_application(service, endpoint)
        wait_for_verdicts(jaeger, service)
    return Job(jaeger=jaeger, service=service)


def test_every_answer_has_a_carrier_under_its_answer_span(job: Job) -> None:
    for trace in job.traces():
        carrier, root = carrier_of(trace), root_of(trace)
        (reference,) = carrier["references"]
        assert reference["spanID"] == root["spanID"]
        assert tags(carrier)["ragtrace.target.span_id"] == root["spanID"]
        assert carrier["startTime"] >= root["startTime"]
        assert carrier["startTime"] + carrier["duration"] <= root["startTime"] + root["duration"]


def test_no_span_has_a_warning(job: Job) -> None:
    for trace in job.traces():
        assert not trace["warnings"]
        assert [span["warnings"] for span in trace["spans"] if span["warnings"]] == []


@pytest.mark.parametrize(
    "search",
    [
        {"tags": {"ragtrace.label.faithfulness": "fail"}},
        {"operation": "evaluation fail"},
        {"tags": {"ragtrace.pass": "false"}},
    ],
    ids=["label", "operation", "pass"],
)
def test_a_search_finds_exactly_the_bad_answers(job: Job, search: dict[str, Any]) -> None:
    assert {question_of(trace) for trace in job.traces(**search)} == set(BAD)


def test_a_search_finds_exactly_the_good_answers(job: Job) -> None:
    found = job.traces(tags={"ragtrace.label.faithfulness": "pass"})
    assert {question_of(trace) for trace in found} == set(GOOD)


def test_the_failing_claim_names_its_chunk_and_quotes_it(job: Job) -> None:
    texts = {chunk.id: chunk.text or "" for chunk in CHUNKS}
    claims = [tags(event, "fields") for trace in job.traces() for event in claim_events(carrier_of(trace))]
    wrong = [claim for claim in claims if claim["ragtrace.claim.verdict"] == "contradicted"]
    assert {claim["ragtrace.claim.assertion"] for claim in wrong} == {
        "Refunds take 30 days.",
        "Shipping is free above 90 euros.",
    }
    for claim in claims:
        (chunk_id, *_) = json.loads(claim["ragtrace.claim.chunk_ids"])
        assert claim["ragtrace.claim.quote_verified"] is True
        assert claim["ragtrace.claim.quote"] in texts[chunk_id]


def test_originals_arrive_as_the_application_sent_them(job: Job) -> None:
    for trace in job.traces():
        assert sorted(span["operationName"].partition(" ")[0] for span in trace["spans"]) == [
            "chat",
            "evaluation",
            "invoke_workflow",
            "retrieval",
        ]
