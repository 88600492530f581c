"""Estimates with confidence intervals from small samples."""

from ragtrace.stats.differences import (
    Difference,
    Pair,
    agreement_beyond_chance,
    difference_of,
    paired_difference,
    sign_test,
)
from ragtrace.stats.errors import (
    CorrectedRate,
    CountedShare,
    JudgeErrors,
    PredictedAnswer,
    PredictedMean,
    corrected_rate,
    predicted_mean,
)
from ragtrace.stats.means import (
    Moments,
    RunningMean,
    Weighed,
    WeightedMean,
    WeightedQuantile,
    mean_of,
    weighted_mean,
    weighted_quantiles,
    wilson,
    wilson_interval,
)
from ragtrace.stats.planning import DetectionEffort, RatioTotal, detection_effort, ratio_total

__all__ = [
    "Weighed",
    "weighted_mean",
]
