"""Reports as a page: one self-contained HTML file, for people."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from ragtrace.answers.shown import SKIP_MEANINGS, shown_answer
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
        self._worst = WorstAnswers(worst)
        self._file = replaced_file(path)

    def add(self, answer: JudgedAnswer) -> None:
        """Count an answer."""
        self._totals.add(answer)
        self._worst.add(answer)

    def close(self, ending: RunEnd) -> None:
        """Write the page."""
        page = _template().render(
            about=self._about,
            ending=ending,
            totals=self._totals,
            metrics=list(self._totals.metrics.values()),
            worst=[
                (rank, _trace_url(self._about.trace_url, answer), shown_answer(answer))
                for rank, answer in enumerate(self._worst, start=1)
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
    return open_template(
        "reports/page.html",
        count="{:,}".format,
        money=_money,
        moment=_moment,
        percent=_percent,
        score="{:.2f}".format,
        words=_words,
    )


def _money(dollars: float) -> str:
    return f"${dollars:.2f}" if dollars >= 1 or not dollars else f"${dollars:.4f}"


def _moment(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _percent(share: float) -> str:
    return f"{100 * share:.{1 if 0 < share < 0.1 else 0}f}\N{NO-BREAK SPACE}%"


def _words(name: str) -> str:
    return name.replace("_", " ")


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
        """Count the metric's outcome on an answer."""
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
        """Whether less of the metric is better."""
        return self.tally.direction is Direction.LOWER_IS_BETTER

    @property
    def picture(self) -> Histogram:
        """The histogram, laid out."""
        return draw(self.bins, self.mean, threshold=self.threshold)

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
        """The number of answers."""
        return self.statuses.total()

    def add(self, answer: JudgedAnswer) -> None:
        """Count an answer."""
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


WIDTH: Final = 420
HEIGHT: Final = 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 12, 34, 26
_GAP: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramBar:
    """A bar with its bin."""

    x: float
    y: float
    width: float
    height: float
    of: HistogramBin


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """The whole histogram, in its own units."""

    bars: tuple[HistogramBar, ...]
    highest: float
    """The share at the top line."""
    threshold: float | None
    mean: tuple[float, float, float] | None
    """The mean between the ends of its interval."""
    ticks: tuple[tuple[float, str], ...]
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM
    width: int = WIDTH
    height: int = HEIGHT


def draw(bins: Sequence[HistogramBin], mean: WeightedMean | None, *, threshold: float | None) -> Histogram:
    """Lay out the bars, the threshold if there is one, and the mean with its interval."""
    highest = max((bin_.share for bin_ in bins), default=0.0) or 1.0
    return Histogram(
        bars=tuple(_bar(bin_, highest) for bin_ in bins if bin_.answers),
        highest=highest,
        threshold=None if threshold is None else _x(threshold),
        mean=(_x(mean.low), _x(mean.mean), _x(mean.high)) if mean else None,
        ticks=tuple((_x(at / 4), f"{at / 4:g}") for at in range(5)),
    )


def _bar(each: HistogramBin, highest: float) -> HistogramBar:
    room = HEIGHT - _BOTTOM - _TOP
    height = max(1.0, room * each.share / highest)
    return HistogramBar(
        x=round(_x(each.low) + _GAP / 2, 2),
        y=round(HEIGHT - _BOTTOM - height, 2),
        width=round(_x(each.high) - _x(each.low) - _GAP, 2),
        height=round(height, 2),
        of=each,
    )


def _x(score: float) -> float:
    return round(_LEFT + score * (WIDTH - _LEFT - _RIGHT), 2)


class WorstAnswers:
    """Keeps the answers with the lowest scores, up to a number; never those without a flaw."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen = 0
        self._heap: list[tuple[_Badness, JudgedAnswer]] = []

    def add(self, answer: JudgedAnswer) -> None:
        """Add an answer if it is among the worst."""
        self._seen += 1
        badness = _badness(answer, self._seen)
        if self._most == 0 or badness is None:
            return
        keep = heapq.heappush if len(self._heap) < self._most else heapq.heappushpop
        keep(self._heap, (badness, answer))

    def __iter__(self) -> Iterator[JudgedAnswer]:
        """Yield them, the worst first."""
        return (answer for _, answer in sorted(self._heap, key=lambda each: each[0], reverse=True))


class _Badness(NamedTuple):
    lack: float
    """The largest distance of a metric from its best score."""
    contradicted: int
    unsupported: int
    earliness: int
    """Unique, so that answers themselves are never compared."""


def _badness(answer: JudgedAnswer, number: int) -> _Badness | None:
    lacks = [_lack(result) for result in answer.evaluation.results if result.score is not None]
    labels = [verdict.label for result in answer.evaluation.results for verdict in result.verdicts]
    if not lacks or not any(lacks):
        return None
    return _Badness(
        lack=max(lacks),
        contradicted=labels.count(VerdictLabel.CONTRADICTED),
        unsupported=labels.count(VerdictLabel.UNSUPPORTED),
        earliness=-number,
    )


def _lack(result: MetricResult) -> float:
    assert result.score is not None
    return 1 - result.score if result.direction is Direction.HIGHER_IS_BETTER else result.score
