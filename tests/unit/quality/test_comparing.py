"""Two versions: pairs, two samples, and what belongs together."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ragtrace.answers.summary import AnswerSummary
from ragtrace.quality.comparing import ComparedAnswer, ComparedSide, VersionComparison, comparable, compare
from tests.unit.quality.samples import judged, traffic


def compared(first: Iterable[AnswerSummary], second: Iterable[AnswerSummary]) -> VersionComparison:
    sides = (
        ComparedSide(name=name, answers=[*map(ComparedAnswer.of_summary, side)])
        for name, side in (("a", first), ("b", second))
    )
    return compare(*sides)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("How long?", "how  long", True),
        ("What’s “new”?", "what's new", True),  # noqa: RUF001
        ("What is C++?", "What is C#?", False),
        ("Is it 1.5?", "Is it 15?", False),
        ("Is it -5?", "Is it 5?", False),
    ],
)
def test_questions_are_the_same_but_for_what_makes_no_other_question(
    one: str, other: str, is_same: bool
) -> None:
    assert (comparable(one) == comparable(other)) is is_same


def test_traffic_without_pairs_is_two_samples_with_their_weights() -> None:
    worse = (judged(number, 0.3, probability=0.1) for number in range(2_000, 2_060))
    found = compared(traffic(400), worse)
    (metric,) = found.metrics
    assert not found.is_paired
    assert metric.passing is not None
    assert metric.passing.first == pytest.approx(0.75, abs=0.07)  # the sample has more bad answers
    assert metric.verdict(passes=True) == "worse"
    assert any("compared as two samples" in notice for notice in found.notices)


def test_the_newest_evaluation_of_an_answer_counts() -> None:
    old, new = judged(1, 0.2, judged_ns=1, probability=1.0), judged(1, 0.9, judged_ns=2, probability=1.0)
    found = compared([new, old], [judged(1, 0.9, probability=1.0)])
    assert found.changes == ()
    assert any("1 evaluations in A are of answers with a newer one" in notice for notice in found.notices)
