"""What a sample says about all traffic: weighed, with every error in the interval, and nothing unknown said."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_ESTIMATES: Final = "tests/unit/stats/test_stats.py"
_REPORT: Final = "tests/unit/quality/test_quality.py"

MUTANTS: Final = (
    Mutant(
        promise="statistics",
        breaks="a quantile forgets how answers were sampled",
        file="ragtrace/stats/means.py",
        old="self._weights = [1 / (one.probability or 1) for one in known]",
        new="self._weights = [1.0 for one in known]",
        tests=(f"{_ESTIMATES}::test_a_quantile_weighs_answers_by_what_they_stand_for",),
    ),
    Mutant(
        promise="statistics",
        breaks="a biased cheap judge moves the mean",
        file="ragtrace/stats/errors.py",
        old="self.shift = mean_of_all - mean_of_joined",
        new="self.shift = mean_of_all - mean_of_better",
        tests=(f"{_ESTIMATES}::test_a_biased_cheap_judge_does_not_move_the_mean",),
    ),
    Mutant(
        promise="statistics",
        breaks="a failure is a score",
        file="ragtrace/quality/report.py",
        old="    if metric.score is None or metric.label not in (Label.PASS, Label.FAIL):\n        return None\n"
        "    return JudgedRow(metric.score,",
        new="    return JudgedRow(metric.score or 0.0,",
        tests=(f"{_REPORT}::test_all_failed_is_no_score",),
    ),
)
