"""The report as JSON: ``docs/report.schema.json`` describes it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ragtrace.quality.report import (
    Comparison,
    EffortFigures,
    GroupFigures,
    LedgerCoverage,
    MetricFigures,
    PredictedFigures,
    QualityReport,
    ReviewedFigures,
)
from ragtrace.reviews.averages import CorrectedMean
from ragtrace.stats import MeanDifference, PredictedMean, WeightedMean, WeightedQuantile

VERSION: Final = 1

_Json = dict[str, Any]


def report_as_json(report: QualityReport) -> Mapping[str, Any]:
    """Return the report as plain values. Every share has its two counts beside it."""
    return {
        "version": VERSION,
        "place": report.place,
        "since": _time(report.since_ns),
        "until": _time(report.until_ns),
        "baseline_since": _time(report.baseline_ns),
        "by": report.by,
        "all": _group(report.whole),
        "groups": [_group(group) for group in report.groups],
        "groups_left_out": report.groups_left_out,
        "comparisons": [_comparison(one) for one in report.comparisons],
        "effort": _effort(report.effort),
        "calibration": _calibration(report),
        "reviewed": _reviewed(report.reviewed),
        "disputes": {"disputed": report.disputes.disputed, "of": report.disputes.of},
        "ledger": _ledger(report.ledger),
        "notices": list(report.notices),
    }


def _reviewed(found: ReviewedFigures | None) -> _Json | None:
    if found is None:
        return None
    return {
        "answers": found.reviewed,
        "mean": _corrected_mean(found.mean),
        "pass_rate": _corrected_mean(found.passing),
    }


def _corrected_mean(mean: CorrectedMean | None) -> _Json | None:
    return None if mean is None else {"value": mean.mean, "low": mean.low, "high": mean.high}


def _ledger(found: LedgerCoverage | None) -> _Json | None:
    if found is None:
        return None
    return {"judged": found.judged, "eligible": found.eligible, "seen": found.seen}


def _time(time_ns: int | None) -> str | None:
    if time_ns is None:
        return None
    return datetime.fromtimestamp(time_ns // 10**9, UTC).isoformat().replace("+00:00", "Z")


def _group(group: GroupFigures) -> _Json:
    return {
        "name": group.name,
        "answers": group.answers,
        "claims": group.claims,
        "unjudged_claims": group.unjudged_claims,
        "cost_usd": group.cost_usd if group.priced else None,
        "priced_answers": group.priced,
        "metrics": [_metric(metric) for metric in group.metrics],
    }


def _metric(metric: MetricFigures) -> _Json:
    return {
        "metric": metric.metric,
        "lower_is_better": metric.lower_is_better,
        "results": metric.results,
        "judged": metric.judged,
        "failed": metric.failed,
        "skipped": metric.skipped,
        "without_probability": metric.left_out,
        "coverage": metric.coverage,
        "mean": _mean(metric.mean),
        "pass_rate": _mean(metric.passing),
        "median": _quantile(metric.median),
        "worst_tenth": _quantile(metric.worst_tenth),
        "corrected_pass_rate": None
        if metric.corrected is None
        else {
            "value": metric.corrected.rate,
            "low": metric.corrected.low,
            "high": metric.corrected.high,
            "is_clipped": metric.corrected.is_clipped,
        },
        "predicted": _predicted(metric.predicted),
    }


def _mean(mean: WeightedMean | None) -> _Json | None:
    if mean is None:
        return None
    return {
        "value": mean.mean,
        "low": mean.low,
        "high": mean.high,
        "answers": mean.records,
        "effective_answers": mean.effective,
    }


def _quantile(quantile: WeightedQuantile | None) -> _Json | None:
    if quantile is None:
        return None
    return {
        "share": quantile.share,
        "value": quantile.value,
        "low": quantile.low,
        "high": quantile.high,
        "answers": quantile.records,
    }


def _predicted(predicted: PredictedFigures | None) -> _Json | None:
    if predicted is None:
        return None
    return {
        "joined": predicted.joined,
        "cheap": predicted.cheap,
        "is_screen": predicted.is_screen,
        "mean": _predicted_mean(predicted.mean),
        "pass_rate": _predicted_mean(predicted.passing),
    }


def _predicted_mean(mean: PredictedMean | None) -> _Json | None:
    if mean is None:
        return None
    return {
        "value": mean.mean,
        "low": mean.low,
        "high": mean.high,
        "weight": mean.weight,
        "factor": mean.factor,
        "joined": mean.joined,
        "cheap": mean.cheap,
    }


def _comparison(one: Comparison) -> _Json:
    return {
        "group": one.group,
        "metric": one.metric,
        "older": one.older,
        "newer": one.newer,
        "older_judged": one.older_judged,
        "newer_judged": one.newer_judged,
        "mean": _difference(one.mean),
        "pass_rate": _difference(one.passing),
    }


def _difference(difference: MeanDifference | None) -> _Json | None:
    if difference is None:
        return None
    return {
        "change": difference.change,
        "low": difference.low,
        "high": difference.high,
        "is_chance": difference.is_chance,
    }


def _effort(found: EffortFigures | None) -> _Json | None:
    if found is None:
        return None
    effort = found.effort
    return {
        "metric": found.metric,
        "drop": found.drop,
        "answers": effort.answers if effort else None,
        "dollars": effort.dollars if effort else None,
        "priced_answers": found.priced,
        "days": effort.days if effort else None,
        "judged": found.judged,
        "judged_in_days": found.days,
    }


def _calibration(report: QualityReport) -> _Json | None:
    if report.measured is None:
        return None
    errors = report.measured.errors
    return {
        "judge": report.measured.name,
        "sensitivity": {"right": errors.sensitivity.hits, "of": errors.sensitivity.of},
        "specificity": {"right": errors.specificity.hits, "of": errors.specificity.of},
        "is_chance": errors.is_chance,
    }
