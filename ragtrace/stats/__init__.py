"""Estimates with confidence intervals from small samples."""

from ragtrace.stats.differences import MeanDifference, difference_of
from ragtrace.stats.intervals import wilson, wilson_interval
from ragtrace.stats.means import Moments, RunningMean, Weighed, WeightedMean, mean_of, weighted_mean
from ragtrace.stats.misclassification import CorrectedRate, CountedShare, JudgeErrors, corrected_rate
from ragtrace.stats.power import DetectionEffort, detection_effort
from ragtrace.stats.prediction import PredictedAnswer, PredictedMean, predicted_mean
from ragtrace.stats.quantiles import WeightedQuantile, weighted_quantiles
from ragtrace.stats.totals import RatioTotal, ratio_total

__all__ = [
    "Weighed",
    "weighted_mean",
]
