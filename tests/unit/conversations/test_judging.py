"""Turns that are read back from what a trace has of an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ragtrace import semconv
from ragtrace.conversations import PlacedTurn, session_of, turn_on_carrier
from ragtrace.judge import ScriptedJudge
from ragtrace.model import RagRecord, Sample, Target
from ragtrace.pipeline import attach, evaluate
from ragtrace.traces.attach import AttachOptions
from ragtrace.traces.trace import Scope, Span, SpanEvent

ANSWER = "Refunds take 14 days. Refunds need a blue form."
RECORD = replace(
    RagRecord.of(question="How long?", contexts=["Refunds take 14 days."], answer=ANSWER),
    target=Target(trace_id="1" * 32, span_id="2" * 16, start_ns=1_000, end_ns=9_000_000),
    session_id="chat",
)


async def carrier_of(record: RagRecord, **options: bool) -> Span:
    evaluation = await evaluate(record, judge=ScriptedJudge())
    sample = Sample(rule="ratio", rate=1.0, probability=1.0)
    span = attach(evaluation, record, sample=sample, options=AttachOptions(**options), now_ns=10_000_000)  # type: ignore[arg-type]
    assert span is not None
    return span


def read(record: RagRecord, *carriers: Span) -> PlacedTurn:
    placed = turn_on_carrier(record, carriers, tenant="")
    assert placed is not None
    return placed


async def test_without_content_and_places_only_the_outcome_is_known() -> None:
    carrier = await carrier_of(RECORD, content=False)
    places = {semconv.CLAIM_OFFSET_START, semconv.CLAIM_OFFSET_END}
    events = tuple(
        replace(
            event, attributes={key: value for key, value in event.attributes.items() if key not in places}
        )
        for event in carrier.events
    )
    turn = read(RECORD, replace(carrier, events=events)).turn
    assert (turn.is_faithful, turn.has_text, turn.claims) == (False, False, ())


@pytest.mark.parametrize("is_whole", [True, False])
async def test_what_tells_of_the_session_is_not_taken_for_the_answers_verdict(is_whole: bool) -> None:
    carrier = await carrier_of(RECORD)
    result = SpanEvent(
        name=semconv.EVALUATION_RESULT,
        time_ns=1,
        attributes={semconv.EVALUATION_NAME: semconv.SESSION_METRIC},
    )
    session = Span(
        trace_id=carrier.trace_id,
        span_id="5" * 16,
        parent_span_id=carrier.parent_span_id,
        name="session pass",
        start_ns=1,
        end_ns=2,
        attributes={semconv.SESSION_LABEL: "pass"} if is_whole else {semconv.EVAL_STATUS: "ok"},
        events=(result,),
        scope=Scope(name=semconv.SCOPE_EVALUATION),
    )
    assert read(RECORD, session, carrier).turn.carrier_span_id == carrier.span_id
    assert turn_on_carrier(RECORD, [session], tenant="") is None


def test_the_tenant_of_the_application_comes_before_any_other() -> None:
    assert RECORD.target is not None
    own = replace(RECORD, target=replace(RECORD.target, resource={semconv.TENANT: "acme"}))
    named = [session_of(record, tenant="other") for record in (own, RECORD)]
    assert [name.tenant for name in named if name] == ["acme", "other"]
    assert session_of(replace(RECORD, session_id=None), tenant="") is None
