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
    findings_of,
    session_span,
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
