"""The collector from OTLP in to carriers out: what is promised of every answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ragtrace import semconv
from ragtrace.traces.trace import Span
from ragtrace_collector.service.collector import Collector
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
