"""When answers are judged: traces in parts, clocks that are wrong, roots that stay open, too many spans."""

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
ROOT, RETRIEVAL, GENERATION = rag_trace(0)


def config(folder: Path, **assemble: Any) -> CollectorConfig:
    times = {"quiet_period": f"{QUIET_S}s", "deadline": f"{DEADLINE_S}s"}
    return config_of(folder, assemble={**times, **assemble}, judge={"use": "lexical"})


def call_in(session_id: str, number: int) -> Sequence[Span]:
    """Return the spans of a RAG call in a session that goes on, its own span last, as they are exported."""
    root, retrieval, generation = (
        replace(span, span_id=f"{number + 1:014x}{span.span_id[-2:]}") for span in rag_trace(0)
    )
    steps = [replace(span, parent_span_id=root.span_id) for span in (retrieval, generation)]
    return [*steps, replace(root, parent_span_id=session_id)]


async def judged(spans: Stepped) -> int:
    return (await spans.outcomes()).get("judged", 0)


@pytest.mark.parametrize("shift_ns", [-48 * HOUR_NS, 48 * HOUR_NS], ids=["in the past", "in the future"])
async def test_what_time_spans_say_it_is_does_not_matter(tmp_path: Path, shift_ns: int) -> None:
    shifted = replace(
        RETRIEVAL, start_ns=RETRIEVAL.start_ns - 10 * HOUR_NS, end_ns=RETRIEVAL.end_ns - 10 * HOUR_NS
    )
    parts = [
        replace(span, start_ns=span.start_ns + shift_ns, end_ns=span.end_ns + shift_ns)
        for span in (ROOT, shifted, GENERATION)
    ]
    async with stepped_collector(config(tmp_path)) as spans:
        await spans.send(*parts[1:])
        await spans.pass_time(QUIET_S)
        assert await judged(spans) == 0
        await spans.send(parts[0])
        await spans.pass_time(QUIET_S - 1)
        assert await judged(spans) == 0
        await spans.pass_time(1)
        assert await judged(spans) == 1


async def test_a_rag_call_is_judged_though_its_session_goes_on(tmp_path: Path) -> None:
    session = replace(ROOT, span_id="00000000000000ff", attributes={})
    async with stepped_collector(config(tmp_path)) as spans:
        for number in range(10):
            *steps, call = call_in(session.span_id, number)
            await spans.send(*steps)
            await spans.pass_time(QUIET_S)
            await spans.send(call)
            await spans.pass_time(QUIET_S)
            assert await judged(spans) == number + 1
        await spans.send(session)
        await spans.pass_time(QUIET_S)
        assert await spans.outcomes() == {"judged": 10}
        assert len(spans.carriers()) == 10


async def test_a_trace_of_too_many_spans_is_not_judged_on_a_part_of_them(tmp_path: Path) -> None:
    more = replace(RETRIEVAL, span_id="00000000000000b2")
    async with stepped_collector(config(tmp_path, max_spans_per_trace=3)) as spans:
        await spans.send(ROOT, RETRIEVAL, GENERATION)
        await spans.send(more)
        await spans.pass_time(QUIET_S)
        (carrier,) = spans.carriers()
        assert await spans.outcomes() == {"ineligible:incomplete": 1}
        assert spans.collector.counters.snapshot()["spans_over_limit"] == 1
    assert carrier.name == "evaluation skipped"
    assert carrier.attributes[semconv.EVAL_SKIP_REASON] == "incomplete"
