"""The report in words, as JSON (``docs/report.schema.json`` describes it) and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ragtrace.quality.report import (
    DETECTED_DROP,
    TIMES,
    DisputeCount,
    EffortFigures,
    GroupFigures,
    LedgerCoverage,
    MeasuredJudge,
    MetricFigures,
    QualityReport,
    ReviewedFigures,
)
from ragtrace.reviews import LEAST
from ragtrace.stats import CountedShare, WeightedMean

ABSENT = "–"  # noqa: RUF001 -- an en dash


def score(mean: WeightedMean | None) -> str:
    """Write a mean with its interval: ``0.87 [0.85, 0.90]``."""
    return ABSENT if mean is None else f"{mean.mean:.2f} [{mean.low:.2f}, {mean.high:.2f}]"


def rate(mean: WeightedMean | None) -> str:
    """Write a share with its interval: ``78 % [74, 82]``."""
    return ABSENT if mean is None else _rate(mean.mean, mean.low, mean.high)


def part(number: int, of: int) -> str:
    """Write a share with its denominator: ``2 of 420 (0.5 %)``."""
    return f"{number:,} of {of:,}{f' ({percent(number / of)})' if of else ''}"


def percent(share: float) -> str:
    """Write a share: ``0.5 %``, ``17 %``."""
    return f"{100 * share:.{1 if 0 < share < 0.1 else 0}f} %"


def signed(value: float, digits: int) -> str:
    """Write a number with its sign, also after rounding: ``+0.17``, ``0.00``."""
    rounded = round(value, digits)
    return f"{rounded:+.{digits}f}" if rounded else f"{0:.{digits}f}"


def shares(metric: MetricFigures) -> str:
    """Say what goes with every estimate: what failed, what was skipped, and how much was judged."""
    parts = [
        f"failed {part(metric.failed, metric.results)}",
        f"skipped {part(metric.skipped, metric.results)}",
    ]
    if metric.mean is not None and metric.coverage is not None:
        parts.append(f"judged {metric.mean.records:,} of about {metric.population:,.0f} answers")
    return ", ".join(parts)


def unjudged_claims(group: GroupFigures) -> str:
    """Say how many claims no judge could decide."""
    return f"unjudged claims {part(group.unjudged_claims, group.claims)}"


def below(metric: MetricFigures) -> Iterator[str]:
    """Yield the corrected estimate of a metric."""
    if metric.corrected is not None:
        found = metric.corrected
        limit = ", at its limit: the judge errs otherwise here" if found.is_clipped else ""
        yield f"pass rate corrected for the judge's errors: {_rate(found.rate, found.low, found.high)}{limit}"


def measured(judge: MeasuredJudge) -> str:
    """Say what a calibration measured."""
    return (
        f"{judge.name} passes {_right(judge.errors.sensitivity)} answers that people support, and fails"
        f" {_right(judge.errors.specificity)} others"
    )


def effort(found: EffortFigures) -> str:
    """Say what it takes to detect a drop."""
    what = f"a drop of {100 * DETECTED_DROP:g} points in the pass rate of {found.metric}"
    if found.effort is None:
        return f"The pass rate of {found.metric} is too low to fall by {100 * DETECTED_DROP:g} points."
    said = f"To detect {what}: {found.effort.answers:,} judged answers in each of two periods"
    if found.effort.dollars is not None:
        said += f", ${found.effort.dollars:,.2f} each at the mean of {found.priced:,} answers of known cost"
    if found.effort.days is not None and found.days is not None:
        said += (
            f", {found.effort.days:,.1f} days each at {found.judged / found.days:,.0f} a day"
            f" ({found.judged:,} judged in {found.days:,.1f} days)"
        )
    return f"{said} (two-sided test at 5 %, power 80 %)."


def reviewed(found: ReviewedFigures) -> str:
    """Say what people correct."""
    many = f"{found.reviewed:,} answer{'' if found.reviewed == 1 else 's'} reviewed in random order"
    if found.passing is None or found.mean is None:
        return f"{many}: below {LEAST} they correct nothing"
    mean, passing = found.mean, found.passing
    return (
        f"As people correct faithfulness ({many}): mean {mean.mean:.2f} [{mean.low:.2f}, {mean.high:.2f}],"
        f" pass rate {_rate(passing.mean, passing.low, passing.high)}"
    )


def disputes(found: DisputeCount) -> str:
    """Say how often the evaluations of an answer say the opposite."""
    decided = part(found.disputed, found.of)
    return f"Disputed: {decided} answers that several evaluations decided; one passes what another fails"


def ledger(found: LedgerCoverage) -> str:
    """Say how much was judged since the store was made."""
    return (
        f"Since the store was made, {part(found.judged, found.eligible)} answers that could be judged were"
        f" judged, of {found.seen:,} seen"
    )


def sentence(notice: str) -> str:
    """Write a notice as a sentence."""
    return f"{notice[:1].upper()}{notice[1:]}."


def left_out(report: QualityReport) -> str:
    """Say how many groups are not shown; empty if all are."""
    shown = len(report.groups)
    if not report.groups_left_out:
        return ""
    which = "the newest" if report.by in TIMES else "those with the most answers"
    return f"{shown:,} of {shown + report.groups_left_out:,} groups are shown: {which}."


def _rate(value: float, low: float, high: float) -> str:
    return f"{100 * value:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"


def _right(share: CountedShare) -> str:
    return f"{share.right:,} of {share.of:,}"


VERSION: Final = 1


def report_as_json(report: QualityReport) -> Mapping[str, Any]:
    """Return the report as plain values. Every share has its two counts beside it."""
    return {
        "version": VERSION,
        "place": report.place,
        "since": _time(report.since_ns),
        "until": _time(report.until_ns),
        "by": report.by,
        "all": _group(report.whole),
        "groups": [_group(group) for group in report.groups],
        "groups_left_out": report.groups_left_out,
        "effort": report.effort and _effort(report.effort),
        "calibration": report.measured
        and {
            "judge": report.measured.name,
            "sensitivity": _told(report.measured.errors.sensitivity, "right", "of"),
            "specificity": _told(report.measured.errors.specificity, "right", "of"),
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
    return {
        **_told(metric, "metric", "lower_is_better", "results", "judged", "failed", "skipped", "coverage"),
        "without_probability": metric.left_out,
        "mean": _interval(metric.mean, **of_answers),
        "pass_rate": _interval(metric.passing, **of_answers),
        "median": _interval(metric.median, "share", **of_quantile),
        "worst_tenth": _interval(metric.worst_tenth, "share", **of_quantile),
        "corrected_pass_rate": _interval(metric.corrected, "is_clipped", value="rate"),
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


def render_page(report: QualityReport) -> str:
    """Write the page. It has names of groups, and no text of answers."""
    from ragtrace.quality import wording
    from ragtrace.reports.report import open_template

    template = open_template("quality/page.html", moment=_moment, percent=percent)
    page = template.render(report=report, wording=wording)
    return f"{page}\n"


def _moment(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns / 1e9, UTC):%Y-%m-%d %H:%M} UTC"
