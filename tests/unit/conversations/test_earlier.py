"""Earlier turns of a session as material: by time, from before the answer, and within bounds."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ragtrace.conversations import SessionSettings, Turn, wants_earlier_turns, with_earlier_turns
from ragtrace.model import EarlierTurn, RagRecord, Target

SETTINGS = SessionSettings(context_turns=2, keep_ns=100)
RECORD = replace(
    RagRecord.of(question="And back?", contexts=["5 days."], answer="It takes 5 days from there."),
    target=Target(trace_id="f" * 32, span_id="1" * 16, start_ns=1_000, end_ns=1_001),
)


def turn(start_ns: int, *, trace: str = "a", question: str | None = "", answer: str = "") -> Turn:
    return Turn(
        trace_id=trace * 32,
        span_id="1" * 16,
        start_ns=start_ns,
        carrier_span_id="c",
        question=f"Question {start_ns}?" if question == "" else question,
        answer=answer or f"Answer {start_ns}.",
        is_faithful=True,
    )


def asked(record: RagRecord) -> list[str | None]:
    return [earlier.question for earlier in record.earlier_turns]


@given(st.permutations([turn(900), turn(950), turn(990), turn(1_000), turn(1_001)]))
def test_the_last_turns_before_the_answer_count_in_order_of_time_whenever_they_came(
    turns: list[Turn],
) -> None:
    assert asked(with_earlier_turns(RECORD, turns, SETTINGS)) == ["Question 990?", "Question 1000?"]


def test_texts_are_bounded_and_deleted_ones_are_left_out() -> None:
    long = replace(turn(950), question="q" * 5_000, answer="a" * 5_000)
    (shown,) = with_earlier_turns(RECORD, [long, turn(960).without_text()], SETTINGS).earlier_turns
    assert (len(shown.question or ""), len(shown.answer)) == (1_001, 1_001)


def test_a_conversation_in_the_prompt_comes_first_and_none_is_wanted_by_default() -> None:
    own = replace(RECORD, earlier_turns=(EarlierTurn(question=None, answer="Hello."),))
    assert wants_earlier_turns(RECORD, SETTINGS)
    assert not wants_earlier_turns(own, SETTINGS)
    assert not wants_earlier_turns(RECORD, SessionSettings())
