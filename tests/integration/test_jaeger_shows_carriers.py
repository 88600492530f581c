"""A real Jaeger shows the carrier of many metrics whole, without a warning, and finds it by any of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragtrace import evaluate, semconv
from ragtrace.backends import open_sink
from ragtrace.model import Sample
from ragtrace.testing import ScriptedJudge
from ragtrace.traces.attach import AttachOptions, carrier
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import encode
from ragtrace.traces.trace import Span, Trace
from tests.backends.jaeger_server import Jaeger
from tests.rag_spans import rag_trace

METRICS = (
    *("faithfulness", "hallucination", "groundedness", "answer_relevance", "context_precision"),
    *("context_recall", "rag_score"),
)


async def judged() -> tuple[tuple[Span, ...], Span]:
    """Return the spans of an answer with many claims and chunks, and the carrier of its evaluation."""
    facts = [f"Article {number} costs {number + 1} euros." for number in range(12)]
    answer = " ".join([*facts[:8], *(fact.replace("costs", "weighs") for fact in facts[8:])])
    spans = rag_trace(7, chunks=facts, answer=answer, service="many-metrics")
    (record,) = extract_records(Trace.of(spans[0].trace_id, spans)).records
    record = replace(record, reference="Article 1 costs 2 euros. Cats purr.")
    evaluation = await evaluate(record, metrics=METRICS, judge=ScriptedJudge())
    sample = Sample(rule="ratio", rate=1.0, probability=1.0)
    options = AttachOptions(carrier_time="target")
    return spans, carrier(evaluation, record, sample=sample, options=options, now_ns=0)


async def test_carrier_of_seven_metrics_is_shown_whole(jaeger: Jaeger) -> None:
    spans, written = await judged()
    sink = open_sink(f"grpc://{jaeger.otlp_grpc}")
    await sink.send(encode([*spans, written]))
    await sink.aclose()

    trace = jaeger.wait_for_trace(written.trace_id, spans=4)
    (shown,) = [span for span in trace["spans"] if span["spanID"] == written.span_id]
    assert not any(span["warnings"] for span in trace["spans"])
    assert [(each["refType"], each["spanID"]) for each in shown["references"]] == [
        ("CHILD_OF", written.parent_span_id)
    ]
    assert keys(shown["tags"]) >= set(written.attributes)
    assert [keys(log["fields"]) - {"event"} for log in shown["logs"]] == [
        set(event.attributes) for event in written.events
    ]
    assert len(shown["logs"]) > 30
    for tags in (
        {f"{semconv.LABEL_PREFIX}context_recall": "pass"},
        {semconv.DIAGNOSIS: str(written.attributes[semconv.DIAGNOSIS])},
        {semconv.CHUNK_LABEL: "irrelevant"},
        {semconv.REFERENCE_VERDICT: "unsupported"},
    ):
        assert len(jaeger.search("many-metrics", tags)) == 1, tags


def keys(fields: Sequence[Mapping[str, Any]]) -> set[str]:
    return {field["key"] for field in fields}
