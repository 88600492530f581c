"""An objective as numbers: which answers are good, and how fast the rest may use up what is left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Final

from ragtrace.answers.summary import base_name
from ragtrace.errors import ConfigError
from ragtrace_collector.config import CollectorConfig, SloConfig

_BUCKETS: Final = 20
"""The histograms of scores have bounds at every twentieth."""
_MOST_CLAIMS: Final = 12
"""Of a typical answer: a score is a share of so many claims."""
_LARGEST_SHARE: Final = 0.9
"""A burn rate whose share of failing answers lies beyond could never be seen, or hardly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnRate:
    """One pair of windows: an alert needs both to fail too much."""

    long: timedelta
    short: timedelta
    rate: float
    """How many times faster than allowed; 1 uses up the whole budget in the whole window."""
    failing: float
    """The share of failing answers at this rate."""
    is_urgent: bool
    fewest: int
    """Judged answers in the longer window."""
    is_capped: bool
    """Whether the table's rate would need a larger share than there is."""


_TABLE: Final = (
    (0.02, timedelta(hours=1), timedelta(minutes=5), True, 1),
    (0.05, timedelta(hours=6), timedelta(minutes=30), True, 2),
    (0.10, timedelta(days=3), timedelta(hours=6), False, 10),
)
"""Share of the budget, windows, urgency, and by how much more answers the longer window needs.

Of the first four, Google's SRE Workbook, chapter 5, table 5-8: with a window of 30 days these are the burn
rates 14.4, 6 and 1. The last is ours: a rate near 1 is told from 1 with more answers only.
"""


def burn_rates(slo: SloConfig) -> tuple[BurnRate, ...]:
    """Return the pairs of windows of an objective, the fastest first."""
    return tuple(_burn_rates(slo))


def failing_share(slo: SloConfig) -> float:
    """Return the share of answers that may fail: what is called the error budget."""
    return round(1 - slo.objective, 9)


def _burn_rates(slo: SloConfig) -> Iterator[BurnRate]:
    budget = failing_share(slo)
    for share, long, short, is_urgent, factor in _TABLE:
        rate = max(1.0, share * (slo.window / long))
        failing = min(rate * budget, max(_LARGEST_SHARE, budget))
        yield BurnRate(
            long=long,
            short=short,
            rate=round(failing / budget, 4),
            failing=round(failing, 6),
            is_urgent=is_urgent,
            fewest=slo.alerts.fewest_answers * factor,
            is_capped=failing < rate * budget,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodBy:
    """How a histogram of scores tells good answers from failing ones."""

    bound: str | None
    """Scores up to this bound of a bucket fail; ``None``: what the metric's rule labeled ``fail``."""
    told: str = ""
    """What the bound gets wrong, as a sentence; empty if it is exact."""


def good_by(slo: SloConfig, config: CollectorConfig) -> GoodBy:
    """Choose how the rules of an objective count failing answers.

    A bucket includes its upper bound, so that no bound means "at least". Where the metric's own threshold is
    the one of the objective, its labels are exact; else the bound is chosen that is wrong about fewer scores.

    Raises:
        ConfigError: the score is on no bound of a bucket, or the metrics do not tell the objective's traffic
            apart.
    """
    _check_metrics(slo, config)
    if slo.at_least is None or slo.at_least == _threshold(slo.metric, config):
        return GoodBy(bound=None)
    twentieth = round(slo.at_least * _BUCKETS)
    if abs(slo.at_least * _BUCKETS - twentieth) > 1e-9 or not twentieth:
        near = max(1, twentieth) / _BUCKETS
        raise ConfigError(
            f"`slo` {slo.name!r}: Prometheus knows scores by twentieths, and {slo.at_least:g} is none:"
            f" write `at_least: {near:g}`; or give the metric in `evaluate.metrics` the"
            f" `threshold: {slo.at_least:g}`, and the rules count its labels"
        )
    least, below = Fraction(twentieth, _BUCKETS), Fraction(twentieth - 1, _BUCKETS)
    if _is_rarer(least, below):
        return GoodBy(
            bound=_bound(least), told=f"a score of exactly {slo.at_least:g} counts as failing in these rules"
        )
    return GoodBy(
        bound=_bound(below),
        told=f"a score between {float(below):g} and {slo.at_least:g} counts as good in these rules",
    )


def _check_metrics(slo: SloConfig, config: CollectorConfig) -> None:
    scores = config.telemetry.scores
    if not scores.enabled:
        raise ConfigError(
            f"`slo` {slo.name!r}: Prometheus gets no scores with `telemetry.scores.enabled: false`: set it"
        )
    missing = [key for key in slo.dimensions if key not in scores.by]
    if missing:
        raise ConfigError(
            f"`slo` {slo.name!r} is about one {missing[0]}, and the metrics tell no {missing[0]} apart: add"
            f" `{missing[0]}` to `telemetry.scores.by`"
        )


def _threshold(metric: str, config: CollectorConfig) -> float | None:
    named = [found for found in config.evaluate.metrics if found.name == base_name(metric)]
    return named[0].threshold if len(named) == 1 else None


def _is_rarer(least: Fraction, below: Fraction) -> bool:
    """Say whether fewer scores are exactly at a bound than between it and the one below.

    A score is a share of a few claims; answers with fewer claims are more common.
    """
    exact = between = Fraction(0)
    for claims in range(1, _MOST_CLAIMS + 1):
        scores = [Fraction(good, claims) for good in range(claims + 1)]
        exact += Fraction(sum(score == least for score in scores), claims)
        between += Fraction(sum(below < score < least for score in scores), claims)
    return exact < between


def _bound(share: Fraction) -> str:
    return f"{float(share):.2f}".rstrip("0") if share.denominator > 1 else f"{float(share):.1f}"
