"""What the verdicts on sampled answers add up to since the process started, in bounded memory.

An answer counts once, as it was first judged: later evaluations only count as revised, because a counter
cannot take back what it counted. A result without a score is never one.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from ragtrace import semconv
from ragtrace.answers.summary import AnswerSummary, MetricSummary, facts_of, metrics_of
from ragtrace.model import Label
from ragtrace.ports import Clock
from ragtrace_collector.telemetry.logs import JsonLines, event


class Dimension(NamedTuple):
    """What traffic is told apart by."""

    key: str
    """In ``telemetry.scores_by``."""
    attribute: str


class ScoreMetric(NamedTuple):
    """One metric. Units are UCUM codes, as in OpenTelemetry."""

    name: str
    description: str
    attributes: tuple[str, ...] = ()
    """Besides the dimensions."""
    unit: str = "1"
    is_histogram: bool = False
    """Of scores, by `BOUNDS`; else it grows since the process started."""


DIMENSIONS: Final = (
    Dimension("service", semconv.SERVICE_NAME),
    Dimension("model", semconv.REQUEST_MODEL),
    Dimension("prompt_version", semconv.PROMPT_VERSION),
    Dimension("tenant", semconv.TENANT),
)
BOUNDS: Final = tuple(round(twentieth / 20, 2) for twentieth in range(21))
"""Upper bounds of the histograms' buckets, inclusive."""
OTHER: Final = "other"
"""In place of all values of an attribute beyond its bound."""
REASON: Final = "ragtrace.evaluation.reason"

_NAME, _LABEL = semconv.EVALUATION_NAME, semconv.EVALUATION_LABEL

SCORE: Final = ScoreMetric(
    "ragtrace.evaluation.score", "scores of judged answers", (_NAME, _LABEL), is_histogram=True
)
WEIGHTED: Final = ScoreMetric(
    "ragtrace.evaluation.score.weighted",
    "scores, each counted once for each answer of all traffic that it represents",
    (_NAME, _LABEL),
    is_histogram=True,
)
WEIGHT_SQUARED: Final = ScoreMetric(
    "ragtrace.evaluation.weight.squared", "sum of w², w = 1 / sampling probability", (_NAME,)
)
SCORE_PRODUCT: Final = ScoreMetric(
    "ragtrace.evaluation.score.weighted.product", "sum of w² · score", (_NAME,)
)
SCORE_SQUARED: Final = ScoreMetric(
    "ragtrace.evaluation.score.weighted.squared", "sum of (w · score)²", (_NAME,)
)
PASS_SQUARED: Final = ScoreMetric(
    "ragtrace.evaluation.pass.weight.squared", "sum of w² of the answers that pass", (_NAME,)
)
RESULTS: Final = ScoreMetric(
    "ragtrace.evaluation.results",
    "results of metrics, with those that are no score: skipped and failed ones, by reason",
    (_NAME, _LABEL, REASON),
    unit="{result}",
)
UNWEIGHTED: Final = ScoreMetric(
    "ragtrace.evaluation.unweighted",
    "scores of unknown sampling probability: no weighted metric has them",
    (_NAME,),
    unit="{result}",
)
CLAIMS: Final = ScoreMetric(
    "ragtrace.evaluation.claims",
    "claims of judged answers, each once",
    (semconv.CLAIM_VERDICT,),
    unit="{claim}",
)
QUADRANT: Final = ScoreMetric(
    "ragtrace.evaluation.quadrant",
    "answers of all traffic by chunk precision and faithfulness, estimated",
    (semconv.DIAGNOSIS,),
    unit="{answer}",
)
COST: Final = ScoreMetric("ragtrace.evaluation.cost", "US dollars spent on the judge", unit="{USD}")
UNPRICED: Final = ScoreMetric(
    "ragtrace.evaluation.unpriced", "judged answers of unknown cost", unit="{answer}"
)
REVISED: Final = ScoreMetric(
    "ragtrace.evaluation.revised",
    "evaluations that replace an earlier one: nothing else counts them, so that an answer counts once",
    unit="{answer}",
)
SCORE_METRICS: Final = (
    *(SCORE, WEIGHTED, WEIGHT_SQUARED, SCORE_PRODUCT, SCORE_SQUARED, PASS_SQUARED),
    *(RESULTS, UNWEIGHTED, CLAIMS, QUADRANT, COST, UNPRICED, REVISED),
)


