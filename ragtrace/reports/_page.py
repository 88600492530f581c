"""Reports as a page: one self-contained HTML file, for people."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from ragtrace.answers.shown import FILTERS, SKIP_MEANINGS, shown_answer
from ragtrace.model import (
    Direction,
    JudgedAnswer,
    Label,
    MetricOutcome,
    MetricResult,
    Status,
    Usage,
    VerdictLabel,
    outcome_of,
)
from ragtrace.reports._files import replaced_file
from ragtrace.reports.report import MetricTally, RunEnd, RunInfo, open_template
from ragtrace.stats import RunningMean, Weighed, WeightedMean

if TYPE_CHECKING:
    from jinja2 import Template


WORST: Final = 50


class PageReport:
    """Counts, keeps the worst answers, and writes the page at the end."""

    def __init__(self, path: Path, about: RunInfo, *, worst: int = WORST) -> None:
        self.path = path
        self._about = about
        self._totals = Totals()
        self._most = worst
        self._worst: list[tuple[_Badness, JudgedAnswer]] = []
        self._file = replaced_file(path)

    def add(self, answer: JudgedAnswer) -> None:
        self._totals.add(answer)
        badness = _badness(answer, self._totals.answers)
        if self._most and badness is not None:
            keep = heapq.heappush if len(self._worst) < self._most else heapq.heappushpop
            keep(self._worst, (badness, answer))

    def close(self, ending: RunEnd) -> None:
        page = _template().render(
            about=self._about,
            ending=ending,
            totals=self._totals,
            metrics=list(self._totals.metrics.values()),
            worst=[
                (rank, _trace_url(self._about.trace_url, answer), shown_answer(answer))
                for rank, (_, answer) in enumerate(
                    sorted(self._worst, key=itemgetter(0), reverse=True), start=1
                )
            ],
            meanings=SKIP_MEANINGS,
            Status=Status,
        )
        self._file.file.write(page.encode("utf-8", "replace"))
        self._file.commit()

    def abandon(self) -> None:
        """Keep the earlier file."""
        self._file.abandon()


def _trace_url(template: str | None, answer: JudgedAnswer) -> str | None:
    target = answer.record.target
    if template is None or target is None:
        return None
    url = template.replace("{trace_id}", quote(target.trace_id, safe=""))
    return url.replace("{span_id}", quote(target.span_id, safe=""))


@cache
def _template() -> Template:
    return open_template("reports/page.html", **FILTERS)


BINS: Final = 20


class HistogramBin(NamedTuple):
    """A bin of scores."""

    low: float
    high: float
    """Excluded, except in the last bin."""
    answers: int
    passed: int
    """Number of passing answers in the bin."""
    share: float
    """Share of all answers, weighted by sampling probability."""

    @property
    def passes(self) -> bool:
        """Whether most of these answers pass."""
        return 2 * self.passed > self.answers


class MetricTotals:
    """A metric's totals over all answers."""

    def __init__(self, outcome: MetricOutcome) -> None:
        own = outcome.profile == "ragtrace"
        self.tally = MetricTally(metric=outcome.metric if own else f"{outcome.metric}.{outcome.profile}")
        self.threshold: float | None = None
        self.pass_when: str | None = None
        self._mean = RunningMean()
        self._passing = RunningMean()
        self._answers = [0] * BINS
        self._passed = [0] * BINS
        self._weights = [0.0] * BINS

    def add(self, outcome: MetricOutcome, answer: JudgedAnswer) -> None:
        self.tally.add(outcome)
        if not isinstance(outcome, MetricResult) or outcome.score is None:
            return
        self.threshold, self.pass_when = outcome.threshold, outcome.pass_when
        passes = outcome.label is Label.PASS
        probability, cluster = answer.probability, answer.cluster
        self._mean.add(Weighed(outcome.score, probability, cluster))
        self._passing.add(Weighed(float(passes), probability, cluster))
        if probability is not None:
            place = min(BINS - 1, int(outcome.score * BINS))
            self._answers[place] += 1
            self._passed[place] += passes
            self._weights[place] += 1 / probability

    @property
    def mean(self) -> WeightedMean | None:
        """The mean of the scores; ``None`` without any."""
        return self._mean.estimate()

    @property
    def passing(self) -> WeightedMean | None:
        """The share that passes; ``None`` without a score."""
        return self._passing.estimate()

    @property
    def lower_is_better(self) -> bool:
        return self.tally.direction is Direction.LOWER_IS_BETTER

    @property
    def picture(self) -> Histogram:
        return Histogram(self.bins, self.mean, self.threshold)

    @property
    def bins(self) -> tuple[HistogramBin, ...]:
        """The histogram of the scores, without answers of unknown probability."""
        whole = sum(self._weights) or 1.0
        return tuple(
            HistogramBin(
                low=place / BINS,
                high=(place + 1) / BINS,
                answers=number,
                passed=passed,
                share=weight / whole,
            )
            for place, (number, passed, weight) in enumerate(
                zip(self._answers, self._passed, self._weights, strict=True)
            )
        )


