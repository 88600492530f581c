"""Drawn answers and filters for the laws of the index."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from ragtrace.answers.port import VERDICTS, AnswerFilter, TrafficScope
from ragtrace.answers.summary import AnswerSummary
from ragtrace.model import Direction, Label
from tests.unit.answers.rows import HOUR_NS, NOON_NS, a_metric, a_row, hex_id

LABELS = list(Label)
scores = st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0, 0.333333])


@st.composite
def summaries(draw: st.DrawFn, traces: int = 3) -> AnswerSummary:
    number = draw(st.integers(1, 6))
    faithful, precise, made_up = draw(scores), draw(scores), draw(scores)
    carrier = draw(st.integers(1, 6))
    superseded = draw(st.none() | st.integers(1, 6).filter(lambda other: other != carrier))
    hallucination = replace(a_metric(made_up, "hallucination"), direction=Direction.LOWER_IS_BETTER)
    return a_row(
        number,
        faithful,
        trace=draw(st.integers(1, traces)),
        tenant=draw(st.sampled_from(["", "acme"])),
        carrier=carrier,
        supersedes=superseded,
        minute=draw(st.integers(-30, 30)) * 61,
        service=draw(st.sampled_from(["", "bot", "search"])),
        model=draw(st.sampled_from(["small", "large"])),
        session=draw(st.sampled_from(["", "one", "0f0f0f0f-0000-4000-8000-000000000001"])),
        reason=draw(st.sampled_from(["", "judge_timeout"])),
        blame=draw(st.sampled_from(["", "healthy", "retrieval_noise"])),
        probability=draw(st.none() | st.sampled_from([1.0, 0.1, 1 / 3, 0.0001])),
        cost_usd=draw(st.none() | st.sampled_from([0.0, 0.002, 1.5])),
        judge=draw(st.sampled_from(["", "openai:gpt-4o"])),
        doubt=draw(st.sampled_from([0.0, 0.29, 1.0])),
        suspicion=draw(st.sampled_from([None, 0.0, 0.123, 0.999, 1.0])),
        metrics=(a_metric(faithful), a_metric(precise, "chunk_precision"), hallucination),
    )


scopes = st.builds(
    TrafficScope,
    tenant=st.sampled_from([None, "", "acme", "other"]),
    service=st.sampled_from([None, None, "bot"]),
    model=st.sampled_from([None, None, "small"]),
    since_ns=st.sampled_from([None, NOON_NS - 24 * HOUR_NS, NOON_NS]),
    until_ns=st.sampled_from([None, NOON_NS + 5 * HOUR_NS]),
)
filters = st.builds(
    AnswerFilter,
    scope=scopes,
    metric=st.sampled_from([None, "faithfulness", "hallucination", "unknown"]),
    min_score=st.sampled_from([None, None, 0.25]),
    max_score=st.sampled_from([None, None, 0.5]),
    label=st.none() | st.sampled_from(LABELS),
    verdict=st.sampled_from([None, None, *VERDICTS]),
    blame=st.sampled_from([None, None, "healthy", "what"]),
    judge=st.sampled_from([None, None, "openai:gpt-4o", "what"]),
    session=st.sampled_from([None, None, "one", "0f0f0f0f-0000-4000-8000-000000000001"]),
    feedback=st.sampled_from([None, None, "any", "none", "up"]),
    trace_id=st.sampled_from([None, None, hex_id(1, 32), "000", hex_id(2, 32)[:31]]),
)
