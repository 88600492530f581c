"""Back-fill: what becomes of every stored trace, what is sent, and sessions at the end of a run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace import semconv
from ragtrace.backends import MemorySink
from ragtrace.backfill import Selection, SpanId, backfill
from ragtrace.errors import SendRejected, SendRetryable
from ragtrace.judge import ScriptedJudge
from ragtrace.metrics import metric_named
from ragtrace.pipeline import Evaluator
from ragtrace.ports import Metric
from ragtrace.sampling import SamplingPlan
from ragtrace.traces.trace import Trace
from tests.unit.backfill.stored_traces import StoredTraces, plain_trace, rag_trace

METRICS: tuple[Metric, ...] = (metric_named("faithfulness"),)
PLAIN = Evaluator(metrics=METRICS, judge=ScriptedJudge())


def with_verdicts(stored: Trace, sink: MemorySink) -> Trace:
    """The trace as a back end has it after the back-fill."""
    added = [span for span in sink.spans if span.trace_id == stored.trace_id]
    return Trace.of(stored.trace_id, [*stored.spans, *added])


@pytest.mark.parametrize("where", ["source", "destination"])
async def test_answers_with_a_verdict_there_are_left_out(where: str) -> None:
    sink, judge = MemorySink(), ScriptedJudge()
    await backfill(StoredTraces(rag_trace()), sink, evaluator=PLAIN)
    done = {SpanId(span.trace_id, span.span_id) for span in sink.spans}
    report = await backfill(
        StoredTraces(with_verdicts(rag_trace(), sink) if where == "source" else rag_trace()),
        sink,
        evaluator=Evaluator(metrics=METRICS, judge=judge),
        selection=Selection(done=done if where == "destination" else frozenset()),
    )
    assert (report.already_evaluated, report.judged, report.sent) == (1, 0, 0)
    assert judge.requests == []


async def test_an_opinion_takes_the_place_of_the_one_before_about_the_same_metric_alone() -> None:
    sink = MemorySink()
    opinions = [metric_named("faithfulness", threshold=threshold) for threshold in (0.9, 0.8, 0.7)]
    for metric in (*opinions, metric_named("context_relevance")):
        judged = StoredTraces(with_verdicts(rag_trace(), sink))
        report = await backfill(judged, sink, evaluator=Evaluator(metrics=(metric,), judge=ScriptedJudge()))
        assert (report.already_evaluated, report.sent) == (0, 1)
    first, second, third, other = sink.spans
    replaced = [span.attributes.get(semconv.EVAL_SUPERSEDES) for span in (first, second, third, other)]
    assert replaced == [None, first.span_id, second.span_id, None]


@pytest.mark.slow
@given(ratio=st.floats(0, 1), higher=st.floats(0, 1))
async def test_every_record_ends_in_one_count_and_a_higher_ratio_keeps_what_a_lower_one_kept(
    ratio: float, higher: float
) -> None:
    stored = StoredTraces(
        rag_trace(0), rag_trace(1, None), rag_trace(2), rag_trace(3, retrieves=False), plain_trace(4)
    )
    kept: list[set[str]] = []
    for each in sorted((ratio, higher)):
        sink = MemorySink()
        report = await backfill(
            stored, sink, evaluator=PLAIN, selection=Selection(sampling=SamplingPlan(ratio=each))
        )
        assert report.failed == {}
        accounted = report.sampled_out + report.already_evaluated + report.judged
        assert report.records == accounted + sum(report.ineligible.values()) == 4
        kept.append({span.trace_id for span in sink.spans})
    assert kept[0] <= kept[1]


async def test_a_sink_that_is_busy_is_tried_again_after_the_time_it_asked_for() -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    sink = MemorySink(failures=[SendRetryable("busy", retry_after_s=7), SendRetryable("busy")])
    report = await backfill(StoredTraces(rag_trace()), sink, evaluator=PLAIN, sleep=pause)
    assert (report.sent, pauses) == (1, [7, 1.0])


async def test_a_carrier_that_is_refused_does_not_stop_the_others() -> None:
    sink = MemorySink(failures=[SendRejected("too old")])
    stored = StoredTraces(rag_trace(0), rag_trace(1))
    report = await backfill(stored, sink, evaluator=PLAIN, concurrency=1)
    assert (report.sent, report.rejected, report.is_clean) == (1, {"too old": 1}, False)
