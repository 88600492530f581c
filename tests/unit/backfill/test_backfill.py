"""Back-fill: what becomes of every stored trace, and what is sent."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace import semconv
from ragtrace.backends import MemorySink
from ragtrace.backfill import Selection, SpanId, backfill, dry_run, span_ids
from ragtrace.errors import SendRejected, SendRetryable
from ragtrace.judge import Script, ScriptedJudge
from ragtrace.metrics import metric_named
from ragtrace.model import JudgedAnswer
from ragtrace.pipeline import Evaluator
from ragtrace.ports import Judge, Metric
from ragtrace.sampling import Rule, SamplingPlan, ValueTest, keeps
from ragtrace.traces.extract import AttributeMapping, AttributePath, ExtractRules
from ragtrace.traces.trace import Trace
from tests.unit.backfill.stored_traces import RIGHT, WRONG, StoredTraces, plain_trace, rag_trace, trace_id

METRICS: tuple[Metric, ...] = (metric_named("faithfulness"),)
PLAIN = Evaluator(metrics=METRICS, judge=ScriptedJudge())


def with_verdicts(stored: Trace, sink: MemorySink) -> Trace:
    """The trace as a back end has it after the back-fill."""
    added = [span for span in sink.spans if span.trace_id == stored.trace_id]
    return Trace.of(stored.trace_id, [*stored.spans, *added])


async def no_pause(_seconds: float) -> None:
    """Do not wait."""


async def test_every_stored_answer_gets_its_verdict_in_its_own_trace() -> None:
    sink = MemorySink()
    stored = StoredTraces(rag_trace(0, RIGHT), rag_trace(1, WRONG))
    report = await backfill(stored, sink, evaluator=PLAIN)
    assert [(span.trace_id, span.name) for span in sink.spans] == [
        (trace_id(0), "evaluation pass"),
        (trace_id(1), "evaluation fail"),
    ]
    assert (report.traces, report.records, report.judged, report.sent) == (2, 2, 2, 2)
    assert report.labels == {"pass": 1, "fail": 1}
    assert report.is_clean


async def test_carriers_say_that_they_are_a_backfills_and_how_they_were_sampled() -> None:
    sink = MemorySink()
    (chosen,) = [number for number in range(2) if keeps(trace_id(number), 0.5)][:1]
    await backfill(
        StoredTraces(rag_trace(chosen)),
        sink,
        evaluator=PLAIN,
        selection=Selection(sampling=SamplingPlan(ratio=0.5)),
    )
    attributes = sink.spans[0].attributes
    assert attributes["ragtrace.eval.mode"] == "backfill"
    assert attributes["ragtrace.sample.rule"] == "ratio"
    assert attributes["ragtrace.sample.probability"] == 0.5


async def test_rules_choose_what_the_collector_would_choose() -> None:
    sink = MemorySink()
    errors = Rule(name="asked", attributes={"ragtrace.kind": ValueTest(("rag",))}, rate=1.0)
    plan = SamplingPlan(ratio=0.0, rules=(errors, Rule(name="other", model=ValueTest(("x",)))))
    report = await backfill(
        StoredTraces(rag_trace(0), plain_trace(1)), sink, evaluator=PLAIN, selection=Selection(sampling=plan)
    )
    assert [span.attributes["ragtrace.sample.rule"] for span in sink.spans] == ["asked"]
    assert report.records == report.judged + report.sampled_out


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


@pytest.mark.parametrize(
    ("trace", "reason", "carriers"),
    [
        pytest.param(rag_trace(answer=None), "no_content", 1, id="answer not recorded"),
        pytest.param(rag_trace(retrieves=False), "no_retrieval", 1, id="nothing retrieved"),
    ],
)
async def test_answers_that_cannot_be_judged_are_skipped_with_the_reason(
    trace: Trace, reason: str, carriers: int
) -> None:
    sink = MemorySink()
    report = await backfill(StoredTraces(trace), sink, evaluator=PLAIN)
    assert (report.ineligible, report.judged, len(sink.spans)) == ({reason: 1}, 0, carriers)
    assert report.is_clean


async def test_traces_without_a_rag_call_and_traces_that_are_not_there_are_named() -> None:
    asked = Selection(trace_ids=(trace_id(0), trace_id(7)))
    report = await backfill(
        StoredTraces(plain_trace(0), rag_trace(1)), MemorySink(), evaluator=PLAIN, selection=asked
    )
    assert (report.traces, report.without_record, report.not_found) == (1, 1, [trace_id(7)])
    assert not report.is_clean


async def test_limit_stops_after_so_many_new_answers() -> None:
    sink = MemorySink()
    stored = StoredTraces(*(rag_trace(number) for number in range(5)))
    await backfill(stored, sink, evaluator=PLAIN, selection=Selection(limit=2))
    assert [span.trace_id for span in sink.spans] == [trace_id(0), trace_id(1)]


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


async def test_a_sink_that_stays_away_ends_the_run_and_says_what_was_sent() -> None:
    gone = MemorySink(failures=[SendRetryable("nobody listens")] * 99)
    with pytest.raises(SendRetryable, match=r"nobody listens \(tried 27 times; carriers sent before: 0\)"):
        await backfill(StoredTraces(rag_trace()), gone, evaluator=PLAIN, sleep=no_pause)


async def test_a_carrier_that_is_refused_does_not_stop_the_others() -> None:
    sink = MemorySink(failures=[SendRejected("too old")])
    stored = StoredTraces(rag_trace(0), rag_trace(1))
    report = await backfill(stored, sink, evaluator=PLAIN, concurrency=1)
    assert (report.sent, report.rejected, report.is_clean) == (1, {"too old": 1}, False)


async def test_evaluations_are_shown_in_the_order_of_the_source() -> None:
    shown: list[str] = []

    def show(answer: JudgedAnswer) -> None:
        shown.append(answer.record.id.partition(":")[0])

    stored = StoredTraces(*(rag_trace(number) for number in range(20)))
    await backfill(stored, MemorySink(), evaluator=PLAIN, on_evaluated=show)
    assert shown == [trace_id(number) for number in range(20)]


async def test_answers_are_found_where_a_mapping_says() -> None:
    own = {"app.q": "How long?", "app.hits": (RIGHT,), "app.a": RIGHT}
    trace = Trace.of(trace_id(0), [replace(plain_trace(0).spans[0], attributes=own)])
    mapping = AttributeMapping(
        question=(AttributePath("app.q"),),
        context=(AttributePath("app.hits"),),
        answer=(AttributePath("app.a"),),
    )
    selection = Selection(rules=ExtractRules(mapping=mapping))
    sink = MemorySink()
    report = await backfill(StoredTraces(trace), sink, evaluator=PLAIN, selection=selection)
    assert (report.judged, [span.name for span in sink.spans]) == (1, ["evaluation pass"])


async def test_rehearsal_asks_no_judge_and_counts_what_the_run_then_does() -> None:
    stored = StoredTraces(rag_trace(0), rag_trace(1, WRONG), rag_trace(2, None), plain_trace(3))
    judge = ScriptedJudge()
    plan = (await dry_run(stored, evaluator=Evaluator(metrics=METRICS, judge=judge))).report
    assert judge.requests == []
    done = await backfill(stored, MemorySink(), evaluator=Evaluator(metrics=METRICS, judge=judge))
    assert (plan.judged, plan.ineligible, plan.records) == (done.judged, done.ineligible, done.records)
    assert (plan.sent, plan.labels, plan.usage.calls) == (0, {}, 0)


async def test_rehearsal_knows_what_the_real_judge_has_judged_already() -> None:
    sink = MemorySink()
    judge: Judge = ScriptedJudge()
    await backfill(StoredTraces(rag_trace()), sink, evaluator=Evaluator(metrics=METRICS, judge=judge))
    judged = StoredTraces(with_verdicts(rag_trace(), sink))
    assert (
        await dry_run(judged, evaluator=Evaluator(metrics=METRICS, judge=judge))
    ).report.already_evaluated == 1


async def test_span_ids_are_those_of_the_source() -> None:
    assert await span_ids(StoredTraces(rag_trace())) == {
        SpanId(trace_id(0), "0000000000000001"),
        SpanId(trace_id(0), "0000000000000002"),
    }
