"""Reviews correct averages without bias, with intervals that are true; agreement is counted by claim."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ragtrace.model import VerdictLabel
from ragtrace.reviews import (
    Review,
    ReviewAgreement,
    ReviewedPair,
    ReviewPick,
    corrected_mean,
    passes,
    random_prefix,
)
from ragtrace.stats import WeightedMean
from tests.unit.answers.rows import a_row
from tests.unit.reviews.test_review_file import REVIEW

GOOD, WRONG = VerdictLabel.SUPPORTED, VerdictLabel.CONTRADICTED


def simulated(rng: random.Random, *, answers: int, reviewed: int, recall: float) -> tuple[float, bool, float]:
    """Return the error of the corrected mean, whether its interval is true, and the judge's error."""
    human = [rng.random() < 0.7 for _ in range(answers)]
    judge = [truth or rng.random() > recall for truth in human]
    picked = rng.sample(range(answers), reviewed)
    pairs = [ReviewedPair(judge=float(judge[i]), human=float(human[i]), weight=1.0) for i in picked]
    mean, truth = sum(judge) / answers, sum(human) / answers
    exact = WeightedMean(mean=mean, low=mean, high=mean, records=answers, left_out=0, effective=answers)
    found = corrected_mean(exact, pairs)
    assert found
    return found.mean - truth, found.low <= truth <= found.high, mean - truth


@pytest.mark.slow
@pytest.mark.parametrize("recall", [0.2, 0.8])
def test_the_corrected_mean_has_no_bias_and_a_true_interval(recall: float) -> None:
    rng = random.Random(18)
    runs = [simulated(rng, answers=2_000, reviewed=100, recall=recall) for _ in range(300)]
    own_bias = sum(run[2] for run in runs) / len(runs)
    assert own_bias > 0.05  # the judge misses flaws
    assert abs(sum(run[0] for run in runs) / len(runs)) < 0.1 * own_bias
    assert 0.93 <= sum(run[1] for run in runs) / len(runs) <= 0.99


def test_few_reviews_correct_nothing() -> None:
    pair = ReviewedPair(judge=1.0, human=0.0, weight=1.0)
    judged = WeightedMean(mean=0.9, low=0.8, high=0.95, records=99, left_out=0, effective=99)
    assert corrected_mean(judged, [pair] * 29) is None
    corrected = corrected_mean(judged, [pair] * 30)
    assert corrected
    assert corrected.high - corrected.mean >= judged.high - judged.mean


def test_only_a_random_prefix_counts() -> None:
    rows = [(number / 10, a_row(number, 0.0 if number == 2 else 1.0)) for number in range(1, 7)]
    random_review = replace(REVIEW, label=GOOD, picked=ReviewPick.RANDOM)
    reviewed: dict[object, list[Review]] = {
        rows[0][1].key: [random_review],
        rows[1][1].key: [replace(random_review, label=WRONG)],
        rows[2][1].key: [replace(random_review, label=VerdictLabel.UNJUDGED)],
        rows[3][1].key: [replace(random_review, picked=ReviewPick.UNCERTAIN)],
        rows[4][1].key: [random_review],
    }
    pairs = random_prefix(rows, reviewed)  # type: ignore[arg-type]
    assert [(pair.judge, pair.human) for pair in pairs] == [(1.0, 1.0), (0.0, 0.0)]


def test_several_people_are_one_voice_for_each_claim() -> None:
    bad, good = replace(REVIEW, label=WRONG), replace(REVIEW, label=GOOD)
    assert passes([replace(bad, reviewer="a"), replace(good, reviewer="b"), replace(good, reviewer="c")])
    assert passes([replace(bad, reviewer="a"), replace(good, reviewer="b")]) is None
    assert passes([good, replace(bad, claim="Another claim.")]) is False


def test_agreement_is_counted_by_claim() -> None:
    first = replace(REVIEW, verdict=WRONG, label=WRONG)
    found = ReviewAgreement(
        [
            [first, replace(first, reviewer="grace")],
            [replace(first, label=GOOD)],
            [replace(first, verdict=GOOD, label=GOOD)],
            [replace(first, verdict=VerdictLabel.UNJUDGED, label=WRONG)],
        ]
    )
    assert (found.decided, found.agreed, found.reviewers) == (3, 2, 2)
    assert (found.pairs, found.pairs_agreed) == (1, 1)
    assert found.kappa == pytest.approx(0.4)
    assert found.says_little
