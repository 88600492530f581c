"""What a sample says about all traffic: weighed, with every error in the interval, and nothing unknown said."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_ESTIMATES: Final = "tests/unit/stats/test_estimates.py"
_REPORT: Final = "tests/unit/quality/test_report.py"

MUTANTS: Final = (
    Mutant(
        promise="statistics",
        breaks="a quantile forgets how answers were sampled",
        file="ragtrace/stats/quantiles.py",
        old="self._weights = [1 / (one.probability or 1) for one in known]",
        new="self._weights = [1.0 for one in known]",
        tests=(f"{_ESTIMATES}::test_a_quantile_weighs_answers_by_what_they_stand_for",),
    ),
    Mutant(
        promise="statistics",
        breaks="a correction forgets that the judge's errors were measured on few answers",
        file="ragtrace/stats/misclassification.py",
        old="rate * (1 - rate) / answers + found**2 * missed + (1 - found) ** 2 * alarms",
        new="rate * (1 - rate) / answers",
        tests=(
            f"{_ESTIMATES}::test_a_correction_adds_what_the_judge_misses_and_its_interval_grows",
            f"{_ESTIMATES}::test_the_interval_of_a_correction_is_that_of_lang_and_reiczigel",
        ),
    ),
    Mutant(
        promise="statistics",
        breaks="a judge no better than a coin corrects",
        file="ragtrace/stats/misclassification.py",
        old="    if errors.is_chance:\n",
        new="    if not errors.youden:\n",
        tests=(f"{_ESTIMATES}::test_a_judge_that_may_be_a_coin_corrects_nothing",),
    ),
    Mutant(
        promise="statistics",
        breaks="a biased cheap judge moves the mean",
        file="ragtrace/stats/prediction.py",
        old="self.shift = mean_of_all - mean_of_joined",
        new="self.shift = mean_of_all - mean_of_better",
        tests=(f"{_ESTIMATES}::test_a_biased_cheap_judge_does_not_move_the_mean",),
    ),
    Mutant(
        promise="statistics",
        breaks="answers of unknown probability count as if all were judged",
        file="ragtrace/quality/collecting.py",
        old="return Weighed(float(self.passes), self.probability, self.cluster)",
        new="return Weighed(float(self.passes), self.probability or 1.0, self.cluster)",
        tests=(
            f"{_REPORT}::test_scores_of_unknown_probability_are_left_out_and_counted",
            f"{_REPORT}::test_only_unknown_probabilities_make_no_estimate",
        ),
    ),
    Mutant(
        promise="statistics",
        breaks="a calibration corrects another judge",
        file="ragtrace/quality/figures.py",
        old="return all(is_judge(judge, measured.name) for judge in judges)",
        new="return True",
        tests=(f"{_REPORT}::test_what_a_calibration_cannot_correct_is_said",),
    ),
    Mutant(
        promise="statistics",
        breaks="a failure is a score",
        file="ragtrace/quality/collecting.py",
        old="    if metric.score is None or metric.label not in (Label.PASS, Label.FAIL):\n        return None\n"
        "    return JudgedRow(metric.score,",
        new="    return JudgedRow(metric.score or 0.0,",
        tests=(f"{_REPORT}::test_all_failed_is_no_score",),
    ),
)
