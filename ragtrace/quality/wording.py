"""How figures are written, on the terminal and on the page."""

from __future__ import annotations

from collections.abc import Iterator

from ragtrace.quality.collecting import DisputeCount
from ragtrace.quality.report import (
    Comparison,
    EffortFigures,
    GroupFigures,
    LedgerCoverage,
    MeasuredJudge,
    MetricFigures,
    PredictedFigures,
    QualityReport,
    ReviewedFigures,
)
from ragtrace.reviews import LEAST
from ragtrace.stats import CountedShare, Difference, PredictedMean, WeightedMean

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


def change(difference: Difference | None, *, is_share: bool) -> str:
    """Write a difference: ``-0.07 [-0.12, -0.02]``, or in percentage points."""
    if difference is None:
        return ABSENT
    scale, digits, unit = (100, 0, " points") if is_share else (1, 2, "")
    told = (signed(scale * value, digits) for value in (difference.change, difference.low, difference.high))
    return "{}{unit} [{}, {}]".format(*told, unit=unit)


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
    """Yield the corrected and the joined estimates of a metric, a line each."""
    if metric.corrected is not None:
        found = metric.corrected
        limit = ", at its limit: the judge errs otherwise here" if found.is_clipped else ""
        yield f"pass rate corrected for the judge's errors: {_rate(found.rate, found.low, found.high)}{limit}"
    if metric.predicted is not None:
        yield from _predicted(metric.predicted)


def _predicted(found: PredictedFigures) -> Iterator[str]:
    whom = "screened" if found.is_screen else "that the cheap judge judged"
    yield f"judged by both: {part(found.joined, found.cheap)} {whom}"
    if found.mean is None or found.passing is None:
        yield "below 30 answers that both judged there is no joined estimate"
        return
    mean, passing = found.mean, found.passing
    yield f"joined mean {mean.mean:.2f} [{mean.low:.2f}, {mean.high:.2f}]{saved(mean)}"
    yield f"joined pass rate {_rate(passing.mean, passing.low, passing.high)}{saved(passing)}"


def saved(mean: PredictedMean) -> str:
    """Say what the cheap judge saves."""
    return f", as good as {mean.factor:.2f} times as many of the {mean.joined:,} better verdicts"


def measured(judge: MeasuredJudge) -> str:
    """Say what a calibration measured."""
    return (
        f"{judge.name} passes {_right(judge.errors.sensitivity)} answers that people support, and fails"
        f" {_right(judge.errors.specificity)} others"
    )


def compared(one: Comparison) -> str:
    """Say what is compared: ``faithfulness, v1 (200 judged) to v2 (180 judged)``."""
    group = f"{one.group}: " if one.group else ""
    return (
        f"{group}{one.metric}, {one.older} ({one.older_judged:,} judged) to {one.newer}"
        f" ({one.newer_judged:,} judged)"
    )


def effort(found: EffortFigures) -> str:
    """Say what it takes to detect a drop."""
    what = f"a drop of {100 * found.drop:g} points in the pass rate of {found.metric}"
    if found.effort is None:
        return f"The pass rate of {found.metric} is too low to fall by {100 * found.drop:g} points."
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
    which = "the newest" if report.by and report.by.is_time else "those with the most answers"
    return f"{shown:,} of {shown + report.groups_left_out:,} groups are shown: {which}."


def _rate(value: float, low: float, high: float) -> str:
    return f"{100 * value:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"


def _right(share: CountedShare) -> str:
    return f"{share.hits:,} of {share.of:,}"
