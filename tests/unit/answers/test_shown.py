"""What a page shows of a judged answer."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ragtrace.answers.shown import MarkedPassage, pieces, shown_answer
from ragtrace.model import Claim, Verdict, VerdictLabel
from tests.unit.reports.judged_answers import of_outcome, result

marks = st.builds(
    MarkedPassage, st.integers(0, 9), st.integers(0, 12), st.integers(1, 3), st.sampled_from(VerdictLabel)
)


@given(st.text("ab ", max_size=10), st.lists(marks, max_size=4))
def test_pieces_make_the_text_again_and_each_mark_ends_once(text: str, marks: list[MarkedPassage]) -> None:
    found = pieces(text, marks)
    within = {(mark.number, mark.end) for mark in marks if mark.start < mark.end <= len(text)}
    assert "".join(piece.text for piece in found) == text
    assert sum(len(piece.ends) for piece in found) == len(within)
    assert all(bool(piece.numbers) is (piece.label is not None) for piece in found)


def test_overlapping_marks_name_every_claim_over_a_passage_the_worst_first() -> None:
    marks = [
        MarkedPassage(0, 6, 1, VerdictLabel.SUPPORTED),
        MarkedPassage(3, 9, 2, VerdictLabel.CONTRADICTED),
    ]
    found = [(piece.text, piece.label, piece.numbers, piece.ends) for piece in pieces("abcdefghi.", marks)]
    assert found == [
        ("abc", VerdictLabel.SUPPORTED, (1,), ()),
        ("def", VerdictLabel.CONTRADICTED, (2, 1), (1,)),
        ("ghi", VerdictLabel.CONTRADICTED, (2,), (2,)),
        (".", None, (), ()),
    ]


def test_of_thousands_of_claims_the_worst_are_shown_in_the_order_of_the_answer() -> None:
    found = result(0.5)
    verdicts = tuple(
        Verdict(
            claim=Claim(index=number, text=f"claim {number}"),
            label=VerdictLabel.CONTRADICTED if number % 1_000 == 7 else VerdictLabel.SUPPORTED,
        )
        for number in range(3_000)
    )
    shown = shown_answer(of_outcome(replace(found, verdicts=verdicts)), most_claims=4)
    assert [claim.number for claim in shown.claims] == [1, 8, 1_008, 2_008]
    assert shown.more_claims == 2_996
