"""Spans that come after the verdict: the answer is judged again where they change what was judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragtrace import semconv
from ragtrace.traces.trace import Span
from ragtrace_collector.config import CollectorConfig
from tests.integration.collector.running import config_of
from tests.integration.collector.stepping import Stepped, stepped_collector
from tests.rag_spans import rag_trace

QUIET_S, DEADLINE_S, LINGER_S = 5, 60, 600
SCORE = f"{semconv.SCORE_PREFIX}faithfulness"
ROOT, RETRIEVAL, GENERATION = rag_trace(0, answer="Refunds take 14 days. Shipping takes 3 days.")


def config(folder: Path, *, others: Mapping[str, Any] | None = None, **assemble: Any) -> CollectorConfig:
    times = {"quiet_period": f"{QUIET_S}s", "deadline": f"{DEADLINE_S}s", "linger": f"{LINGER_S}s"}
    return config_of(
        folder,
        assemble={**times, **assemble},
        judge={"use": "lexical"},
        evaluate={"metrics": ["faithfulness", "context_recall"]},
        **(others or {}),
    )


def second_retrieval(span_id: str = "00000000000000b2", text: str = "Shipping takes 3 days.") -> Span:
    """Return a retrieval of another service, whose spans come by another way."""
    other = rag_trace(0, chunks=[text])[1]
    documents = str(other.attributes[semconv.RAG_DOCUMENTS][0]).replace("chunk-0", span_id)  # type: ignore[index]
    attributes = {**other.attributes, semconv.RAG_DOCUMENTS: (documents,)}
    return replace(other, span_id=span_id, start_ns=other.start_ns + 1000, attributes=attributes)


def feedback(reference: str | None = None) -> Span:
    """Return what a person said of the answer, on a span of its own."""
    said = {semconv.FEEDBACK_NAME: "thumbs", semconv.FEEDBACK_LABEL: "down"}
    if reference is not None:
        said[semconv.REFERENCE_ANSWER] = reference
    return replace(
        ROOT,
        span_id="00000000000000f1",
        parent_span_id=ROOT.span_id,
        name=semconv.FEEDBACK_SPAN,
        start_ns=ROOT.end_ns,
        end_ns=ROOT.end_ns + 1,
        attributes=said,
    )


async def judge_first(spans: Stepped) -> Span:
    await spans.send(ROOT, RETRIEVAL, GENERATION)
    await spans.pass_time(QUIET_S)
    (carrier,) = spans.carriers()
    return carrier


async def test_a_late_retrieval_is_judged_and_supersedes_what_was_said_without_it(tmp_path: Path) -> None:
    async with stepped_collector(config(tmp_path)) as spans:
        first = await judge_first(spans)
        await spans.send(second_retrieval())
        await spans.pass_time(QUIET_S)
        _, second = spans.carriers()
        assert await spans.outcomes() == {"judged": 1}
    assert (first.attributes[SCORE], second.attributes[SCORE]) == (0.5, 1.0)
    assert second.attributes[semconv.EVAL_SUPERSEDES] == first.span_id
    assert second.span_id != first.span_id
    assert second.parent_span_id == first.parent_span_id == ROOT.span_id


@pytest.mark.parametrize(
    "late",
    [
        feedback(),
        replace(ROOT),
        replace(ROOT, span_id="00000000000000d1", parent_span_id=ROOT.span_id, attributes={}),
    ],
    ids=["feedback alone", "a span sent twice", "a span without content"],
)
async def test_what_changes_nothing_that_was_judged_is_not_judged_again(tmp_path: Path, late: Span) -> None:
    async with stepped_collector(config(tmp_path)) as spans:
        await judge_first(spans)
        await spans.send(late)
        await spans.pass_time(DEADLINE_S)
        assert len(spans.carriers()) == 1
        assert await spans.outcomes() == {"judged": 1}


async def test_revisions_of_an_answer_are_bounded(tmp_path: Path) -> None:
    async with stepped_collector(config(tmp_path, max_revisions=2)) as spans:
        await judge_first(spans)
        for number in range(5):
            await spans.send(second_retrieval(f"{number + 0xB0:016x}", f"Fact {number}."))
            await spans.pass_time(QUIET_S)
        found = spans.carriers()
        assert await spans.outcomes() == {"judged": 1}
    assert len(found) == 3
    assert [span.attributes.get(semconv.EVAL_SUPERSEDES) for span in found] == [
        None,
        found[0].span_id,
        found[1].span_id,
    ]


async def test_an_answer_without_retrieval_is_judged_when_the_retrieval_comes(tmp_path: Path) -> None:
    async with stepped_collector(config(tmp_path)) as spans:
        await spans.send(ROOT, GENERATION)
        await spans.pass_time(QUIET_S)
        assert await spans.outcomes() == {"ineligible:no_retrieval": 1}
        await spans.send(RETRIEVAL)
        await spans.pass_time(QUIET_S)
        skipped, carrier = spans.carriers()
        assert await spans.outcomes() == {"judged": 1}
    assert skipped.attributes[semconv.EVAL_SKIP_REASON] == "no_retrieval"
    assert carrier.attributes[semconv.EVAL_SUPERSEDES] == skipped.span_id
