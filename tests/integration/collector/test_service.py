"""The collector from OTLP in to carriers out: what is promised of every answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)

from ragtrace import semconv
from ragtrace.traces.otlp import SpanRef, TraceSlice
from ragtrace.traces.trace import Span
from ragtrace_collector.service.collector import Collector
from ragtrace_collector.store.store import Store
from tests.backends.otlp_receiver import running_receiver
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    post,
    request_of,
    running_collector,
    send_grpc,
    until,
)
from tests.rag_spans import chat_span, rag_trace, trace_id_of

pytestmark = pytest.mark.slow

LABEL = f"{semconv.LABEL_PREFIX}faithfulness"
SCORE = f"{semconv.SCORE_PREFIX}faithfulness"
INVENTED = "Refunds take 30 days."


def scripted(folder: Path, script: object) -> dict[str, str]:
    """Return the judge section for a scripted judge."""
    (folder / "script.json").write_text(json.dumps(script))
    return {"use": f"scripted:{folder / 'script.json'}"}


async def carriers(folder: Path, number: int) -> Sequence[Span]:
    return await until(lambda: _at_least(folder / "out.jsonl", number))  # type: ignore[no-any-return]


def _at_least(file: Path, number: int) -> Sequence[Span] | None:
    found = carriers_in(file)
    return found if len(found) >= number else None


async def outcomes(collector: Collector) -> dict[str, int]:
    """Return how the answers that were seen ended, or where they wait."""
    counts = (await collector.pipeline.store.ledger()).by_name()
    others = {"open_traces", "undelivered", "unconfirmed", "rejected"}
    return {name: number for name, number in counts.items() if number and name not in others}


async def test_an_answer_gets_its_verdicts_on_its_own_trace(tmp_path: Path) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        await send_grpc(collector, request_of(*rag_trace(0, answer=f"Refunds take 14 days. {INVENTED}")))
        (carrier,) = await carriers(tmp_path, 1)
    root = rag_trace(0)[0]
    assert (carrier.trace_id, carrier.parent_span_id) == (root.trace_id, root.span_id)
    assert [link.span_id for link in carrier.links] == [root.span_id]
    assert carrier.resource.attributes[semconv.SERVICE_NAME] == "shop"
    assert carrier.attributes[SCORE] == 0.5
    claims = {event.attributes[semconv.CLAIM_ASSERTION]: event.name for event in carrier.events[1:-1]}
    assert carrier.events[-1].name == semconv.BLAME_EVENT
    assert claims == {
        INVENTED: "ragtrace.claim.contradicted",
        "Refunds take 14 days.": "ragtrace.claim.supported",
    }


async def test_attributes_of_ones_own_are_judged_where_the_mapping_names_them(tmp_path: Path) -> None:
    own = {"app.q": "How long?", "app.hits": ("Within 14 days.",), "app.a": "Within 14 days."}
    span = replace(chat_span(0, question="", answer=""), attributes=own)
    mapping = {"question": "app.q", "context": "app.hits", "answer": "app.a"}
    async with running_collector(config_of(tmp_path, extract={"mapping": mapping})) as collector:
        await post(collector, request_of(span))
        (carrier,) = await carriers(tmp_path, 1)
    assert (carrier.name, carrier.trace_id) == ("evaluation pass", span.trace_id)


async def test_a_plain_chat_completion_gets_no_carrier(tmp_path: Path) -> None:
    async with running_collector(config_of(tmp_path)) as collector:
        await post(collector, request_of(chat_span(0, question="Hi?", answer="Hello.")))
        await post(collector, request_of(*rag_trace(1)))
        (carrier,) = await carriers(tmp_path, 1)
    assert carrier.trace_id == trace_id_of(1)


async def test_an_answer_without_content_is_skipped_with_its_reason(tmp_path: Path) -> None:
    root, retrieval, generation = rag_trace(0)
    texts = {semconv.INPUT_MESSAGES, semconv.OUTPUT_MESSAGES, semconv.RAG_DOCUMENTS, semconv.RETRIEVAL_QUERY}
    bare = [
        replace(span, attributes={k: v for k, v in span.attributes.items() if k not in texts})
        for span in (root, retrieval, generation)
    ]
    async with running_collector(config_of(tmp_path)) as collector:
        await post(collector, request_of(*bare))
        (carrier,) = await carriers(tmp_path, 1)
        assert await outcomes(collector) == {"ineligible:no_content": 1}
    assert carrier.name == "evaluation skipped"
    assert carrier.attributes[semconv.EVAL_SKIP_REASON] == "no_content"
    assert SCORE not in carrier.attributes


@pytest.mark.parametrize("error", ["judge_nonsense", "judge_timeout", "judge_unavailable", "judge_refused"])
async def test_a_judge_that_fails_gives_an_error_and_no_score(tmp_path: Path, error: str) -> None:
    config = config_of(tmp_path, judge=scripted(tmp_path, {"error": error}))
    async with running_collector(config) as collector:
        await post(collector, request_of(*rag_trace(0)))
        (carrier,) = await carriers(tmp_path, 1)
        assert await outcomes(collector) == {f"failed:{error}": 1}
    assert (carrier.name, carrier.attributes[LABEL]) == ("evaluation error", "error")
    assert carrier.events[0].attributes[semconv.ERROR_TYPE] == error
    assert not [key for key in carrier.attributes if key.startswith(semconv.SCORE_PREFIX)]


async def test_a_back_end_that_is_away_gets_its_carriers_when_it_is_back(tmp_path: Path) -> None:
    with running_receiver() as gone:
        endpoint = gone.endpoint
    config = config_of(tmp_path, export=[{"endpoint": endpoint}], drain_timeout="0s")
    async with running_collector(config) as collector:
        await post(collector, request_of(*rag_trace(0)))
        await until(lambda: collector.counters.snapshot()["deliveries_failed"])
        assert await outcomes(collector) == {"judged": 1}
    with running_receiver(endpoint) as back:
        async with running_collector(config):
            await until(lambda: back.spans)
        assert [span.name for span in back.spans] == ["evaluation pass"]


async def test_spans_that_were_rejected_are_not_forwarded(tmp_path: Path) -> None:
    request = ExportTraceServiceRequest.FromString(request_of(*rag_trace(0)))
    request.resource_spans[0].scope_spans[0].spans[1].span_id = bytes(8)
    with running_receiver() as downstream:
        export = [{"endpoint": downstream.endpoint, "forward": True}]
        async with running_collector(config_of(tmp_path, export=export)) as collector:
            await post(collector, request.SerializeToString())
            await until(lambda: downstream.spans)
        ids = [span.span_id.hex() for span in downstream.requests[0].resource_spans[0].scope_spans[0].spans]
    assert ids == [rag_trace(0)[0].span_id, rag_trace(0)[2].span_id]


async def test_a_judged_answer_waits_for_a_full_disk(tmp_path: Path) -> None:
    config = config_of(tmp_path, assemble={"quiet_period": "300ms"}, judge={"use": "lexical"})
    async with running_collector(config) as collector:
        commits = cast("Store", collector.pipeline.store)._commits
        # claims enough that the carrier needs pages of its own
        await post(
            collector,
            request_of(*rag_trace(0, answer=" ".join(f"Refunds take {n} days." for n in range(20)))),
        )
        pages = await commits.submit(lambda db: db.execute("PRAGMA page_count").fetchone()[0])
        await commits.submit(lambda db: db.execute(f"PRAGMA max_page_count = {pages}").close())
        await until(lambda: collector.counters.snapshot()["stage_errors"])
        assert collector.counters.snapshot()["answers_judged"] == 0
        await commits.submit(lambda db: db.execute("PRAGMA max_page_count = 100000").close())
        await carriers(tmp_path, 1)
        assert await outcomes(collector) == {"judged": 1}


@pytest.mark.slow
async def test_a_thousand_chunks_and_a_huge_answer_are_judged(tmp_path: Path) -> None:
    chunks = [f"Fact {number} is that number {number} is nice." for number in range(1000)]
    answer = " ".join(chunks)[:200_000]
    config = config_of(tmp_path, judge={"use": "lexical"}, receive={"max_message_bytes": 4_000_000})
    async with running_collector(config) as collector:
        await post(collector, request_of(*rag_trace(0, chunks=chunks, answer=answer)))
        (carrier,) = await carriers(tmp_path, 1)
    assert carrier.attributes[semconv.CONTEXT_COUNT] == 1000
    assert len(carrier.events) <= 128


async def test_a_trace_whose_spans_cannot_be_read_does_not_stop_the_ones_behind_it(tmp_path: Path) -> None:
    root = SpanRef(span_id="00000000000000a1", parent_span_id=None)
    broken = TraceSlice(trace_id=trace_id_of(0), payload=b"\xff", spans=(root,))
    async with running_collector(config_of(tmp_path)) as collector:
        await collector.pipeline.store.append([broken], forward={}, now_ns=1)
        collector.pipeline.assembly.add(broken.trace_id, broken.spans)
        await post(collector, request_of(*rag_trace(1)))
        (carrier,) = await carriers(tmp_path, 1)
        assert collector.counters.snapshot()["stage_errors"] == 1
        assert len(collector.pipeline.assembly) == 0
    assert carrier.trace_id == trace_id_of(1)


@pytest.mark.slow
async def test_hundreds_of_answers_in_one_trace_are_each_judged_once(tmp_path: Path) -> None:
    top = replace(rag_trace(0)[0], span_id="f" * 16, attributes={})
    spans = [top, *(span for number in range(400) for span in _call_under(top, number))]
    async with running_collector(config_of(tmp_path)) as collector:
        await send_grpc(collector, request_of(*spans))
        await until(lambda: collector.counters.snapshot()["answers_judged"] == 400)
        assert await outcomes(collector) == {"judged": 400}
    found = carriers_in(tmp_path / "out.jsonl")
    assert len({span.parent_span_id for span in found}) == len(found) == 400


def _call_under(top: Span, number: int) -> Sequence[Span]:
    """Return the spans of one RAG call, with ids of their own."""
    root, *steps = rag_trace(0)
    root_id = f"{number * 3 + 1:016x}"
    renamed = [replace(span, span_id=f"{number * 3 + 2 + i:016x}") for i, span in enumerate(steps)]
    return [
        replace(root, span_id=root_id, parent_span_id=top.span_id),
        *(replace(span, parent_span_id=root_id) for span in renamed),
    ]
