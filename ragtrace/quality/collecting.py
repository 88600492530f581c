"""Sorting judged answers into groups, metric by metric."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from ragtrace.answers.summary import AnswerKey, AnswerSummary, MetricSummary, ScreenedAnswer
from ragtrace.model import Chunk, Direction, Label
from ragtrace.stats import PredictedAnswer, Weighed


class ReportDimension(StrEnum):
    """What the answers of a group have in common."""

    SERVICE = "service"
    MODEL = "model"
    PROMPT_VERSION = "prompt_version"
    TENANT = "tenant"
    JUDGE = "judge"
    CAUSE = "cause"
    """The earliest hop that failed; else the diagnosis of the composite."""
    SOURCE = "source"
    DAY = "day"
    HOUR = "hour"

    @property
    def is_time(self) -> bool:
        """Whether the groups are periods, in the order of time."""
        return self in (ReportDimension.DAY, ReportDimension.HOUR)


NONE: Final = "(none)"
"""The group of answers that name no service, model and so on."""
_SOURCE_KEYS: Final = ("source", "url", "uri", "file_path", "file_name", "filename", "path", "title")
_FORMS: Final = {ReportDimension.DAY: "%Y-%m-%d", ReportDimension.HOUR: "%Y-%m-%d %H:00"}


def groups_of(answer: AnswerSummary, by: ReportDimension, sources: Sequence[str] = ()) -> Sequence[str]:
    """Return the groups of an answer: one, or one for each source of its chunks. Periods are in UTC."""
    if by is ReportDimension.SOURCE:
        return tuple(dict.fromkeys(sources)) or (NONE,)
    if by.is_time:
        if not answer.time_ns:
            return (NONE,)
        return (f"{datetime.fromtimestamp(answer.time_ns / 1e9, UTC):{_FORMS[by]}}",)
    if by is ReportDimension.TENANT:
        return (answer.key.tenant or NONE,)
    if by is ReportDimension.CAUSE:
        return (answer.blame or NONE,)
    return (str(getattr(answer, by.value)) or NONE,)


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

    @property
    def as_score(self) -> Weighed:
        """The score, weighed."""
        return Weighed(self.score, self.probability, self.cluster)

    @property
    def as_pass(self) -> Weighed:
        """1 if it passes and 0 if not, weighed."""
        return Weighed(float(self.passes), self.probability, self.cluster)


_MetricRow: TypeAlias = tuple[MetricSummary, JudgedRow | None]
"""A metric's outcome, and its row if it has a score."""


class CheapRow(NamedTuple):
    """What a cheap judge said of an answer, or that it could not decide."""

    score: float | None
    passes: float | None
    probability: float | None
    cluster: str


_KNOWN_WHEN_SCREENED: Final = (
    ReportDimension.SERVICE,
    ReportDimension.TENANT,
    ReportDimension.DAY,
    ReportDimension.HOUR,
)
"""The groups of an answer that nobody judged."""


