"""The table of score metrics: what the verdicts on sampled answers add up to, for dashboards and alerts.

Names follow OpenTelemetry's rules for metrics, attributes those of its GenAI conventions where it has them.
Histograms that are weighted count an answer once for each answer that it represents: one over its sampling
probability (Horvitz and Thompson 1952).
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from ragtrace import semconv


class ScoreMetricKind(Enum):
    """How a metric's value changes."""

    HISTOGRAM = "histogram"
    """Of scores, by `BOUNDS`."""
    SUM = "counter"
    """Grows since the process started."""


class Dimension(NamedTuple):
    """What traffic is told apart by."""

    key: str
    """In ``telemetry.scores_by``."""
    attribute: str


class ScoreMetric(NamedTuple):
    """One metric. Units are UCUM codes, as in OpenTelemetry."""

    name: str
    kind: ScoreMetricKind
    unit: str
    description: str
    attributes: tuple[str, ...]
    """Besides the dimensions."""


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
_HISTOGRAM, _SUM = ScoreMetricKind.HISTOGRAM, ScoreMetricKind.SUM

SCORE: Final = ScoreMetric(
    "ragtrace.evaluation.score", _HISTOGRAM, "1", "scores of judged answers", (_NAME, _LABEL)
)
WEIGHTED: Final = ScoreMetric(
    "ragtrace.evaluation.score.weighted",
    _HISTOGRAM,
    "1",
    "scores, each counted once for each answer of all traffic that it represents",
    (_NAME, _LABEL),
)
WEIGHT_SQUARED: Final = ScoreMetric(
    "ragtrace.evaluation.weight.squared", _SUM, "1", "sum of w², w = 1 / sampling probability", (_NAME,)
)
SCORE_PRODUCT: Final = ScoreMetric(
    "ragtrace.evaluation.score.weighted.product", _SUM, "1", "sum of w² · score", (_NAME,)
)
SCORE_SQUARED: Final = ScoreMetric(
    "ragtrace.evaluation.score.weighted.squared", _SUM, "1", "sum of (w · score)²", (_NAME,)
)
PASS_SQUARED: Final = ScoreMetric(
    "ragtrace.evaluation.pass.weight.squared", _SUM, "1", "sum of w² of the answers that pass", (_NAME,)
)
RESULTS: Final = ScoreMetric(
    "ragtrace.evaluation.results",
    _SUM,
    "{result}",
    "results of metrics, with those that are no score: skipped and failed ones, by reason",
    (_NAME, _LABEL, REASON),
)
UNWEIGHTED: Final = ScoreMetric(
    "ragtrace.evaluation.unweighted",
    _SUM,
    "{result}",
    "scores of unknown sampling probability: no weighted metric has them",
    (_NAME,),
)
CLAIMS: Final = ScoreMetric(
    "ragtrace.evaluation.claims",
    _SUM,
    "{claim}",
    "claims of judged answers, each once",
    (semconv.CLAIM_VERDICT,),
)
QUADRANT: Final = ScoreMetric(
    "ragtrace.evaluation.quadrant",
    _SUM,
    "{answer}",
    "answers of all traffic by chunk precision and faithfulness, estimated",
    (semconv.DIAGNOSIS,),
)
COST: Final = ScoreMetric("ragtrace.evaluation.cost", _SUM, "{USD}", "US dollars spent on the judge", ())
UNPRICED: Final = ScoreMetric(
    "ragtrace.evaluation.unpriced", _SUM, "{answer}", "judged answers of unknown cost", ()
)
REVISED: Final = ScoreMetric(
    "ragtrace.evaluation.revised",
    _SUM,
    "{answer}",
    "evaluations that replace an earlier one: nothing else counts them, so that an answer counts once",
    (),
)
SCORE_METRICS: Final = (
    *(SCORE, WEIGHTED, WEIGHT_SQUARED, SCORE_PRODUCT, SCORE_SQUARED, PASS_SQUARED),
    *(RESULTS, UNWEIGHTED, CLAIMS, QUADRANT, COST, UNPRICED, REVISED),
)
