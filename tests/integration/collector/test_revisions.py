"""When answers are judged, and again: traces in parts, roots that stay open, spans after the verdict."""

from __future__ import annotations

from collections.abc import Sequence
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

QUIET_S, DEADLINE_S = 5, 60
HOUR_NS = 3600 * 10**9
SCORE = f"{semconv.SCORE_PREFIX}faithfulness"
ROOT, RETRIEVAL, GENERATION = rag_trace(0, answer="Refunds take 14 days. Shipping takes 3 days.")


def config(folder: Path, **assemble: Any) -> CollectorConfig:
    times = {"quiet_period": f"{QUIET_S}s", "deadline": f"{DEADLINE_S}s", "linger": "10m"}
    metrics = {"metrics": ["faithfulness", "context_recall"]}
    return config_of(folder, assemble={**times, **assemble}, judge={"use": "lexical"}, evaluate=metrics)


async def send(spans: Stepped, *parts: Span) -> Sequence[Span]:
    """Send spans, wait until they are quiet, and return all carriers so far."""
    await spans.send(*parts)
    await spans.pass_time(QUIET_S)
    return spans.carriers()


def second_retrieval(span_id: str = "00000000000000b2", text: str = "Shipping takes 3 days.") -> Span:
    """Return a retrieval of another service, whose spans come by another way."""
    other = rag_trace(0, chunks=[text])[1]
    documents = str(other.attributes[semconv.RAG_DOCUMENTS][0]).replace("chunk-0", span_id)  # type: ignore[index]
    attributes = {**other.attributes, semconv.RAG_DOCUMENTS: (documents,)}
    return replace(other, span_id=span_id, start_ns=other.start_ns + 1000, attributes=attributes)


@pytest.mark.parametrize("shift_ns", [-48 * HOUR_NS, 48 * HOUR_NS], ids=["in the past", "in the future"])
async def test_what_time_spans_say_it_is_does_not_matter(tmp_path: Path, shift_ns: int) -> None:
    root, retrieval, generation = (
        replace(span, start_ns=span.start_ns + shift_ns, end_ns=span.end_ns + shift_ns)
        for span in (ROOT, RETRIEVAL, GENERATION)
    )
    shifted = replace(retrieval, start_ns=retrieval.start_ns - 10 * HOUR_NS)
    async with stepped_collector(config(tmp_path)) as spans:
        assert await send(spans, shifted, generation) == ()
        await spans.send(root)
        await spans.pass_time(QUIET_S - 1)
        assert await spans.outcomes() == {}
        await spans.pass_time(1)
        assert await spans.outcomes() == {"judged": 1}


async def test_a_rag_call_is_judged_though_its_session_goes_on(tmp_path: Path) -> None:
    session = replace(ROOT, span_id="00000000000000ff", attributes={})
    async with stepped_collector(config(tmp_path)) as spans:
        for number in range(10):
            call, *steps = (
                replace(each, span_id=f"{number + 1:014x}{each.span_id[-2:]}") for each in rag_trace(0)
            )
            await send(spans, *(replace(step, parent_span_id=call.span_id) for step in steps))
            assert len(await send(spans, replace(call, parent_span_id=session.span_id))) == number + 1
        assert len(await send(spans, session)) == 10
        assert await spans.outcomes() == {"judged": 10}


async def test_of_too_many_open_traces_the_quietest_is_taken_as_it_is(tmp_path: Path) -> None:
    async with stepped_collector(config(tmp_path, max_open_traces=2)) as spans:
        for number in range(3):
            await spans.send(*rag_trace(number)[1:])
        await spans.work()
        (carrier,) = spans.carriers()
    assert carrier.trace_id == rag_trace(0)[0].trace_id


async def test_a_trace_of_too_many_spans_is_not_judged_on_a_part_of_them(tmp_path: Path) -> None:
    async with stepped_collector(config(tmp_path, max_spans_per_trace=3)) as spans:
        await spans.send(ROOT, RETRIEVAL, GENERATION)
        (carrier,) = await send(spans, second_retrieval())
        assert await spans.outcomes() == {"ineligible:incomplete": 1}
        assert spans.collector.counters.snapshot()["spans_over_limit"] == 1
    assert carrier.name == "evaluation skipped"
    assert carrier.attributes[semconv.EVAL_SKIP_REASON] == "incomplete"


async def test_a_late_retrieval_is_judged_and_supersedes_what_was_said_without_it(tmp_path: Path) -> None:
    async with stepped_collector(config(tmp_path)) as spans:
        (first,) = await send(spans, ROOT, RETRIEVAL, GENERATION)
        _, second = await send(spans, second_retrieval())
        assert await spans.outcomes() == {"judged": 1}
    assert (first.attributes[SCORE], second.attributes[SCORE]) == (0.5, 1.0)
    assert second.attributes[semconv.EVAL_SUPERSEDES] == first.span_id
    assert second.parent_span_id == first.parent_span_id == ROOT.span_id


FEEDBACK = {semconv.FEEDBACK_NAME: "thumbs", semconv.FEEDBACK_LABEL: "down"}


@pytest.mark.parametrize(
    "late",
    [
        {"span_id": "00000000000000f1", "name": semconv.FEEDBACK_SPAN, "attributes": FEEDBACK},
        {},
        {"span_id": "00000000000000d1", "attributes": {}},
    ],
    ids=["feedback alone", "a span sent twice", "a span without content"],
)
async def test_what_changes_nothing_that_was_judged_is_not_judged_again(
    tmp_path: Path, late: dict[str, Any]
) -> None:
    span = replace(ROOT, parent_span_id=ROOT.span_id if late else None, **late)
    async with stepped_collector(config(tmp_path)) as spans:
        await send(spans, ROOT, RETRIEVAL, GENERATION)
        await spans.send(span)
        await spans.pass_time(DEADLINE_S)
        assert (len(spans.carriers()), await spans.outcomes()) == (1, {"judged": 1})


async def test_revisions_of_an_answer_are_bounded(tmp_path: Path) -> None:
    async with stepped_collector(config(tmp_path, max_revisions=2)) as spans:
        await send(spans, ROOT, RETRIEVAL, GENERATION)
        for number in range(5):
            await send(spans, second_retrieval(f"{number + 0xB0:016x}", f"Fact {number}."))
        first, second, third = spans.carriers()
    assert [each.attributes.get(semconv.EVAL_SUPERSEDES) for each in (first, second, third)] == [
        None,
        first.span_id,
        second.span_id,
    ]
