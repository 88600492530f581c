"""The report as JSON: ``docs/report.schema.json`` describes it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ragtrace.quality.report import DETECTED_DROP, EffortFigures, GroupFigures, MetricFigures, QualityReport

VERSION: Final = 1


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
        "comparisons": [
            _told(one, *("group", "metric", "older", "newer", "older_judged", "newer_judged"))
            | {"mean": _difference(one.mean), "pass_rate": _difference(one.passing)}
            for one in report.comparisons
        ],
        "effort": report.effort and _effort(report.effort),
        "calibration": report.measured
        and {
            "judge": report.measured.name,
            "sensitivity": _told(report.measured.errors.sensitivity, "of", right="hits"),
            "specificity": _told(report.measured.errors.specificity, "of", right="hits"),
            "is_chance": report.measured.errors.is_chance,
        },
        "reviewed": report.reviewed
        and {
            "answers": report.reviewed.reviewed,
            "mean": _interval(report.reviewed.mean),
            "pass_rate": _interval(report.reviewed.passing),
        },
        "disputes": _told(report.disputes, "disputed", "of"),
        "ledger": report.ledger and _told(report.ledger, "judged", "eligible", "seen"),
        "notices": list(report.notices),
    }


def _told(found: object, *names: str, **renamed: str) -> dict[str, Any]:
    """Return attributes under their own names, or under others."""
    told: dict[str, str] = {**{name: name for name in names}, **renamed}
    return {name: getattr(found, attribute) for name, attribute in told.items()}


def _interval(found: object, *names: str, value: str = "mean", **renamed: str) -> dict[str, Any] | None:
    """Return a value with the ends of its interval, and more attributes; ``None`` without any."""
    return None if found is None else _told(found, "low", "high", *names, value=value, **renamed)


def _difference(found: object) -> dict[str, Any] | None:
    return None if found is None else _told(found, "change", "low", "high", "is_chance")


def _time(time_ns: int | None) -> str | None:
    if time_ns is None:
        return None
    return datetime.fromtimestamp(time_ns // 10**9, UTC).isoformat().replace("+00:00", "Z")


def _group(group: GroupFigures) -> dict[str, Any]:
    return {
        **_told(group, "name", "answers", "claims", "unjudged_claims", priced_answers="priced"),
        "cost_usd": group.cost_usd if group.priced else None,
        "metrics": [_metric(metric) for metric in group.metrics],
    }


def _metric(metric: MetricFigures) -> dict[str, Any]:
    of_answers = {"answers": "records", "effective_answers": "effective"}
    of_quantile = {"value": "value", "answers": "records"}
    joined, predicted = ("weight", "factor", "joined", "cheap"), metric.predicted
    return {
        **_told(metric, "metric", "lower_is_better", "results", "judged", "failed", "skipped", "coverage"),
        "without_probability": metric.left_out,
        "mean": _interval(metric.mean, **of_answers),
        "pass_rate": _interval(metric.passing, **of_answers),
        "median": _interval(metric.median, "share", **of_quantile),
        "worst_tenth": _interval(metric.worst_tenth, "share", **of_quantile),
        "corrected_pass_rate": _interval(metric.corrected, "is_clipped", value="rate"),
        "predicted": predicted
        and {
            **_told(predicted, "joined", "cheap", "is_screen"),
            "mean": _interval(predicted.mean, *joined),
            "pass_rate": _interval(predicted.passing, *joined),
        },
    }


def _effort(found: EffortFigures) -> dict[str, Any]:
    effort = found.effort
    return {
        "metric": found.metric,
        "drop": DETECTED_DROP,
        **_told(found, "judged", priced_answers="priced", judged_in_days="days"),
        "answers": effort.answers if effort else None,
        "dollars": effort.dollars if effort else None,
        "days": effort.days if effort else None,
    }
