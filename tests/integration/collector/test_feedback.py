"""What people say of an answer decides whether it is judged, also when they say it late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

import ragtrace
from ragtrace import semconv
from ragtrace_collector.service.collector import Collector
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    post,
    request_of,
    running_collector,
    until,
)
from tests.rag_spans import rag_trace, trace_id_of

pytestmark = pytest.mark.slow

REFERENCE = "Refunds take 14 days. Shipping is free above 50 euros."


async def in_a_process_that_exports(collector: Collector, tell: Callable[[], object]) -> None:
    """Be an application: it exports by OTLP, and knows nothing but the ids."""

    def application() -> None:
        assert ragtrace.instrument(endpoint=f"http://127.0.0.1:{collector.grpc_port}", protocol="grpc")
        try:
            tell()
        finally:
            assert ragtrace.uninstrument()

    await asyncio.to_thread(application)


async def test_a_disliked_answer_is_judged_though_it_was_sampled_out_before(tmp_path: Path) -> None:
    disliked = {"name": "disliked", "attributes": {semconv.FEEDBACK_LABEL: "down"}}
    answer = rag_trace(0)[0].span_id

    def tell() -> None:
        assert ragtrace.feedback(trace_id_of(0), span_id=answer, thumbs="down")
        assert ragtrace.feedback(trace_id_of(1), thumbs="down")
        assert ragtrace.feedback(trace_id_of(2), thumbs="up")

    config = config_of(tmp_path, sample={"ratio": 0.0, "rules": [disliked]})
    async with running_collector(config) as collector:
        await post(collector, request_of(*rag_trace(0), *rag_trace(1), *rag_trace(2)))
        await until(lambda: collector.counters.snapshot()["answers_sampled_out"] == 3)
        await in_a_process_that_exports(collector, tell)
        await until(lambda: len(carriers_in(tmp_path / "out.jsonl")) == 2)
        ledger = (await collector.pipeline.store.ledger()).by_name()
    found = carriers_in(tmp_path / "out.jsonl")
    assert (ledger["judged"], ledger["sampled_out"]) == (2, 1)
    assert {span.trace_id for span in found} == {trace_id_of(0), trace_id_of(1)}
    assert {span.attributes[semconv.SAMPLE_RULE] for span in found} == {"disliked"}
    assert {span.parent_span_id for span in found} == {answer}


async def test_a_reference_of_the_application_or_of_a_person_reaches_context_recall(tmp_path: Path) -> None:
    """Of an application whose retriever finds one half of what the reference answer says."""

    def ask(reference: str | None) -> ragtrace.capture.RagCall:
        with ragtrace.rag(question="How long do refunds take?", reference=reference) as call:
            with ragtrace.retrieval(query="How long do refunds take?") as retrieval:
                retrieval.set_chunks([ragtrace.Chunk(id="faq-1", text="Refunds take 14 days.")])
            call.answer = "Refunds take 14 days."
        return call

    def tell() -> None:
        ask(REFERENCE)
        call = ask(None)
        assert call.trace_id
        assert ragtrace.feedback(call.trace_id, span_id=call.span_id, thumbs="down", reference=REFERENCE)

    metrics = {"retry_delays": [], "metrics": ["context_recall"]}
    config = config_of(tmp_path, evaluate=metrics, judge={"use": "lexical"})
    async with running_collector(config) as collector:
        await in_a_process_that_exports(collector, tell)
        found = await until(lambda: len(all_of := carriers_in(tmp_path / "out.jsonl")) == 2 and all_of)
    assert {span.attributes[f"{semconv.SCORE_PREFIX}context_recall"] for span in found} == {0.5}
