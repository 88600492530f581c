"""The estimates of one group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ragtrace.answers.summary import first_faithfulness
from ragtrace.quality.collecting import GroupSample, MetricSample, is_judge
from ragtrace.stats import (
    CorrectedRate,
    DetectionEffort,
    JudgeErrors,
    PredictedMean,
    WeightedMean,
    WeightedQuantile,
    corrected_rate,
    detection_effort,
    predicted_mean,
    weighted_mean,
    weighted_quantiles,
)

LEAST_FOR_QUANTILES: Final = 30
"""Fewer scores have no quantile: its interval would be too short."""
CALIBRATED: Final = "faithfulness"
"""The metric whose errors a calibration measures."""
_DAY_NS: Final = 86_400 * 10**9
_HOUR_NS: Final = 3_600 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredJudge:
    """The errors of a judge, as a calibration has them."""

    name: str
    """``provider:model``."""
    errors: JudgeErrors


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedFigures:
    """What a cheap judge on more answers adds to the named one on some."""

    mean: PredictedMean | None
    """``None`` below 30 answers that both judged."""
    passing: PredictedMean | None
    joined: int
    """Answers that both judged."""
    cheap: int
    """Answers that the cheap one judged."""
    is_screen: bool = False
    """Whether the cheap one is the screen of `sample.suspicion`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFigures:
    """One metric in one group."""

    metric: str
    lower_is_better: bool
    results: int
    """All results of the metric: judged, failed and skipped."""
    judged: int
    """Those with a score."""
    failed: int
    skipped: int
    mean: WeightedMean | None
    """``None`` without a score whose sampling probability is known."""
    passing: WeightedMean | None
    """The share that passes."""
    median: WeightedQuantile | None
    """``None`` with fewer than 30 scores."""
    worst_tenth: WeightedQuantile | None
    """The 10 % quantile; the 90 % one if lower is better."""
    population: float
    """How many answers the judged ones stand for: the sum of one over the sampling probability."""
    corrected: CorrectedRate | None
    """The share that passes, corrected for the judge's measured errors."""
    predicted: PredictedFigures | None
    """``None`` if no cheap judge is named, and nothing was screened."""

    @property
    def coverage(self) -> float | None:
        """The share of answers that were judged, of those that the judged ones stand for."""
        return self.mean.records / self.population if self.mean else None

    @property
    def left_out(self) -> int:
        """Scores of unknown sampling probability."""
        return self.judged - (self.mean.records if self.mean else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigures:
    """One group, or all answers."""

    name: str
    """Empty for all answers."""
    answers: int
    """Evaluations."""
    claims: int
    unjudged_claims: int
    cost_usd: float
    priced: int
    """Evaluations whose cost is known."""
    metrics: tuple[MetricFigures, ...]
    """Faithfulness first."""

    def metric(self, name: str) -> MetricFigures | None:
        """Return the figures of a metric, if there are any."""
        return next((metric for metric in self.metrics if metric.metric == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffortFigures:
    """What it takes to detect a drop in the pass rate of a metric."""

    metric: str
    drop: float
    effort: DetectionEffort | None
    """``None`` if the pass rate is lower than the drop."""
    priced: int
    """Evaluations that the dollars are from."""
    judged: int
    """Answers that the days are from."""
    days: float | None
    """The time between the first and the last of them; ``None`` if they are less than an hour apart."""


def group_figures(name: str, group: GroupSample, measured: MeasuredJudge | None) -> GroupFigures:
    """Estimate all metrics of a group."""
    names = sorted(group.metrics, key=first_faithfulness)
    return GroupFigures(
        name=name,
        answers=group.answers,
        claims=group.claims,
        unjudged_claims=group.unjudged_claims,
        cost_usd=group.cost_usd,
        priced=group.priced,
        metrics=tuple(_metric(metric, group.metrics[metric], measured) for metric in names),
    )


def effort_figures(found: MetricFigures, group: GroupSample, drop: float) -> EffortFigures | None:
    """Say what it takes to detect a drop in the pass rate; ``None`` if there is no pass rate."""
    if found.passing is None:
        return None
    length_ns = group.last_ns - group.first_ns
    days = length_ns / _DAY_NS if length_ns >= _HOUR_NS else None
    effort = detection_effort(
        found.passing.mean,
        drop,
        design_effect=found.passing.records / (found.passing.size or found.passing.effective),
        dollars_an_answer=group.cost_usd / group.priced if group.priced else None,
        answers_a_day=found.judged / days if days else None,
    )
    return EffortFigures(
        metric=found.metric, drop=drop, effort=effort, priced=group.priced, judged=found.judged, days=days
    )


def is_corrected(metric: str, judges: set[str], measured: MeasuredJudge | None) -> bool:
    """Whether a calibration holds for these results: one metric, all by the judge that was measured."""
    if measured is None or metric != CALIBRATED:
        return False
    return all(is_judge(judge, measured.name) for judge in judges)


def _metric(name: str, sample: MetricSample, measured: MeasuredJudge | None) -> MetricFigures:
    passing = weighted_mean(row.as_pass for row in sample.rows)
    median = worst = None
    if passing and passing.records >= LEAST_FOR_QUANTILES:
        shares = (0.5, 0.9 if sample.lower_is_better else 0.1)
        median, worst = weighted_quantiles((row.as_score for row in sample.rows), shares)
    corrected = None
    if passing and measured and is_corrected(name, sample.judges, measured):
        corrected = corrected_rate(passing, measured.errors)
    return MetricFigures(
        metric=name,
        lower_is_better=sample.lower_is_better,
        results=sample.results,
        judged=len(sample.rows),
        failed=sample.failed,
        skipped=sample.skipped,
        mean=weighted_mean(row.as_score for row in sample.rows),
        passing=passing,
        median=median,
        worst_tenth=worst,
        population=sum(1 / row.probability for row in sample.rows if row.probability),
        corrected=corrected,
        predicted=_predicted(sample),
    )


def _predicted(sample: MetricSample) -> PredictedFigures | None:
    if not sample.cheap:
        return None
    return PredictedFigures(
        mean=predicted_mean(sample.joined(passes=False)),
        passing=predicted_mean(sample.joined(passes=True)),
        joined=len(sample.cheap.keys() & sample.better.keys()),
        cheap=len(sample.cheap),
        is_screen=sample.is_screened,
    )
