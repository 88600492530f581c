"""Estimates with confidence intervals from small samples."""

from ragtrace.stats.errors import (
    CorrectedRate,
    CountedShare,
    JudgeErrors,
    corrected_rate,
)
from ragtrace.stats.means import (
    DetectionEffort,
    Difference,
    Moments,
    Pair,
    RatioTotal,
    RunningMean,
    Weighed,
    WeightedMean,
    WeightedQuantile,
    agreement_beyond_chance,
    detection_effort,
    difference_of,
    mean_of,
    paired_difference,
    ratio_total,
    sign_test,
    weighted_mean,
    weighted_quantiles,
    wilson,
    wilson_interval,
)

__all__ = [
    "Weighed",
    "weighted_mean",
]
