"""What people say of an answer decides whether it is judged, also when they say it late."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import ragtrace
from ragtrace import semconv
from ragtrace.traces.trace import Span
from ragtrace_collector.service.collector import Collector
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    post,
    request_of,
    running_collector,
    until,
)
from tests.patience import PATIENCE_S
from tests.rag_spans import rag_trace, trace_id_of

pytestmark = pytest.mark.slow

DISLIKED = {
    "ratio": 0.0,
    "rules": [{"name": "disliked", "attributes": {semconv.FEEDBACK_LABEL: "down"}}],
}
ANSWER_SPAN = rag_trace(0)[0].span_id


async def tell(collector: Collector, *feedback: Mapping[str, Any]) -> None:
    """Be the process that takes people's feedback: it exports by OTLP, and knows nothing but the ids."""

    def application() -> None:
        assert ragtrace.instrument(endpoint=f"http://127.0.0.1:{collector.grpc_port}", protocol="grpc")
        try:
            assert all(ragtrace.feedback(each["trace_id"], **_said(each)) for each in feedback)
        finally:
            assert ragtrace.uninstrument()

    await asyncio.to_thread(application)


def _said(feedback: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in feedback.items() if key != "trace_id"}


async def stored(collector: Collector, **outcomes: int) -> None:
    """Wait until the store counts so many answers of each outcome."""
    async with asyncio.timeout(PATIENCE_S):
        while not outcomes.items() <= (await collector.pipeline.store.ledger()).by_name().items():  # noqa: ASYNC110 -- a store's
            await asyncio.sleep(0.02)


async def carriers(folder: Path, number: int) -> list[Span]:
    def enough() -> list[Span] | None:
        found = list(carriers_in(folder / "out.jsonl"))
        return found if len(found) >= number else None

    return await until(enough)  # type: ignore[no-any-return]


async def test_a_disliked_answer_is_judged_though_it_was_sampled_out_before(tmp_path: Path) -> None:
    async with running_collector(config_of(tmp_path, sample=DISLIKED)) as collector:
        await post(collector, request_of(*rag_trace(0), *rag_trace(1), *rag_trace(2)))
        await stored(collector, sampled_out=3)
        await tell(
            collector,
            {"trace_id": trace_id_of(0), "span_id": ANSWER_SPAN, "thumbs": "down"},
            {"trace_id": trace_id_of(1), "thumbs": "down"},
            {"trace_id": trace_id_of(2), "thumbs": "up"},
        )
        found = await carriers(tmp_path, 2)
        await stored(collector, sampled_out=1, judged=2)
        counted = collector.counters.snapshot()
    assert {span.trace_id for span in found} == {trace_id_of(0), trace_id_of(1)}
    assert {span.attributes[semconv.SAMPLE_RULE] for span in found} == {"disliked"}
    assert {span.parent_span_id for span in found} == {ANSWER_SPAN}
    assert (counted["answers_sampled_out"], counted["answers_brought_back"]) == (3, 2)


REFERENCE = "Refunds take 14 days. Shipping is free above 50 euros."


async def test_a_reference_of_the_application_or_of_a_person_reaches_context_recall(tmp_path: Path) -> None:
    """Of an application whose retriever finds one half of what the reference answer says."""

    def application() -> None:
        assert ragtrace.instrument(endpoint=f"http://127.0.0.1:{collector.grpc_port}", protocol="grpc")
        calls = []
        for reference in (REFERENCE, None):
            with ragtrace.rag(question="How long do refunds take?", reference=reference) as call:
                with ragtrace.retrieval(query="How long do refunds take?") as retrieval:
                    retrieval.set_chunks([ragtrace.Chunk(id="faq-1", text="Refunds take 14 days.")])
                call.answer = "Refunds take 14 days."
            calls.append(call)
        assert ragtrace.feedback(calls[1], thumbs="down", reference=REFERENCE)
        assert ragtrace.uninstrument()

    metrics = {"retry_delays": [], "metrics": ["context_recall"]}
    config = config_of(tmp_path, evaluate=metrics, judge={"use": "lexical"})
    async with running_collector(config) as collector:
        await asyncio.to_thread(application)
        found = await carriers(tmp_path, 2)
    assert {span.attributes[f"{semconv.SCORE_PREFIX}context_recall"] for span in found} == {0.5}
