"""What turns come to: the same whatever the order in which they come, with evidence for each fault."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ragtrace import semconv
from ragtrace.conversations import (
    SessionFindings,
    SessionName,
    Turn,
    TurnCheck,
    TurnClaim,
    TurnLink,
    check_of_json,
    explanation,
    findings_of,
    session_span,
    turn_of_json,
)
from ragtrace.model import Label, VerdictLabel
from ragtrace.traces.attach import AttachOptions
from ragtrace.traces.trace import Resource, Scope, Span

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


def link(turn: Turn, quote: str, *, claim: int = 0, is_conflict: bool = True) -> TurnLink:
    return TurnLink(
        claim=claim, trace_id=turn.trace_id, span_id=turn.span_id, quote=quote, is_conflict=is_conflict
    )


def found(turns: Sequence[Turn], *checked: tuple[Turn, TurnLink | None]) -> SessionFindings:
    checks = {
        (turn.trace_id, turn.span_id): TurnCheck(links=(said,)) if said else None for turn, said in checked
    }
    return findings_of(turns, checks)


def test_an_earlier_answer_that_says_the_opposite_is_a_contradiction_with_its_quote() -> None:
    first, second = a_turn(1, ("Refunds take 14 days.", RIGHT)), a_turn(2, ("Refunds take 30 days.", RIGHT))
    findings = found([first, second], (second, link(first, "Refunds take 14 days.")))
    (fault,) = findings.contradictions
    assert (fault.text, fault.earlier, fault.quote) == (
        "Refunds take 30 days.",
        first,
        "Refunds take 14 days.",
    )
    assert findings.label is Label.FAIL


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


def test_a_turn_that_could_not_be_checked_leaves_the_session_open_but_not_a_fault() -> None:
    turns = [a_turn(1, ("A.", RIGHT)), a_turn(2, ("B.", RIGHT))]
    findings = found(turns, (turns[1], None))
    assert (findings.unchecked, findings.label) == (1, Label.SKIPPED)
    assert "1 not checked against earlier turns" in explanation(findings)


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


@given(st.text(), st.text(), st.sampled_from([True, False, None]))
def test_turns_and_checks_are_read_as_they_were_written(
    text: str, quote: str, is_faithful: bool | None
) -> None:
    turn = a_turn(1, (text, WRONG), is_faithful=is_faithful)
    assert turn_of_json(turn.to_json()) == turn
    check = TurnCheck(links=(link(turn, quote), link(turn, quote, is_conflict=False)))
    assert check_of_json(check.to_json()) == check


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