class Totals:
    """The totals over all answers."""

    def __init__(self) -> None:
        self.statuses: Counter[Status] = Counter()
        self.reasons: dict[Status, Counter[str]] = {status: Counter() for status in Status}
        self.metrics: dict[tuple[str, str], MetricTotals] = {}
        self.usage = Usage()
        self.cost_usd = 0.0
        self.unpriced = 0
        """Number of answers with unknown cost."""
        self.is_sample = False
        """Whether some answers represent others that were sampled out."""

    @property
    def answers(self) -> int:
        return self.statuses.total()

    def add(self, answer: JudgedAnswer) -> None:
        status, reason = outcome_of(answer.evaluation)
        self.statuses[status] += 1
        if reason is not None:
            self.reasons[status][reason] += 1
        self.usage += answer.evaluation.usage
        self.cost_usd += answer.cost_usd or 0.0
        self.unpriced += answer.cost_usd is None
        self.is_sample = self.is_sample or answer.probability != 1.0
        for outcome in answer.evaluation.outcomes:
            key = (outcome.metric, outcome.profile)
            if key not in self.metrics:
                self.metrics[key] = MetricTotals(outcome)
            self.metrics[key].add(outcome, answer)


class HistogramBar(NamedTuple):
    """A bar with its bin."""

    x: float
    y: float
    width: float
    height: float
    of: HistogramBin


class Histogram:
    """The bars, the threshold if there is one, and the mean with its interval, in the picture's own units."""

    width, height = 420, 190
    left, right, top, bottom = 34, 408, 34, 164
    _GAP: Final = 2

    def __init__(
        self, bins: Sequence[HistogramBin], mean: WeightedMean | None, threshold: float | None
    ) -> None:
        self.highest = max((bin_.share for bin_ in bins), default=0.0) or 1.0
        """The share at the top line."""
        self.threshold = None if threshold is None else self._x(threshold)
        self.mean = (self._x(mean.low), self._x(mean.mean), self._x(mean.high)) if mean else None
        """The mean between the ends of its interval."""
        self.ticks = [(self._x(at / 4), f"{at / 4:g}") for at in range(5)]
        self.bars = [self._bar(bin_) for bin_ in bins if bin_.answers]

    def _bar(self, each: HistogramBin) -> HistogramBar:
        height = max(1.0, (self.bottom - self.top) * each.share / self.highest)
        return HistogramBar(
            x=round(self._x(each.low) + self._GAP / 2, 2),
            y=round(self.bottom - height, 2),
            width=round(self._x(each.high) - self._x(each.low) - self._GAP, 2),
            height=round(height, 2),
            of=each,
        )

    def _x(self, score: float) -> float:
        return round(self.left + score * (self.right - self.left), 2)


class _Badness(NamedTuple):
    lack: float
    """The largest distance of a metric from its best score."""
    contradicted: int
    unsupported: int
    earliness: int
    """Unique, so that answers themselves are never compared."""


def _badness(answer: JudgedAnswer, number: int) -> _Badness | None:
    lacks = [
        1 - result.score if result.direction is Direction.HIGHER_IS_BETTER else result.score
        for result in answer.evaluation.results
        if result.score is not None
    ]
    labels = [verdict.label for result in answer.evaluation.results for verdict in result.verdicts]
    if not lacks or not any(lacks):
        return None
    return _Badness(
        lack=max(lacks),
        contradicted=labels.count(VerdictLabel.CONTRADICTED),
        unsupported=labels.count(VerdictLabel.UNSUPPORTED),
        earliness=-number,
    )
