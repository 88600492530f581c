"""Estimates of groups of judged answers, what differs between them, and what the numbers do not have."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias

from ragtrace.answers.summary import (
    AnswerKey,
    AnswerSummary,
    MetricSummary,
    first_faithfulness,
)
from ragtrace.model import Chunk, Direction, Label
from ragtrace.reviews import METRIC as REVIEWED
from ragtrace.reviews import CorrectedMean, ReviewedPair, corrected_mean
from ragtrace.stats import (
    CorrectedRate,
    DetectionEffort,
    JudgeErrors,
    Weighed,
    WeightedQuantile,
    corrected_rate,
    detection_effort,
    weighted_mean,
    weighted_quantiles,
)

NONE: Final = "(none)"
"""The group of answers that name no service, model and so on."""
_SOURCE_KEYS: Final = ("source", "url", "uri", "file_path", "file_name", "filename", "path", "title")
TIMES: Final = {"hour": "%Y-%m-%d %H:00", "day": "%Y-%m-%d", "week": "%G-W%V"}
"""The groups that are periods, in UTC: a week is ``2026-W47`` (ISO 8601)."""
_FIELDS: Final = {"cause": "blame", "release": "service_version"}


def group_of(answer: AnswerSummary, by: str) -> str:
    """Return the group of an answer by what ``--by`` of `report` and `compare` takes, but for ``source``.

    The ``cause`` is the earliest hop that failed, else the diagnosis of the composite.
    """
    if by in TIMES:
        return f"{datetime.fromtimestamp(answer.time_ns / 1e9, UTC):{TIMES[by]}}" if answer.time_ns else NONE
    value = answer.key.tenant if by == "tenant" else getattr(answer, _FIELDS.get(by, by))
    return str(value or NONE)


def source_of(chunk: Chunk) -> str:
    """Return the document that a chunk is from, as its metadata names it; empty if it names none."""
    named = (chunk.metadata.get(key) for key in _SOURCE_KEYS)
    return next((name for name in named if isinstance(name, str) and name), "")


MOST_GROUPS_KEPT: Final = 10_000
OTHER: Final = "(other)"
"""The group of what comes when there are so many: names may be anything that a sender writes."""


class JudgedRow(NamedTuple):
    """A score, as an estimate needs it."""

    score: float
    passes: bool
    probability: float | None
    cluster: str

    def weighed(self, *, passes: bool = False) -> Weighed:
        """Return the score, weighed; or 1 if it passes and 0 if not."""
        return Weighed(float(self.passes) if passes else self.score, self.probability, self.cluster)


_MetricRow: TypeAlias = tuple[MetricSummary, JudgedRow | None]
"""A metric's outcome, and its row if it has a score."""


@dataclass(slots=True, kw_only=True)
class MetricSample:
    """The results of one metric in one group."""

    rows: list[JudgedRow] = field(default_factory=list)
    failed: int = 0
    skipped: int = 0
    lower_is_better: bool = False
    judges: set[str] = field(default_factory=set)

    @property
    def results(self) -> int:
        """All results: with a score, failed and skipped."""
        return len(self.rows) + self.failed + self.skipped


@dataclass(slots=True, kw_only=True)
class GroupSample:
    """The answers of one group."""

    answers: int = 0
    claims: int = 0
    unjudged_claims: int = 0
    cost_usd: float = 0.0
    priced: int = 0
    """Answers whose cost is known."""
    first_ns: int = 0
    last_ns: int = 0
    metrics: dict[str, MetricSample] = field(default_factory=lambda: defaultdict(MetricSample))


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeCount:
    """How often valid evaluations of the same answer say the opposite."""

    disputed: int
    """Answers that one evaluation passes and another fails."""
    of: int
    """Answers that two or more evaluations pass or fail."""