ALL_DIMENSIONS: Final = tuple(dimension.key for dimension in DIMENSIONS)
MOST_SERIES: Final = 7_500
"""Of places with all their dimensions: a place is a combination of service, model, prompt version and tenant.
Further ones are told apart by `_MATTER` alone, and when those have `_SPARE_SERIES` more, not at all."""
_SPARE_SERIES: Final = 2_500
_MATTER: Final = ("service", "tenant")
"""What rules ask by."""
_SERIES_OF_HISTOGRAM: Final = len(BOUNDS) + 3
"""Its buckets, with that of the largest, its sum and its count."""
_SERIES_OF_METRIC: Final = 4 * _SERIES_OF_HISTOGRAM + 10
"""Two histograms of two labels; sums, and results by reason."""
_SERIES_OF_PLACE: Final = 11
"""Claims, quadrants, cost and revisions."""
_MOST_REASONS: Final = 30
_MOST_METRICS: Final = 30
_DECIDED: Final = (Label.PASS, Label.FAIL)
_VERDICTS: Final = ("supported", "contradicted", "unsupported", "unjudged")
_PRECISION, _FAITHFULNESS = "chunk_precision", "faithfulness"
_LEAST_PROBABILITY: Final = 1e-6
"""A lower sampling probability counts as this one, as in the index."""

Labels = tuple[str, ...]
"""Values of attributes: the dimensions in their order, then the metric's own."""


class ScoreExemplar(NamedTuple):
    """The last trace of a bucket."""

    score: float
    trace_id: str
    span_id: str
    """The carrier's; in hold mode the answer's own."""
    time_ns: int


@dataclass(slots=True)
class ScoreHistogram:
    """Scores by bucket, each with the last trace that came into it."""

    counts: list[float] = field(default_factory=lambda: [0.0] * len(BOUNDS))
    total: float = 0.0
    """The sum of the scores."""
    lowest: float = 1.0
    highest: float = 0.0
    exemplars: dict[int, ScoreExemplar] = field(default_factory=dict)

    def add(self, weight: float, exemplar: ScoreExemplar) -> None:
        """Count a score so many times."""
        bucket = bisect_left(BOUNDS, exemplar.score)
        self.counts[bucket] += weight
        self.total += weight * exemplar.score
        self.lowest, self.highest = min(self.lowest, exemplar.score), max(self.highest, exemplar.score)
        self.exemplars[bucket] = exemplar


class _Bounded:
    """The values of one attribute: the first ones keep their names, and the rest are ``other``."""

    def __init__(self, most: int) -> None:
        self._most, self._known = most, set[str]()

    def name(self, value: str) -> str:
        if value and value not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(value)
        return value


