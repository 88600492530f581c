"""Back-fill: what becomes of every stored trace, what is sent, and sessions at the end of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace import semconv
from ragtrace.backends import MemorySink
from ragtrace.backfill import Progress, ResumableRun, Selection, SpanId, backfill, dry_run
from ragtrace.conversations import SessionSettings
from ragtrace.errors import SendRejected, SendRetryable
from ragtrace.judge import Script, ScriptedJudge
from ragtrace.metrics import metric_named
from ragtrace.model import JudgedAnswer
from ragtrace.pipeline import Evaluator
from ragtrace.ports import Metric, Page, TraceQuery
from ragtrace.sampling import SamplingPlan
from ragtrace.traces.trace import Span, Trace
from tests.unit.backfill.stored_traces import RIGHT, WRONG, StoredTraces, plain_trace, rag_trace

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


async def test_failed_answers_are_counted_and_not_sent_so_that_a_second_run_tries_them() -> None:
    sink = MemorySink()
    broken = ScriptedJudge(Script(error="judge_timeout"))
    report = await backfill(
        StoredTraces(rag_trace()), sink, evaluator=Evaluator(metrics=METRICS, judge=broken)
    )
    assert (report.failed, report.judged, sink.spans) == ({"judge_timeout": 1}, 0, ())
    assert not report.is_clean


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
        skipped, failed = sum(report.ineligible.values()), sum(report.failed.values())
        accounted = report.sampled_out + report.already_evaluated + report.judged + skipped + failed
        assert report.records == accounted == 4
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


EVALUATOR = Evaluator(metrics=(metric_named("faithfulness"),), judge=ScriptedJudge())
SETTINGS = SessionSettings()
HOUR_NS = 3_600 * 10**9


def turns(number: int = 4) -> list[Trace]:
    """Return the turns of a session, alternately right and wrong."""
    made = []
    for place in range(number):
        trace = rag_trace(place, RIGHT if place % 2 == 0 else WRONG)
        spans = [
            replace(span, attributes={**span.attributes, semconv.SESSION_ID: "chat"}) for span in trace.spans
        ]
        made.append(Trace.of(trace.trace_id, spans))
    return made


class SearchedTraces(StoredTraces):
    """A reader that searches by time, as a back end does."""

    shortest_ns = 1
    longest_ns = 10 * HOUR_NS

    async def search(self, query: TraceQuery) -> Page:
        found = {
            trace_id: trace
            for trace_id, trace in self._traces.items()
            if query.since_ns <= trace.spans[0].start_ns < query.until_ns
        }
        return Page.of(found, limit=100)


def sessions_in(sink: MemorySink) -> list[Span]:
    return [span for span in sink.spans if span.name.startswith(semconv.SESSION_SPAN)]


def searched(stored: list[Trace]) -> Selection:
    first_ns = stored[0].spans[0].start_ns
    return Selection(query=TraceQuery(since_ns=first_ns - HOUR_NS, until_ns=first_ns + 2 * HOUR_NS))


async def test_a_run_that_is_stopped_leaves_its_sessions_to_the_one_that_goes_on(tmp_path: Path) -> None:
    stored, sink = turns(), MemorySink()
    selection = searched(stored)
    assert selection.query is not None
    with Progress(tmp_path / "progress.db") as progress:
        progress.begin("r", since_ns=selection.query.since_ns, until_ns=selection.query.until_ns)
        stopped = ResumableRun(progress=progress, name="r")

        def stop(answer: JudgedAnswer) -> None:
            stopped.stop.set()

        first = await backfill(
            SearchedTraces(*stored),
            sink,
            evaluator=EVALUATOR,
            selection=selection,
            run=stopped,
            sessions=SETTINGS,
            on_evaluated=stop,
            concurrency=1,
        )
        assert (first.is_stopped, first.sessions, first.sessions_left) == (True, {}, 1)
        assert progress.unfinished("r") is not None
        again = ResumableRun(progress=progress, name="r")
        second = await backfill(
            SearchedTraces(*stored),
            sink,
            evaluator=EVALUATOR,
            selection=selection,
            run=again,
            sessions=SETTINGS,
        )
    assert first.judged + second.judged == 4
    assert second.sessions == {"fail": 1}
    assert [span.attributes[semconv.SESSION_TURNS] for span in sessions_in(sink)] == [4]


async def test_answers_of_a_pilot_are_turns_too(tmp_path: Path) -> None:
    stored, sink = turns(8), MemorySink()
    with Progress(tmp_path / "progress.db") as progress:
        run = ResumableRun(progress=progress, name="r")
        preview = await dry_run(
            StoredTraces(*stored), evaluator=EVALUATOR, pilot=5, run=run, sessions=SETTINGS
        )
        report = await backfill(StoredTraces(*stored), sink, evaluator=EVALUATOR, run=run, sessions=SETTINGS)
    assert (preview.pilot.judged, report.judged) == (5, 3)
    [span] = sessions_in(sink)
    assert span.attributes[semconv.SESSION_TURNS] == 8
    assert span.attributes[semconv.SESSION_UNCHECKED] == 0
