"""The detector of a changed share: its laws, for any answers."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.sequential import ShareDetector, bets_against

SHARES = st.floats(0.001, 0.999)
ANSWERS = st.lists(st.tuples(st.booleans(), st.floats(0.001, 1)), max_size=30)


@given(SHARES)
def test_no_bet_can_lose_everything(most: float) -> None:
    for bet in bets_against(most):
        assert 0 < 1 - bet * most <= 1


@pytest.mark.parametrize("most", [0.01, 0.05, 0.3, 0.7])
def test_each_bet_is_fair_where_the_claim_just_holds(most: float) -> None:
    """The mean of the evidence after n answers is n, exactly: over all ways in which they may come out."""
    answers = 5
    mean = 0.0
    for failed in product((False, True), repeat=answers):
        detector = ShareDetector(most=most)
        for one in failed:
            detector = detector.after(one, weight=0.5)
        mean += prod(most if one else 1 - most for one in failed) * detector.total
    assert mean == pytest.approx(answers)


@given(SHARES, ANSWERS)
def test_evidence_stays_positive_and_the_counts_are_those_of_the_answers(
    most: float, answers: list[tuple[bool, float]]
) -> None:
    detector = ShareDetector(most=most)
    for number, (failed, weight) in enumerate(answers):
        detector = detector.after(failed, weight=weight, time=number)
    since = detector.since
    assert detector.total >= 0
    assert 0 <= since.happened <= since.values <= len(answers)
    tail = answers[len(answers) - since.values :]
    assert since.happened == sum(failed for failed, _ in tail)
    if answers:
        assert since.first == len(answers) - since.values
        assert since.share == pytest.approx(sum(w for f, w in tail if f) / sum(w for _, w in tail))


def test_without_a_value_there_is_no_share() -> None:
    assert ShareDetector(most=0.1).since.share is None
    assert ShareDetector(most=0.1).total == 0


def test_a_weight_that_no_sample_has_is_refused() -> None:
    with pytest.raises(ValueError, match="never sampled"):
        ShareDetector(most=0.1).after(True, weight=0)


def test_the_counts_begin_where_the_trouble_did() -> None:
    detector = ShareDetector(most=0.1)
    for number in range(400):
        detector = detector.after(number % 20 == 0, time=number)
    for number in range(400, 460):
        detector = detector.after(number % 2 == 0, time=number)
    assert 380 < detector.since.first < 410
    assert detector.since.share == pytest.approx(0.5, abs=0.1)