class AnswerCollector:
    """Takes evaluations, and keeps what the estimates of each group need. It keeps no text."""

    def __init__(
        self,
        *,
        by: str | None = None,
        metrics: Collection[str] = (),
        judge: str | None = None,
    ) -> None:
        """``metrics`` are the wanted ones, by default all; ``judge`` is one that `is_judge` knows."""
        self.whole = GroupSample()
        self.groups: dict[str, GroupSample] = defaultdict(GroupSample)
        self.judges: Counter[str] = Counter()
        """Evaluations of each judge, also of those that were not asked for."""
        self.judged_early = 0
        """Evaluations that began before the answer did: a clock was wrong, or set back."""
        self._decided: Counter[AnswerKey] = Counter()
        self._disputed: set[AnswerKey] = set()
        self._by, self._metrics = by, frozenset(metrics)
        self._judge = judge

    def add(self, answer: AnswerSummary) -> None:
        """Add a valid evaluation. By source, it is in no group before `add_sources`."""
        self.judges[answer.judge] += 1
        self._compare(answer)
        if self._judge is not None and not is_judge(answer.judge, self._judge):
            return
        self.judged_early += 0 < answer.judged_ns < answer.time_ns
        rows = self._rows(answer)
        self._put(self.whole, answer, rows)
        if self._by is not None and self._by != "source":
            self._put(self._group(group_of(answer, self._by)), answer, rows)

    def disputes(self) -> DisputeCount:
        """Count the answers whose evaluations disagree, also those of judges that were not asked for."""
        several = {key for key, number in self._decided.items() if number > 1}
        return DisputeCount(disputed=len(self._disputed & several), of=len(several))

    def _compare(self, answer: AnswerSummary) -> None:
        if answer.label in (Label.PASS, Label.FAIL):
            self._decided[answer.key] += 1
            if answer.is_disputed:
                self._disputed.add(answer.key)

    def add_sources(self, answer: AnswerSummary, sources: Sequence[str]) -> None:
        """Put an evaluation that was added already into the groups of its sources."""
        if self._judge is None or is_judge(answer.judge, self._judge):
            rows = self._rows(answer)
            for name in dict.fromkeys(sources or (NONE,)):
                self._put(self._group(name), answer, rows)

    def _group(self, name: str) -> GroupSample:
        is_known = name in self.groups or len(self.groups) < MOST_GROUPS_KEPT
        return self.groups[name if is_known else OTHER]

    def _put(self, group: GroupSample, answer: AnswerSummary, rows: Sequence[_MetricRow]) -> None:
        _count(group, answer)
        for metric, row in rows:
            sample = group.metrics[metric.name]
            _add(sample, metric, row)
            sample.judges.add(answer.judge)

    def _rows(self, answer: AnswerSummary) -> Sequence[_MetricRow]:
        return [
            (metric, judged_row(answer, metric))
            for metric in answer.metrics
            if not self._metrics or metric.name in self._metrics
        ]


def is_judge(judge: str, named: str) -> bool:
    """Whether a judge is the one that is named: ``openai:gpt-4o-mini``, or ``openai`` for any model."""
    return judge == named or judge.partition(":")[0] == named


def _count(group: GroupSample, answer: AnswerSummary) -> None:
    group.answers += 1
    group.claims += answer.claims.total
    group.unjudged_claims += answer.claims.unjudged
    if answer.cost_usd is not None:
        group.cost_usd += answer.cost_usd
        group.priced += 1
    if answer.time_ns:
        group.first_ns = min(group.first_ns or answer.time_ns, answer.time_ns)
        group.last_ns = max(group.last_ns, answer.time_ns)


def _cluster(key: AnswerKey) -> str:
    return f"{key.trace_id}@{key.tenant}"


def judged_row(answer: AnswerSummary, metric: MetricSummary) -> JudgedRow | None:
    """Return the score of a metric; ``None`` if it has none."""
    if metric.score is None or metric.label not in (Label.PASS, Label.FAIL):
        return None
    return JudgedRow(metric.score, metric.label is Label.PASS, answer.probability, _cluster(answer.key))


def _add(sample: MetricSample, metric: MetricSummary, row: JudgedRow | None) -> None:
    sample.lower_is_better = metric.direction is Direction.LOWER_IS_BETTER
    if row is not None:
        sample.rows.append(row)
    elif metric.label is Label.ERROR:
        sample.failed += 1
    else:
        sample.skipped += 1


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


