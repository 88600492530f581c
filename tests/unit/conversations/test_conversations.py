"""Turns of a session: as material, as they are read back, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ragtrace import semconv
from ragtrace.conversations import (
    PlacedTurn,
    SessionFindings,
    SessionName,
    SessionSettings,
    Turn,
    TurnCheck,
    TurnClaim,
    TurnLink,
    findings_of,
    session_of,
    session_span,
    turn_on_carrier,
    wants_earlier_turns,
    with_earlier_turns,
)
from ragtrace.judge import ScriptedJudge
from ragtrace.model import EarlierTurn, Label, RagRecord, Sample, Target, VerdictLabel
from ragtrace.pipeline import attach, evaluate
from ragtrace.traces.attach import AttachOptions
from ragtrace.traces.trace import Resource, Scope, Span, SpanEvent

SETTINGS = SessionSettings(context_turns=2, keep_ns=100)
ASKING = replace(
    RagRecord.of(question="And back?", contexts=["5 days."], answer="It takes 5 days from there."),
    target=Target(trace_id="f" * 32, span_id="1" * 16, start_ns=1_000, end_ns=1_001),
)


def a_turn(number: int, *claims: tuple[str, VerdictLabel], is_faithful: bool | None = True) -> Turn:
    """Build a turn whose answer is its claims, a sentence each."""
    answer, placed = "", []
    for text, label in claims:
        placed.append(TurnClaim(text=text, label=label, start=len(answer), end=len(answer) + len(text)))
        answer += f"{text} "
    return Turn(
        trace_id=f"{number:032x}",
        span_id=f"{number:016x}",
        start_ns=number * 10,
        carrier_span_id=f"c{number}",
        question="?",
        answer=answer or "Yes.",
        is_faithful=is_faithful,
        claims=tuple(placed),
    )


def asked_at(start_ns: int) -> Turn:
    return replace(a_turn(1), trace_id="a" * 32, start_ns=start_ns, question=f"Question {start_ns}?")


def asked(record: RagRecord) -> list[str | None]:
    return [earlier.question for earlier in record.earlier_turns]


@given(st.permutations([asked_at(900), asked_at(950), asked_at(990), asked_at(1_000), asked_at(1_001)]))
def test_the_last_turns_before_the_answer_count_in_order_of_time_whenever_they_came(
    turns: list[Turn],
) -> None:
    assert asked(with_earlier_turns(ASKING, turns, SETTINGS)) == ["Question 990?", "Question 1000?"]


def test_texts_are_bounded_and_deleted_ones_are_left_out() -> None:
    long = replace(asked_at(950), question="q" * 5_000, answer="a" * 5_000)
    (shown,) = with_earlier_turns(ASKING, [long, asked_at(960).without_text()], SETTINGS).earlier_turns
    assert (len(shown.question or ""), len(shown.answer)) == (1_001, 1_001)


def test_a_conversation_in_the_prompt_comes_first_and_none_is_wanted_by_default() -> None:
    own = replace(ASKING, earlier_turns=(EarlierTurn(question=None, answer="Hello."),))
    assert wants_earlier_turns(ASKING, SETTINGS)
    assert not wants_earlier_turns(own, SETTINGS)
    assert not wants_earlier_turns(ASKING, SessionSettings())


ANSWER = "Refunds take 14 days. Refunds need a blue form."
JUDGED = replace(
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
    carrier = await carrier_of(JUDGED, content=False)
    places = {semconv.CLAIM_OFFSET_START, semconv.CLAIM_OFFSET_END}
    events = tuple(
        replace(
            event, attributes={key: value for key, value in event.attributes.items() if key not in places}
        )
        for event in carrier.events
    )
    turn = read(JUDGED, replace(carrier, events=events)).turn
    assert (turn.is_faithful, turn.has_text, turn.claims) == (False, False, ())


async def test_what_tells_of_the_session_is_not_taken_for_the_answers_verdict() -> None:
    for is_whole in [True, False]:
        carrier = await carrier_of(JUDGED)
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
        assert read(JUDGED, session, carrier).turn.carrier_span_id == carrier.span_id, is_whole
        assert turn_on_carrier(JUDGED, [session], tenant="") is None, is_whole


def test_the_tenant_of_the_application_comes_before_any_other() -> None:
    assert JUDGED.target is not None
    own = replace(JUDGED, target=replace(JUDGED.target, resource={semconv.TENANT: "acme"}))
    named = [session_of(record, tenant="other") for record in (own, JUDGED)]
    assert [name.tenant for name in named if name] == ["acme", "other"]
    assert session_of(replace(JUDGED, session_id=None), tenant="") is None


RIGHT, WRONG, OPEN = VerdictLabel.SUPPORTED, VerdictLabel.UNSUPPORTED, VerdictLabel.UNJUDGED
NAME = SessionName(session="s", tenant="acme")
LAST = Span(
    trace_id="0" * 31 + "9",
    span_id="00000000000000c9",
    parent_span_id="00000000000000a9",
    name="evaluation pass",
    start_ns=1_000,
    end_ns=2_000,
    resource=Resource(attributes={semconv.SERVICE_NAME: "bot"}),
    scope=Scope(name=semconv.SCOPE_EVALUATION),
)


def link(turn: Turn, quote: str, *, claim: int = 0, is_conflict: bool = True) -> TurnLink:
    return TurnLink(
        claim=claim, trace_id=turn.trace_id, span_id=turn.span_id, quote=quote, is_conflict=is_conflict
    )


def found(turns: Sequence[Turn], *checked: tuple[Turn, TurnLink | None]) -> SessionFindings:
    checks = {
        (turn.trace_id, turn.span_id): TurnCheck(links=(said,)) if said else None for turn, said in checked
    }
    return findings_of(turns, checks)


def test_a_supported_claim_against_a_wrong_one_is_a_correction_and_no_fault() -> None:
    first = a_turn(1, ("Refunds take 99 days.", WRONG))
    second = a_turn(2, ("Refunds take 14 days.", RIGHT))
    findings = found([first, second], (second, link(first, "Refunds take 99 days.")))
    assert (findings.contradictions, len(findings.corrections)) == ((), 1)
    assert findings.label is Label.PASS


def test_a_wrong_claim_is_repeated_word_for_word_or_as_the_judge_quotes_it() -> None:
    first = a_turn(1, ("Refunds take 99 days.", WRONG), is_faithful=False)
    same = a_turn(2, ("refunds take 99 days", WRONG), is_faithful=False)
    other = a_turn(3, ("It is ninety-nine days.", OPEN), is_faithful=None)
    right = a_turn(4, ("Refunds take 99 days.", RIGHT))
    said = link(first, "Refunds take 99 days.", is_conflict=False)
    findings = found([first, same, other, right], (other, said))
    assert [(fault.later, fault.earlier) for fault in findings.repeated] == [(same, first), (other, first)]


@given(
    st.lists(st.sampled_from(["A.", "B.", "C."]), min_size=1, max_size=8), st.randoms(use_true_random=False)
)
def test_order_of_arrival_changes_nothing(texts: list[str], chance: Random) -> None:
    turns = [a_turn(n, (text, chance.choice([RIGHT, WRONG, OPEN]))) for n, text in enumerate(texts, start=1)]
    checks = [
        (turn, link(before, before.claims[0].text, is_conflict=chance.random() < 0.5))
        for before, turn in pairwise(turns)
    ]
    shuffled = chance.sample(turns, len(turns))
    findings = found(turns, *checks)
    assert found(shuffled, *chance.sample(checks, len(checks))) == findings
    spans = [
        session_span(found(order, *checks), NAME, last=LAST, options=AttachOptions(), now_ns=5_000)
        for order in (turns, shuffled)
    ]
    assert spans[0] == spans[1]


def test_the_span_is_under_the_last_answer_bounded_and_without_content_if_asked() -> None:
    turns = [a_turn(n, ("secret " * 1_000 + str(n % 2), RIGHT)) for n in range(1, 200)]
    checks = [(turn, link(turns[0], "secret")) for turn in turns[1:]]
    span = session_span(found(turns, *checks), NAME, last=LAST, options=AttachOptions(), now_ns=5_000)
    assert (span.trace_id, span.parent_span_id, span.name) == (
        LAST.trace_id,
        LAST.parent_span_id,
        "session fail",
    )
    assert (span.start_ns, span.end_ns) == (LAST.start_ns, LAST.end_ns)
    assert span.attributes[semconv.SESSION_TURNS] == 199
    assert span.attributes[semconv.SESSION_CONTRADICTIONS] == 198
    assert len(span.events) <= 50
    assert max(len(str(value)) for event in span.events for value in event.attributes.values()) < 2_000
    silent = session_span(
        found(turns, *checks), NAME, last=LAST, options=AttachOptions(content=False), now_ns=5_000
    )
    assert "secret" not in repr(silent)
    assert silent.span_id == span.span_id
