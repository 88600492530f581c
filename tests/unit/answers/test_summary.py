"""The summary of an answer, read from its carrier or from a judged answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.answers.carrier import summary_of
from ragtrace.answers.port import VERDICTS
from ragtrace.answers.summary import AnswerSummary, summary_of_judged
from ragtrace.model import (
    Diagnosis,
    Direction,
    Evaluation,
    JudgedAnswer,
    Label,
    MetricOutcome,
    MetricResult,
    Sample,
    SkipReason,
    VerdictLabel,
)
from ragtrace.traces.attach import AttachOptions, carrier
from ragtrace.traces.otlp import decode, encode
from ragtrace.traces.trace import Span
from tests.unit.traces.builders import (
    START_NS,
    TRACE_ID,
    a_chunk_verdict,
    a_claim,
    a_failure,
    a_record,
    a_result,
    an_evaluation,
    span_id,
)

SAMPLE = Sample(rule="ratio", rate=0.1, probability=0.1)
BAD = an_evaluation(
    a_result(a_claim(0, VerdictLabel.CONTRADICTED), a_claim(1, VerdictLabel.SUPPORTED)),
    replace(a_result(metric="hallucination", score=0.5), direction=Direction.LOWER_IS_BETTER),
)


def a_carrier(evaluation: Evaluation = BAD, *, supersedes: str | None = None) -> Span:
    return carrier(
        evaluation,
        a_record(),
        sample=SAMPLE,
        options=AttachOptions(),
        now_ns=START_NS + 10**12,
        supersedes=supersedes,
        cost_usd=0.002,
    )


def summarized(span: Span) -> AnswerSummary:
    summary = summary_of(span)
    assert summary is not None
    return summary


def test_carrier_tells_everything_about_its_answer_but_the_content() -> None:
    summary = summarized(a_carrier(supersedes=span_id(9)))
    assert summary.key == (TRACE_ID, span_id(3), "")
    assert summary.carrier_span_id == a_carrier().span_id
    assert summary.supersedes == span_id(9)
    assert (summary.time_ns, summary.judged_ns) == (START_NS, BAD.started_at_ns)
    assert (summary.service, summary.model, summary.prompt_version) == ("support-bot", "gpt-4o-mini", "7")
    assert (summary.session, summary.judge) == ("session-1", "openai:gpt-4o-mini")
    assert (summary.rule, summary.probability, summary.cost_usd) == ("ratio", 0.1, 0.002)
    assert summary.label is Label.FAIL
    assert [(m.name, m.score, m.direction.value) for m in summary.metrics] == [
        ("faithfulness", 0.5, "higher_is_better"),
        ("hallucination", 0.5, "lower_is_better"),
    ]


verdicts = st.lists(
    st.builds(a_claim, st.integers(0, 5), st.sampled_from(list(VerdictLabel)[:4])), max_size=4
).map(tuple)
chunk_verdicts = st.lists(
    st.builds(a_chunk_verdict, st.integers(0, 3), st.sampled_from(list(VERDICTS)[4:])), max_size=3
).map(tuple)
metrics = st.sampled_from(["faithfulness", "groundedness", "chunk_precision", "rag_score", "mine"])
diagnoses = st.none() | st.sampled_from(Diagnosis)


@st.composite
def outcomes(draw: st.DrawFn) -> MetricOutcome:
    name = draw(metrics)
    if not draw(st.integers(0, 3)):
        return a_failure(name)
    score = draw(st.none() | st.floats(0, 1))
    made = a_result(
        *draw(verdicts),
        score=score,
        metric=name,
        skip_reason=SkipReason.NO_CLAIMS if score is None else None,
        chunk_verdicts=draw(chunk_verdicts),
    )
    return replace(made, diagnosis=draw(diagnoses), direction=draw(st.sampled_from(Direction)))


evaluations = st.lists(outcomes(), min_size=1, max_size=4).map(lambda found: an_evaluation(*found))


@given(evaluations, st.none() | st.floats(0.001, 1), st.none() | st.floats(0, 1))
def test_judged_answer_and_its_carrier_have_the_same_summary(
    evaluation: Evaluation, probability: float | None, cost_usd: float | None
) -> None:
    sample = Sample(rule="ratio", rate=0.1, probability=probability)
    span = carrier(
        evaluation,
        a_record(),
        sample=sample,
        options=AttachOptions(carrier_time="now", max_claims=1),
        now_ns=START_NS,
        cost_usd=cost_usd,
    )
    answer = JudgedAnswer(record=a_record(), evaluation=evaluation, sample=sample, cost_usd=cost_usd)
    told = summary_of(decode(encode([span]))[0])
    assert told is not None
    assert summary_of_judged(answer) == replace(told, question=a_record().question or "")


SUPPORTED, CONTRADICTED, UNJUDGED = (
    a_claim(0, label) for label in (VerdictLabel.SUPPORTED, VerdictLabel.CONTRADICTED, VerdictLabel.UNJUDGED)
)


@pytest.mark.parametrize(
    ("result", "doubt"),
    [
        (a_result(SUPPORTED, score=1.0, threshold=0.5), 0.0),
        (a_result(replace(SUPPORTED, confidence=0.9), score=1.0, threshold=0.5), 0.2),
        (a_result(replace(SUPPORTED, confidence=0.4), score=1.0, threshold=0.5), 1.0),
        (a_result(SUPPORTED, UNJUDGED, UNJUDGED, UNJUDGED, score=1.0, threshold=0.5), 0.75),
        (a_result(SUPPORTED, score=0.65, threshold=0.6), 0.46),  # half of 1 - 0.05 / 0.6
        (replace(a_result(SUPPORTED), threshold=None, pass_when="contradicted == 0"), 0.0),
        (replace(a_result(SUPPORTED, CONTRADICTED), threshold=None, pass_when="contradicted == 0"), 0.5),
        (a_result(UNJUDGED, score=None, skip_reason=SkipReason.ALL_UNJUDGED), 1.0),
    ],
)
def test_doubt_is_that_of_the_least_sure_part(result: MetricResult, doubt: float) -> None:
    assert summary_of(a_carrier(an_evaluation(result))).doubt == doubt  # type: ignore[union-attr]