class MetricFigures:
    """The estimates of one metric in one group."""

    def __init__(self, metric: str, sample: MetricSample, measured: MeasuredJudge | None) -> None:
        self.metric = metric
        self.lower_is_better = sample.lower_is_better
        self.results = sample.results
        """All results of the metric: judged, failed and skipped."""
        self.judged, self.failed, self.skipped = len(sample.rows), sample.failed, sample.skipped
        """``judged`` are those with a score."""
        self.mean = weighted_mean(row.weighed() for row in sample.rows)
        """``None`` without a score whose sampling probability is known."""
        self.passing = weighted_mean(row.weighed(passes=True) for row in sample.rows)
        """The share that passes."""
        self.median: WeightedQuantile | None = None
        """``None`` with fewer than 30 scores."""
        self.worst_tenth: WeightedQuantile | None = None
        """The 10 % quantile; the 90 % one if lower is better."""
        if self.passing and self.passing.records >= LEAST_FOR_QUANTILES:
            shares = (0.5, 0.9 if sample.lower_is_better else 0.1)
            scores = (row.weighed() for row in sample.rows)
            self.median, self.worst_tenth = weighted_quantiles(scores, shares)
        self.population = sum(1 / row.probability for row in sample.rows if row.probability)
        """How many answers the judged ones stand for: the sum of one over the sampling probability."""
        self.corrected: CorrectedRate | None = None
        """The share that passes, corrected for the judge's measured errors."""
        if self.passing and measured and is_corrected(metric, sample.judges, measured):
            self.corrected = corrected_rate(self.passing, measured.errors)

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


DETECTED_DROP: Final = 0.05
"""Of the pass rate: the report says how many answers it takes to detect it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffortFigures:
    """What it takes to detect a drop in the pass rate of a metric."""

    metric: str
    effort: DetectionEffort | None
    """``None`` if the pass rate is lower than the drop."""
    priced: int
    """Evaluations that the dollars are from."""
    judged: int
    """Answers that the days are from."""
    days: float | None
    """The time between the first and the last of them; ``None`` if they are less than an hour apart."""


def effort_figures(found: MetricFigures, group: GroupSample) -> EffortFigures | None:
    """Say what it takes to detect a drop in the pass rate; ``None`` if there is no pass rate."""
    if found.passing is None:
        return None
    length_ns = group.last_ns - group.first_ns
    days = length_ns / _DAY_NS if length_ns >= _HOUR_NS else None
    effort = detection_effort(
        found.passing.mean,
        DETECTED_DROP,
        design_effect=found.passing.records / (found.passing.size or found.passing.effective),
        dollars_an_answer=group.cost_usd / group.priced if group.priced else None,
        answers_a_day=found.judged / days if days else None,
    )
    return EffortFigures(
        metric=found.metric, effort=effort, priced=group.priced, judged=found.judged, days=days
    )


def is_corrected(metric: str, judges: set[str], measured: MeasuredJudge | None) -> bool:
    """Whether a calibration holds for these results: one metric, all by the judge that was measured."""
    if measured is None or metric != CALIBRATED:
        return False
    return all(is_judge(judge, measured.name) for judge in judges)


_MOST_GROUPS: Final = 200
"""So many are shown: the hours of a week, or the groups with the most answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """What a report is to say."""

    by: str | None = None
    metrics: tuple[str, ...] = ()
    """The wanted ones; empty for all."""
    judge: str | None = None
    measured: MeasuredJudge | None = None

    def collector(self) -> AnswerCollector:
        """Return what collects the answers of such a report."""
        return AnswerCollector(by=self.by, metrics=self.metrics, judge=self.judge)


class ReviewedPairs(NamedTuple):
    """The judge and people on the answers that were reviewed in random order."""

    passing: Sequence[ReviewedPair]
    scores: Sequence[ReviewedPair]


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
    by: str | None
    whole: GroupFigures
    groups: tuple[GroupFigures, ...]
    """Periods in order of time, other groups by their number of answers."""
    groups_left_out: int
    effort: EffortFigures | None
    """``None`` without a pass rate."""
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
    pairs: ReviewedPairs | None = None,
    ledger: LedgerCoverage | None = None,
    notices: Sequence[str] = (),
) -> QualityReport:
    """Make the estimates of the collected answers."""
    whole = GroupFigures("", found.whole, request.measured)
    groups = _groups(request, found)
    first = next((metric for metric in whole.metrics if metric.passing), None)
    effort = effort_figures(first, found.whole) if first else None
    return QualityReport(
        place=place,
        since_ns=since_ns,
        until_ns=until_ns,
        by=request.by,
        whole=whole,
        groups=groups,
        groups_left_out=sum(bool(group.answers) for group in found.groups.values()) - len(groups),
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
    if request.by in TIMES:
        names = sorted(names)[-_MOST_GROUPS:]
    else:
        names.sort(key=lambda name: (-found.groups[name].answers, name))
        names = names[:_MOST_GROUPS]
    return tuple(GroupFigures(name, found.groups[name], request.measured) for name in names)


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
