"""A carrier read back is the evaluation that was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.answers.carrier import is_carrier, is_held, read_carrier, without_scores
from ragtrace.answers.port import AnswerVersion
from ragtrace.model import (
    AttributeValue,
    Evaluation,
    Intermediate,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    Part,
    Provenance,
    RagRecord,
    Sample,
    Verdict,
    VerdictLabel,
    content_sha256,
)
from ragtrace.traces.attach import AttachOptions, add_to_spans, addition_of, carrier
from ragtrace.traces.otlp import decode, encode
from ragtrace.traces.trace import Span, SpanEvent
from tests.unit.answers.evaluations import Judged, judged
from tests.unit.traces.builders import (
    MS,
    START_NS,
    a_claim,
    a_record,
    a_result,
    a_span,
    an_evaluation,
)
from tests.unit.traces.strategies import values

pytestmark = pytest.mark.slow


def by_name(evaluation: Evaluation) -> Evaluation:
    """Order the outcomes as they are read: faithfulness first, then by their names on the carrier."""
    taken: list[tuple[str, MetricOutcome]] = []
    for outcome in evaluation.outcomes:
        names = [outcome.metric, f"{outcome.metric}.{outcome.profile}"]
        names += [f"{outcome.metric}.{outcome.profile}.{number}" for number in range(2, 9)]
        taken.append((next(name for name in names if name not in dict(taken)), outcome))
    taken.sort(key=lambda named: (named[0] != "faithfulness", named[0][:12] != "faithfulness", named[0]))
    return replace(evaluation, outcomes=tuple(outcome for _, outcome in taken))


SAMPLE = Sample(rule="low scores", rate=0.25, probability=0.5)
NOW_NS = START_NS + 61_000 * MS


def written(evaluation: Evaluation, record: RagRecord, **options: Any) -> Span:
    """Return the carrier as it is after the way through OTLP."""
    made = carrier(
        evaluation,
        record,
        sample=SAMPLE,
        options=AttachOptions(**options),
        now_ns=NOW_NS,
        cost_usd=0.0125,
        supersedes="ab" * 8,
    )
    (span,) = decode(encode([made]))
    return span


@given(judged())
def test_carrier_read_back_is_what_was_written(case: Judged) -> None:
    evaluation, record = case
    version = read_carrier(written(evaluation, record), record)
    assert version.judged.evaluation == by_name(evaluation)
    assert (version.judged.sample, version.judged.cost_usd) == (SAMPLE, 0.0125)
    assert (version.judged.supersedes, version.notices) == ("ab" * 8, ())
    assert version.evaluation_id == version.judged.carrier_span_id
    assert [outcome.label for outcome in version.judged.evaluation.outcomes] == [
        outcome.label for outcome in by_name(evaluation).outcomes
    ]
    assert times_of(version.judged.evaluation) == times_of(by_name(evaluation))


def times_of(evaluation: Evaluation) -> list[tuple[int, list[int]]]:
    return [
        (outcome.duration_ms, [run.duration_ms for run in outcome.steps]) for outcome in evaluation.outcomes
    ]


def test_what_a_number_was_made_of_is_bounded_on_the_trace_and_has_no_text_without_content() -> None:
    made = Intermediate(truths=tuple(f"SECRET {number}" for number in range(40)), truths_limit=10)
    evaluation = an_evaluation(replace(a_result(), intermediate=made))
    shown, hidden = (written(evaluation, a_record(), content=content) for content in (True, False))
    (result,) = read_carrier(shown, a_record()).judged.evaluation.results
    assert result.intermediate == replace(made, truths=made.truths[:16])
    assert shown.events[0].attributes["ragtrace.intermediate.total"] == 40
    assert hidden.events[0].attributes["ragtrace.intermediate.total"] == 40
    assert "SECRET" not in repr(hidden)


@given(judged(max_claims=12), st.integers(0, 12))
def test_what_a_carrier_left_out_is_told(case: Judged, max_claims: int) -> None:
    evaluation, record = case
    version = read_carrier(written(evaluation, record, max_claims=max_claims), record)
    for wrote, read in zip(by_name(evaluation).outcomes, version.judged.evaluation.outcomes, strict=True):
        if not isinstance(wrote, MetricResult):
            continue
        assert isinstance(read, MetricResult)
        assert set(read.verdicts) <= set(wrote.verdicts)
        left = len(wrote.verdicts) - len(read.verdicts)
        notice = f"{len(read.verdicts)} of {len(wrote.verdicts)} claims are on the trace"
        assert bool(left) == any(said.startswith(notice) for said in version.notices)


def held(evaluation: Evaluation, record: RagRecord) -> Span:
    """Return the answer span with its scores, as a collector in hold mode sends it."""
    answer = a_span(3, name="chat", attributes={"ragtrace.kind": "rag", "session.id": "session-1"})
    made = carrier(
        evaluation,
        record,
        sample=SAMPLE,
        mode="hold",
        options=AttachOptions(),
        now_ns=NOW_NS,
        cost_usd=0.0125,
    )
    (span,) = decode(add_to_spans(encode([answer]), {answer.span_id: addition_of(made)}))
    return span


@given(judged())
def test_scores_of_a_held_answer_are_read_from_its_own_span(case: Judged) -> None:
    evaluation, record = case
    span = held(evaluation, record)
    version = read_carrier(span, record)
    assert is_carrier(span)
    assert is_held(span)
    assert version.judged.evaluation == by_name(evaluation)
    assert version.judged.carrier_span_id is None
    assert version.evaluation_id == written(evaluation, record).span_id
    sent = without_scores(span)
    assert sent.attributes["ragtrace.kind"] == "rag"
    assert not [key for key in sent.attributes if key.startswith(("ragtrace.eval.", "ragtrace.score."))]
    assert not sent.events


BAD = an_evaluation(
    a_result(
        replace(
            a_claim(0, VerdictLabel.CONTRADICTED, text="Returns take 30 days.", chunk_ids=("faq-12",)),
            confidence=0.9,
        ),
        a_claim(1, VerdictLabel.SUPPORTED),
        explanation="1 of 2 claims contradicted",
    )
)


def read(span: Span, record: RagRecord | None = None) -> AnswerVersion:
    return read_carrier(span, record or a_record())


def verdicts_of(version: AnswerVersion) -> tuple[Verdict, ...]:
    (result,) = version.judged.evaluation.results
    return result.verdicts


def test_carrier_without_content_shows_passages_of_the_answer() -> None:
    version = read(written(BAD, a_record(), content=False))
    first, _ = verdicts_of(version)
    assert first.claim.text == "Orders ca"
    assert (first.quote, first.quote_verified, first.reason) == (None, True, None)
    assert "no texts (`attach.content` is false)" in version.notices[0]
    assert "passages of the answer" in version.notices[0]


def test_quote_that_is_not_in_the_chunk_any_more_is_unverified() -> None:
    record = a_record()
    chunk = replace(record.chunks[0], text="Orders can be returned within 60 days.")
    version = read(written(BAD, record), replace(record, chunks=(chunk,)))
    first, _ = verdicts_of(version)
    assert (first.quote, first.quote_verified) == ("within 14 days", False)
    assert "1 quote is not in the chunks any more" in version.notices[0]


def test_record_that_changed_since_is_told() -> None:
    source = Provenance(
        part=Part.ANSWER,
        span_id="03",
        span_name="chat",
        attribute="x",
        convention="ragtrace",
        why="it has it",
    )
    record = replace(a_record(), provenance=(source,))
    evaluation = replace(BAD, input_sha256=content_sha256(record))
    assert not read(written(evaluation, record), record).notices
    later = replace(record, question="How long can I keep it?")
    (notice,) = read(written(evaluation, record), later).notices
    assert notice.startswith("The trace reads differently today")


def test_carrier_of_a_newer_schema_shows_what_is_known() -> None:
    span = written(BAD, a_record())
    newer = SpanEvent(
        name="ragtrace.claim.overtaken",
        time_ns=0,
        attributes={"ragtrace.claim.index": 7, "ragtrace.new": True},
    )
    span = replace(
        span,
        attributes={**span.attributes, "ragtrace.schema.version": "3", "ragtrace.new": "value"},
        events=(*span.events, newer),
    )
    version = read(span)
    assert len(verdicts_of(version)) == 2
    assert "A newer ragtrace wrote this carrier (schema version 3" in version.notices[0]
    assert "1 verdict on this carrier cannot be read" in version.notices[1]


@pytest.mark.parametrize("score", ["high", True, None, 7.5, -1.0, float("nan"), (0.5,)])
def test_unreadable_score_is_a_failure_and_never_a_number(score: AttributeValue) -> None:
    span = written(BAD, a_record())
    events = tuple(
        replace(event, attributes={**event.attributes, "gen_ai.evaluation.score.value": score})
        for event in span.events
    )
    kept = {key: value for key, value in span.attributes.items() if "score" not in key}
    version = read(replace(span, attributes=kept, events=events))
    (outcome,) = version.judged.evaluation.outcomes
    assert isinstance(outcome, MetricFailure)
    assert version.notices[0] == "faithfulness: its carrier has no readable score"


KEYS = st.sampled_from(
    sorted(
        {
            *(event_key for event in written(BAD, a_record()).events for event_key in event.attributes),
            *written(BAD, a_record()).attributes,
        }
    )
)


@given(st.dictionaries(KEYS, values, max_size=6), st.dictionaries(KEYS, values, max_size=6), st.data())
def test_broken_carrier_is_read_without_an_exception_or_an_invented_score(
    attributes: dict[str, AttributeValue], of_event: dict[str, AttributeValue], data: st.DataObject
) -> None:
    span = written(BAD, a_record())
    broken = data.draw(st.integers(0, len(span.events) - 1))
    events = tuple(
        replace(event, attributes={**event.attributes, **of_event}) if position == broken else event
        for position, event in enumerate(span.events)
    )
    version = read(replace(span, attributes={**span.attributes, **attributes}, events=events))
    told = {
        *_numbers(span.attributes),
        *_numbers(attributes),
        *_numbers(of_event),
        *(number for event in span.events for number in _numbers(event.attributes)),
    }
    assert {result.score for result in version.judged.evaluation.results} - {None} <= told


def _numbers(attributes: Mapping[str, AttributeValue]) -> set[float]:
    found = set()
    for value in attributes.values():
        try:
            found.add(float(value))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
    return found