class Scores:
    """Adds up what is judged."""

    def __init__(self, *, clock: Clock, by: Sequence[str] = ALL_DIMENSIONS, most_values: int = 100) -> None:
        self.by = tuple(dimension for dimension in DIMENSIONS if dimension.key in by)
        self.started_ns = clock.now_ns()
        self._clock = clock
        self.histograms: defaultdict[ScoreMetric, dict[Labels, ScoreHistogram]] = defaultdict(dict)
        self.sums: defaultdict[ScoreMetric, dict[Labels, float]] = defaultdict(dict)
        self._dimensions = {dimension.key: _Bounded(most_values) for dimension in DIMENSIONS}
        self._places = set[Labels]()
        self._series = 0
        """What the places may have at most."""
        self._metrics, self._reasons = _Bounded(_MOST_METRICS), _Bounded(_MOST_REASONS)

    def note(self, answer: AnswerSummary, *, span_id: str) -> None:
        """Count a judged answer; ``span_id`` is where its scores are in the trace."""
        where = self._where(answer)
        if answer.supersedes:
            self._add(REVISED, where, (), 1)
            return
        weight = 1 / max(answer.probability, _LEAST_PROBABILITY) if answer.probability else None
        for metric in answer.metrics:
            shown = ScoreExemplar(metric.score or 0.0, answer.key.trace_id, span_id, self._clock.now_ns())
            self._note_metric(metric, answer, where, weight, shown)
        for verdict in _VERDICTS:
            self._add(CLAIMS, where, (verdict,), getattr(answer.claims, verdict))
        quadrant = _quadrant(answer)
        if quadrant and weight:
            self._add(QUADRANT, where, (quadrant,), weight)
        self._add(COST, where, (), answer.cost_usd or 0.0)
        self._add(UNPRICED, where, (), answer.cost_usd is None)

    def _note_metric(
        self,
        metric: MetricSummary,
        answer: AnswerSummary,
        where: Labels,
        weight: float | None,
        shown: ScoreExemplar,
    ) -> None:
        name, label = self._metrics.name(metric.name), metric.label
        reason = "" if label in _DECIDED else self._reasons.name(answer.reason)
        self._add(RESULTS, where, (name, label.value, reason), 1)
        if metric.score is None or label not in _DECIDED:
            return
        self._histogram(SCORE, where, (name, label.value)).add(1, shown)
        if weight is None:
            self._add(UNWEIGHTED, where, (name,), 1)
            return
        self._histogram(WEIGHTED, where, (name, label.value)).add(weight, shown)
        self._add(WEIGHT_SQUARED, where, (name,), weight**2)
        self._add(SCORE_PRODUCT, where, (name,), weight**2 * metric.score)
        self._add(SCORE_SQUARED, where, (name,), (weight * metric.score) ** 2)
        self._add(PASS_SQUARED, where, (name,), weight**2 * (label is Label.PASS))

    def _where(self, answer: AnswerSummary) -> Labels:
        values = {
            "service": answer.service,
            "model": answer.model,
            "prompt_version": answer.prompt_version,
            "tenant": answer.key.tenant,
        }
        where = tuple(self._dimensions[dimension.key].name(values[dimension.key]) for dimension in self.by)
        what_matters = tuple(
            value if dimension.key in _MATTER else OTHER
            for dimension, value in zip(self.by, where, strict=True)
        )
        for place, most in ((where, MOST_SERIES), (what_matters, MOST_SERIES + _SPARE_SERIES)):
            needed = _SERIES_OF_PLACE + _SERIES_OF_METRIC * len(answer.metrics)
            if place in self._places or self._series + needed <= most:
                self._series += needed * (place not in self._places)
                self._places.add(place)
                return place
        return tuple(OTHER for _ in where)

    def _add(self, metric: ScoreMetric, where: Labels, own: Labels, amount: float) -> None:
        series, labels = self.sums[metric], (*where, *own)
        series[labels] = series.get(labels, 0.0) + amount

    def _histogram(self, metric: ScoreMetric, where: Labels, own: Labels) -> ScoreHistogram:
        return self.histograms[metric].setdefault((*where, *own), ScoreHistogram())

    def snapshot(self) -> Scores:
        """Return what is counted now, for another thread to read."""
        taken = copy(self)
        taken.histograms = defaultdict(
            dict,
            {
                metric: {
                    labels: replace(each, counts=[*each.counts], exemplars={**each.exemplars})
                    for labels, each in series.items()
                }
                for metric, series in self.histograms.items()
            },
        )
        taken.sums = defaultdict(dict, {metric: {**series} for metric, series in self.sums.items()})
        return taken

    def attributes(self, metric: ScoreMetric) -> tuple[str, ...]:
        """Return the names of a metric's attributes, in the order of its labels."""
        return (*(dimension.attribute for dimension in self.by), *metric.attributes)


def _quadrant(answer: AnswerSummary) -> str:
    """Say whether retrieval or generation failed; empty unless chunk precision and faithfulness are known."""
    found = [answer.metric(name) for name in (_PRECISION, _FAITHFULNESS)]
    labels = tuple(metric.label for metric in found if metric is not None)
    return _QUADRANTS.get(labels, "")


_QUADRANTS: Final[Mapping[tuple[Label, ...], str]] = {
    (Label.PASS, Label.PASS): "healthy",
    (Label.PASS, Label.FAIL): "generation_problem",
    (Label.FAIL, Label.PASS): "retrieval_noise",
    (Label.FAIL, Label.FAIL): "retrieval_failure",
}


_verdicts = logging.getLogger("ragtrace.verdicts")


def log_verdicts() -> None:
    """Send every verdict to stderr in JSON, whatever the level and format of the other lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    _verdicts.handlers, _verdicts.propagate = [handler], False
    _verdicts.setLevel(logging.INFO)


def log_verdict(answer: AnswerSummary) -> None:
    """Write the line of an answer. It has no content."""
    facts = {name: value for name, value in facts_of(answer).items() if value is not None and value != ""}
    if answer.supersedes:
        facts["supersedes"] = answer.supersedes
    told = event("answer_judged", **facts, metrics=metrics_of(answer))
    _verdicts.info("answer judged: %s", answer.label.value, extra=told)
