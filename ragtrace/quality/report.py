"""The report: estimates of groups, what differs between them, what the numbers do not have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ragtrace.answers.summary import first_faithfulness
from ragtrace.quality.collecting import (
    AnswerCollector,
    DisputeCount,
    GroupSample,
    MetricSample,
    ReportDimension,
    is_judge,
)
from ragtrace.reviews import METRIC as REVIEWED
from ragtrace.reviews import CorrectedMean, ReviewedPair, corrected_mean
from ragtrace.stats import (
    CorrectedRate,
    DetectionEffort,
    Difference,
    JudgeErrors,
    WeightedQuantile,
    corrected_rate,
    detection_effort,
    difference_of,
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


class PredictedFigures:
    """What a cheap judge on more answers adds to the named one on some."""

    def __init__(self, sample: MetricSample) -> None:
        self.mean = predicted_mean(sample.joined(passes=False))
        """``None`` below 30 answers that both judged."""
        self.passing = predicted_mean(sample.joined(passes=True))
        self.joined = len(sample.cheap.keys() & sample.better.keys())
        """Answers that both judged."""
        self.cheap = len(sample.cheap)
        """Answers that the cheap one judged."""
        self.is_screen = sample.is_screened
        """Whether the cheap one is the screen of `sample.suspicion`."""


class MetricFigures:
    """The estimates of one metric in one group."""

    def __init__(self, metric: str, sample: MetricSample, measured: MeasuredJudge | None) -> None:
        self.metric = metric
        self.lower_is_better = sample.lower_is_better
        self.results = sample.results
        """All results of the metric: judged, failed and skipped."""
        self.judged, self.failed, self.skipped = len(sample.rows), sample.failed, sample.skipped
        """``judged`` are those with a score."""
        self.mean = weighted_mean(row.as_score for row in sample.rows)
        """``None`` without a score whose sampling probability is known."""
        self.passing = weighted_mean(row.as_pass for row in sample.rows)
        """The share that passes."""
        self.median: WeightedQuantile | None = None
        """``None`` with fewer than 30 scores."""
        self.worst_tenth: WeightedQuantile | None = None
        """The 10 % quantile; the 90 % one if lower is better."""
        if self.passing and self.passing.records >= LEAST_FOR_QUANTILES:
            shares = (0.5, 0.9 if sample.lower_is_better else 0.1)
            scores = (row.as_score for row in sample.rows)
            self.median, self.worst_tenth = weighted_quantiles(scores, shares)
        self.population = sum(1 / row.probability for row in sample.rows if row.probability)
        """How many answers the judged ones stand for: the sum of one over the sampling probability."""
        self.corrected: CorrectedRate | None = None
        """The share that passes, corrected for the judge's measured errors."""
        if self.passing and measured and is_corrected(metric, sample.judges, measured):
            self.corrected = corrected_rate(self.passing, measured.errors)
        self.predicted = PredictedFigures(sample) if sample.cheap else None
        """``None`` if no cheap judge is named, and nothing was screened."""

    @property
    def coverage(self) -> float | None:
        """The share of answers that were judged, of those that the judged ones stand for."""
        return self.mean.records / self.population if self.mean else None

    @property
    def left_out(self) -> int:
        """Scores of unknown sampling probability."""
        return self.judged - (self.mean.records if self.mean else 0)


class GroupFigures:
    """The estimates of one group, or of all answers, whose name is empty."""

    def __init__(self, name: str, group: GroupSample, measured: MeasuredJudge | None) -> None:
        self.name = name
        self.answers = group.answers
        """Evaluations."""
        self.claims, self.unjudged_claims = group.claims, group.unjudged_claims
        self.cost_usd, self.priced = group.cost_usd, group.priced
        """The cost is that of so many evaluations: those whose cost is known."""
        names = sorted(group.metrics, key=first_faithfulness)
        self.metrics = tuple(MetricFigures(each, group.metrics[each], measured) for each in names)
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


