"""The totals of a run, counted answer by answer in constant memory."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from ragtrace.model import Label, MetricOutcome, MetricResult, Usage
from ragtrace.outcomes import JudgedAnswer, Status, outcome_of
from ragtrace.reports.tally import MetricTally
from ragtrace.stats import RunningMean, Weighed

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
        self.mean = RunningMean()
        self.passing = RunningMean()
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
        self.mean.add(Weighed(outcome.score, probability, cluster))
        self.passing.add(Weighed(float(passes), probability, cluster))
        if probability is not None:
            place = min(BINS - 1, int(outcome.score * BINS))
            self._answers[place] += 1
            self._passed[place] += passes
            self._weights[place] += 1 / probability

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