@dataclass(slots=True, kw_only=True)
class MetricSample:
    """The results of one metric in one group."""

    rows: list[JudgedRow] = field(default_factory=list)
    failed: int = 0
    skipped: int = 0
    lower_is_better: bool = False
    judges: set[str] = field(default_factory=set)
    cheap: dict[AnswerKey, CheapRow] = field(default_factory=dict)
    """The results of the cheap judge, by answer."""
    better: dict[AnswerKey, JudgedRow] = field(default_factory=dict)
    """Those of the named judge, if a cheap one is named, or of all judges beside a screen."""
    is_screened: bool = False
    """Whether the cheap results are a screen's."""

    @property
    def results(self) -> int:
        """All results: with a score, failed and skipped."""
        return len(self.rows) + self.failed + self.skipped

    def joined(self, *, passes: bool) -> list[PredictedAnswer]:
        """Return the answers of the cheap judge, with the better one's result where there is one.

        Where the cheap judge could not decide, its mean is taken for its score. To leave these answers out
        would leave out a kind of answer; a constant only predicts them less well.
        """
        said = {key: row.passes if passes else row.score for key, row in self.cheap.items()}
        known = [value for value in said.values() if value is not None]
        middle = sum(known) / len(known) if known else 0.5
        found = []
        for key, cheap in self.cheap.items():
            value, better = said[key], self.better.get(key)
            truth = None if better is None else float(better.passes) if passes else better.score
            found.append(
                PredictedAnswer(
                    middle if value is None else value,
                    cheap.probability,
                    truth,
                    None if better is None else better.probability,
                    cheap.cluster,
                )
            )
        return found


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
        by: ReportDimension | None = None,
        metrics: Collection[str] = (),
        judge: str | None = None,
        cheap: str | None = None,
        joins_screen: bool = False,
    ) -> None:
        """``metrics`` are the wanted ones, by default all. ``judge`` and ``cheap`` are ``provider:model``, or
        ``provider`` alone. ``joins_screen`` announces `add_screened`."""
        self.whole = GroupSample()
        self.groups: dict[str, GroupSample] = defaultdict(GroupSample)
        self.judges: Counter[str] = Counter()
        """Evaluations of each judge, also of those that were not asked for."""
        self.judged_early = 0
        """Evaluations that began before the answer did: a clock was wrong, or set back."""
        self._decided: Counter[AnswerKey] = Counter()
        self._disputed: set[AnswerKey] = set()
        self._by, self._metrics = by, frozenset(metrics)
        self._judge, self._cheap = judge, cheap
        self._keeps_better = joins_screen or cheap is not None

    def add(self, answer: AnswerSummary) -> None:
        """Add a valid evaluation. By source, it is in no group before `add_sources`."""
        self.judges[answer.judge] += 1
        self._compare(answer)
        is_cheap = self._cheap is not None and is_judge(answer.judge, self._cheap)
        if not is_cheap and self._judge is not None and not is_judge(answer.judge, self._judge):
            return
        self.judged_early += 0 < answer.judged_ns < answer.time_ns
        rows = self._rows(answer)
        self._put(self.whole, answer, rows, is_cheap)
        if self._by is not None and self._by is not ReportDimension.SOURCE:
            for name in groups_of(answer, self._by):
                self._put(self._group(name), answer, rows, is_cheap)

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
            for name in groups_of(answer, ReportDimension.SOURCE, sources):
                self._put(self._group(name), answer, rows, is_cheap=False)

    def add_screened(self, screened: Iterable[ScreenedAnswer]) -> None:
        """Take what a screen said of all answers for that of a cheap judge. Call it after `add`."""
        for answer in screened:
            self._put_screened(self.whole, answer)
            if self._by in _KNOWN_WHEN_SCREENED:
                for name in groups_of(_as_summary(answer), self._by):
                    if name in self.groups:
                        self._put_screened(self.groups[name], answer)

    def _put_screened(self, group: GroupSample, answer: ScreenedAnswer) -> None:
        for name in _ABOUT_CLAIMS:
            if (sample := group.metrics.get(name)) is not None and sample.rows:
                sample.is_screened = True
                sample.cheap[answer.key] = _of_suspicion(
                    answer.suspicion,
                    answer.probability,
                    lower_is_better=sample.lower_is_better,
                    cluster=_cluster(answer.key),
                )

    def _group(self, name: str) -> GroupSample:
        is_known = name in self.groups or len(self.groups) < MOST_GROUPS_KEPT
        return self.groups[name if is_known else OTHER]

    def _put(
        self, group: GroupSample, answer: AnswerSummary, rows: Sequence[_MetricRow], is_cheap: bool
    ) -> None:
        if not is_cheap:
            _count(group, answer)
        for metric, row in rows:
            sample = group.metrics[metric.name]
            if is_cheap:
                sample.cheap[answer.key] = _cheap(row, metric, answer)
                continue
            _add(sample, metric, row)
            sample.judges.add(answer.judge)
            if self._keeps_better and row is not None:
                sample.better[answer.key] = row

    def _rows(self, answer: AnswerSummary) -> Sequence[_MetricRow]:
        cluster = _cluster(answer.key)
        return [
            (metric, _row(metric, answer.probability, cluster))
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


def _as_summary(answer: ScreenedAnswer) -> AnswerSummary:
    return AnswerSummary(
        key=answer.key,
        carrier_span_id="",
        time_ns=answer.time_ns,
        judged_ns=0,
        service=answer.service,
        label=Label.SKIPPED,
    )


_ABOUT_CLAIMS: Final = ("faithfulness", "groundedness", "hallucination")
"""The metrics that the suspicion predicts."""


def _cheap(row: JudgedRow | None, metric: MetricSummary, answer: AnswerSummary) -> CheapRow:
    if answer.suspicion is not None and metric.name in _ABOUT_CLAIMS:
        # it says more than a verdict, also of answers that the judge leaves open
        return _of_suspicion(
            answer.suspicion,
            answer.probability,
            lower_is_better=metric.direction is Direction.LOWER_IS_BETTER,
            cluster=_cluster(answer.key),
        )
    if row is None:
        return CheapRow(None, None, answer.probability, _cluster(answer.key))
    return CheapRow(row.score, float(row.passes), row.probability, row.cluster)


def _of_suspicion(
    suspicion: float, probability: float | None, *, lower_is_better: bool, cluster: str
) -> CheapRow:
    trust = 1 - suspicion
    return CheapRow(suspicion if lower_is_better else trust, trust, probability, cluster)


def _row(metric: MetricSummary, probability: float | None, cluster: str) -> JudgedRow | None:
    if metric.score is None or metric.label not in (Label.PASS, Label.FAIL):
        return None
    return JudgedRow(metric.score, metric.label is Label.PASS, probability, cluster)


def _add(sample: MetricSample, metric: MetricSummary, row: JudgedRow | None) -> None:
    sample.lower_is_better = metric.direction is Direction.LOWER_IS_BETTER
    if row is not None:
        sample.rows.append(row)
    elif metric.label is Label.ERROR:
        sample.failed += 1
    else:
        sample.skipped += 1