MOST_GROUPS: Final = 200
"""So many are shown: the hours of a week, or the groups with the most answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """What a report is to say."""

    by: ReportDimension | None = None
    metrics: tuple[str, ...] = ()
    """The wanted ones; empty for all."""
    judge: str | None = None
    cheap: str | None = None
    measured: MeasuredJudge | None = None
    drop: float | None = None
    most_groups: int = MOST_GROUPS

    def collector(self, *, joins_screen: bool = False) -> AnswerCollector:
        """Return what collects the answers of such a report, with what a screen said of all, if it did."""
        return AnswerCollector(
            by=self.by,
            metrics=self.metrics,
            judge=self.judge,
            cheap=self.cheap,
            joins_screen=joins_screen and self.cheap is None,
        )


class ReviewedPairs(NamedTuple):
    """The judge and people on the answers that were reviewed in random order."""

    passing: Sequence[ReviewedPair]
    scores: Sequence[ReviewedPair]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One metric in two periods."""

    group: str
    """Empty for all answers."""
    metric: str
    older: str
    newer: str
    older_judged: int
    newer_judged: int
    mean: Difference | None
    """Newer minus older; ``None`` if one of them has no score."""
    passing: Difference | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerCoverage:
    """All answers that a collector ever saw, by its ledger."""

    judged: int
    eligible: int
    """Seen ones, without those that had nothing to judge (ineligible) or that rules drop (filtered)."""
    seen: int

    @classmethod
    def of(cls, states: Mapping[str, int]) -> LedgerCoverage:
        """Make it of the answers by state."""
        seen = sum(number for state, number in states.items() if state != "superseded")
        never = states.get("ineligible", 0) + states.get("filtered", 0)
        return cls(judged=states.get("judged", 0), eligible=seen - never, seen=seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedFigures:
    """Faithfulness as people correct it, by the answers that they reviewed in random order."""

    passing: CorrectedMean | None
    """``None`` below 30 reviewed answers."""
    mean: CorrectedMean | None
    reviewed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityReport:
    """What the judged answers of a time range say."""

    place: str
    """Where they were read, without secrets."""
    since_ns: int | None
    """``None`` if all that the place has was read."""
    until_ns: int
    baseline_ns: int | None
    """When the baseline began; it ends where the range begins."""
    by: ReportDimension | None
    whole: GroupFigures
    groups: tuple[GroupFigures, ...]
    """Periods in order of time, other groups by their number of answers."""
    groups_left_out: int
    comparisons: tuple[Comparison, ...]
    drop: float | None
    effort: EffortFigures | None
    """What it takes to detect the drop; ``None`` without a pass rate."""
    measured: MeasuredJudge | None
    reviewed: ReviewedFigures | None
    """``None`` if no reviews were named."""
    disputes: DisputeCount
    ledger: LedgerCoverage | None
    """``None`` unless a collector's store was read."""
    notices: tuple[str, ...]
    """Sentences about what the numbers do not have."""


def quality_report(
    request: ReportRequest,
    found: AnswerCollector,
    *,
    place: str,
    since_ns: int | None,
    until_ns: int,
    baseline: AnswerCollector | None = None,
    baseline_ns: int | None = None,
    pairs: ReviewedPairs | None = None,
    ledger: LedgerCoverage | None = None,
    notices: Sequence[str] = (),
) -> QualityReport:
    """Make the estimates of the collected answers, and compare."""
    whole = GroupFigures("", found.whole, request.measured)
    groups = _groups(request, found)
    first = next((metric for metric in whole.metrics if metric.passing), None)
    effort = effort_figures(first, found.whole, request.drop) if first and request.drop else None
    of_both = [whole] if request.by and request.by.is_time else [whole, *groups]
    return QualityReport(
        place=place,
        since_ns=since_ns,
        until_ns=until_ns,
        baseline_ns=baseline_ns,
        by=request.by,
        whole=whole,
        groups=groups,
        groups_left_out=sum(bool(group.answers) for group in found.groups.values()) - len(groups),
        comparisons=tuple(_of_periods(request, of_both, baseline)) if baseline else (),
        drop=request.drop,
        effort=effort,
        measured=request.measured,
        reviewed=_reviewed(whole, pairs) if pairs else None,
        disputes=found.disputes(),
        ledger=ledger,
        notices=(*notices, *_notices(request, found, whole)),
    )


def _reviewed(whole: GroupFigures, pairs: ReviewedPairs) -> ReviewedFigures:
    found = whole.metric(REVIEWED)
    passing = corrected_mean(found.passing, pairs.passing) if found and found.passing else None
    mean = corrected_mean(found.mean, pairs.scores) if found and found.mean else None
    return ReviewedFigures(passing=passing, mean=mean, reviewed=len(pairs.passing))


def _groups(request: ReportRequest, found: AnswerCollector) -> tuple[GroupFigures, ...]:
    """Estimate the newest periods, or the groups with the most answers."""
    names = [name for name in found.groups if found.groups[name].answers]
    if request.by is not None and request.by.is_time:
        names = sorted(names)[-request.most_groups :]
    else:
        names.sort(key=lambda name: (-found.groups[name].answers, name))
        names = names[: request.most_groups]
    return tuple(GroupFigures(name, found.groups[name], request.measured) for name in names)


def _of_periods(
    request: ReportRequest, groups: Sequence[GroupFigures], baseline: AnswerCollector
) -> Iterator[Comparison]:
    for group in groups:
        sample = baseline.groups.get(group.name) if group.name else baseline.whole
        earlier = GroupFigures(group.name, sample, request.measured) if sample else None
        for now in group.metrics:
            before = earlier.metric(now.metric) if earlier else None
            yield Comparison(
                group=group.name,
                metric=now.metric,
                older="baseline",
                newer="now",
                older_judged=before.judged if before else 0,
                newer_judged=now.judged,
                mean=difference_of(now.mean, before.mean) if before and now.mean and before.mean else None,
                passing=difference_of(now.passing, before.passing)
                if before and now.passing and before.passing
                else None,
            )


def _notices(request: ReportRequest, found: AnswerCollector, whole: GroupFigures) -> Iterator[str]:
    if not found.whole.answers:
        yield from _nothing(request, found)
        return
    yield from _missing(request, found, whole)
    for metric in whole.metrics:
        if metric.left_out:
            yield (
                f"{metric.metric}: {metric.left_out:,} of {metric.judged:,} scores have no known sampling"
                " probability and are left out of the estimates"
            )
    if request.judge is None and len(found.judges) > 1:
        named = ", ".join(f"{judge or '(none)'} {number:,}" for judge, number in found.judges.most_common())
        yield f"several judges are mixed: {named}; --judge chooses one, --by judge separates them"
    if found.judged_early:
        yield (
            f"{found.judged_early:,} of {found.whole.answers:,} answers were judged before they were given:"
            " a clock is wrong or was set back, so periods may be wrong, too"
        )
    yield from _corrections(request, found)


def _nothing(request: ReportRequest, found: AnswerCollector) -> Iterator[str]:
    judges = ", ".join(sorted(judge or "(none)" for judge in found.judges))
    if request.judge and found.judges:
        yield f"no answer was judged by {request.judge}; there are evaluations of {judges}"
    else:
        yield "no judged answers in this time range: choose another --since or --from"


def _missing(request: ReportRequest, found: AnswerCollector, whole: GroupFigures) -> Iterator[str]:
    names = {metric.metric for metric in whole.metrics}
    for name in request.metrics:
        if name not in names:
            yield f"no answer in this time range has the metric {name}"
    for metric in whole.metrics:
        if not metric.judged:
            yield (
                f"{metric.metric} has no score: {metric.failed:,} of {metric.results:,} results failed,"
                f" {metric.skipped:,} were skipped"
            )
    if request.cheap and not any(metric.predicted for metric in whole.metrics):
        yield f"no answer was judged by the cheap judge {request.cheap}"


def _corrections(request: ReportRequest, found: AnswerCollector) -> Iterator[str]:
    measured = request.measured
    if measured is None:
        return
    sample = found.whole.metrics.get(CALIBRATED)
    if sample is None or not sample.rows:
        yield f"the calibration is about {CALIBRATED}, which has no score here: nothing is corrected"
    elif not is_corrected(CALIBRATED, sample.judges, measured):
        yield (
            f"the calibration is of {measured.name}, and others judged, too: nothing is corrected without"
            f" --judge {measured.name}"
        )
    elif measured.errors.is_chance:
        yield (
            f"{measured.name} may be no better than a coin on the answers of its calibration: its pass rate"
            " cannot be corrected"
        )
    else:
        yield (
            "corrected pass rates hold if the judge errs here as often as on the answers of its calibration"
        )
