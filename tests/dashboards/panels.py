"""What the dashboards of quality show, in rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard

from ragtrace import semconv
from ragtrace.model import Diagnosis, Label
from ragtrace_collector.telemetry.scores import (
    CLAIMS,
    COST,
    DIMENSIONS,
    QUADRANT,
    REASON,
    RESULTS,
    SCORE,
    UNPRICED,
    UNWEIGHTED,
    WEIGHT_SQUARED,
    WEIGHTED,
    Dimension,
    ScoreMetric,
)
from tests.dashboards.estimates import MEAN, ONE_METRIC, PASS_RATE, Estimate, judged
from tests.dashboards.frames import (
    Ask,
    alerts_panel,
    banded,
    heat_panel,
    joined_table,
    lines_panel,
    number_panel,
    properties,
    states_panel,
)
from tests.dashboards.series import METRIC, MODEL_CHANGES, RANGE, Amount, gauge, label
from tests.dashboards.traces import TraceSource

Panels = Sequence[Builder[dashboard.Panel]]

_SHARE: Final = "percentunit"
_LOW, _MEAN, _HIGH = "low", "mean", "high"


def rows(source: TraceSource) -> Iterator[tuple[str, Panels]]:
    """Yield the rows of a dashboard: their titles and panels."""
    yield f"Now: ${METRIC}", _now()
    yield "Trend", _trend()
    yield "Retrieval or generation", _quadrants()
    yield "Wrong answers and claims", (_claims(), _results(), *source.wrong_answers())
    yield "By model, prompt version, service and tenant", [*map(_by, DIMENSIONS)]
    yield "Cost, coverage and health", _running()
    yield "Judge drift and alerts", _drift()


def _now() -> Panels:
    """Return the numbers over the time range, each beside what it is made of."""
    ends = "The middle number is the estimate, the others are the ends of its 95 % interval."
    mean = _three(MEAN, RANGE)
    rate = _three(PASS_RATE, RANGE)
    kish = f"{_weights(RANGE)} ^ 2 / {Amount(metric=WEIGHT_SQUARED, matchers=(ONE_METRIC,), window=RANGE)}"
    behind = [
        Ask(expr=judged(window=RANGE), name="judged"),
        Ask(expr=kish, name="worth"),
        Ask(expr=f"{_amount(UNWEIGHTED, RANGE, ONE_METRIC)} or vector(0)", name="left out"),
    ]
    return (
        number_panel(
            f"Mean of ${METRIC}", f"Hájek mean over all traffic. {ends}", mean, unit=_SHARE, width=7
        ),
        number_panel("Pass rate", f"Share of all traffic that passes. {ends}", rate, unit=_SHARE, width=7),
        number_panel(
            "Scores behind these",
            "Judged: scores in the time range. Worth: as many evenly sampled ones (Kish). Left out: scores of"
            " unknown sampling probability, which no estimate has.",
            behind,
            width=6,
        ),
        number_panel(
            "No score",
            "Share of results that are no score: skipped and failed ones. No mean has them.",
            [Ask(expr=_share(_unscored(RANGE), _amount(RESULTS, RANGE, ONE_METRIC)))],
            unit=_SHARE,
        ),
    )


def _three(estimate: Estimate, window: str) -> Sequence[Ask]:
    return (
        Ask(expr=estimate.end("-", window=window), name=_LOW),
        Ask(expr=estimate.value(window=window), name=_MEAN),
        Ask(expr=estimate.end("+", window=window), name=_HIGH),
    )


def _weights(window: str) -> str:
    return str(Amount(metric=WEIGHTED, part="count", matchers=(ONE_METRIC,), window=window))


def _amount(metric: ScoreMetric, window: str, *matchers: str, by: Sequence[str] = ()) -> str:
    return str(Amount(metric=metric, window=window, matchers=matchers, by=by))


def _share(part: str, whole: str) -> str:
    """Return a share: 0 where there is no such part, and nothing of nothing."""
    return f"({part} or vector(0)) / ({whole} > 0)"


def _unscored(window: str) -> str:
    labels = "|".join((Label.SKIPPED, Label.ERROR))
    return _amount(RESULTS, window, ONE_METRIC, f'{label(semconv.EVALUATION_LABEL)}=~"{labels}"')


def _trend() -> Panels:
    window = "Each point is about the last $window."
    buckets = Amount(metric=SCORE, part="bucket", matchers=(ONE_METRIC,), by=("le",))
    weighed = Amount(metric=WEIGHTED, part="bucket", matchers=(ONE_METRIC,), by=("le",))
    quantiles = [
        Ask(expr=f"histogram_quantile(0.5, {buckets})", name="median", exemplars=True),
        Ask(expr=f"histogram_quantile(0.1, {weighed})", name="worst tenth"),
    ]
    dots = "A dot is a judged answer: its link opens the trace."
    mean = lines_panel(
        f"Mean of ${METRIC}", f"With its 95 % interval. {window}", _three(MEAN, "$window"), unit=_SHARE
    )
    rate = lines_panel(
        "Pass rate", f"With its 95 % interval. {window}", _three(PASS_RATE, "$window"), unit=_SHARE
    )
    return (
        banded(mean, low=_LOW, high=_HIGH),
        banded(rate, low=_LOW, high=_HIGH),
        heat_panel(
            "Scores of all traffic",
            f"Each judged answer counts for those that it represents. {dots}",
            Ask(expr=str(replace(weighed, window="$__rate_interval")), exemplars=True),
        ),
        lines_panel("Single answers", f"{dots} The lines: {window.lower()}", quantiles, unit=_SHARE),
    )


_QUADRANTS: Final[Mapping[Diagnosis, tuple[str, str]]] = {
    Diagnosis.RETRIEVAL_NOISE: ("Retrieval noise", "wrong chunks, faithful answer"),
    Diagnosis.HEALTHY: ("Healthy", "right chunks, faithful answer"),
    Diagnosis.RETRIEVAL_FAILURE: ("Retrieval failure", "wrong chunks, unfaithful answer"),
    Diagnosis.GENERATION_PROBLEM: ("Generation problem", "right chunks, unfaithful answer"),
}
"""In the order of reading: up is faithful, right has precise chunks."""


def _quadrants() -> Panels:
    return [*map(_quadrant, _QUADRANTS)]


def _quadrant(diagnosis: Diagnosis) -> Builder[dashboard.Panel]:
    title, text = _QUADRANTS[diagnosis]
    one = _amount(QUADRANT, RANGE, f'{label(semconv.DIAGNOSIS)}="{diagnosis}"')
    share = Ask(expr=_share(one, _amount(QUADRANT, RANGE)))
    said = f"{text.capitalize()}: share of the traffic that has both chunk_precision and faithfulness."
    return number_panel(f"{title}: {text}", said, [share], unit=_SHARE, width=12)


def _claims() -> Builder[dashboard.Panel]:
    verdict = semconv.CLAIM_VERDICT
    ask = Ask(expr=_amount(CLAIMS, "$window", by=(verdict,)), name=f"{{{{{label(verdict)}}}}}")
    return lines_panel(
        "Claims by verdict", "Claims of judged answers in the last $window.", [ask], stacked=True
    )


def _results() -> Builder[dashboard.Panel]:
    by = (semconv.EVALUATION_LABEL, REASON)
    name = " ".join(f"{{{{{label(attribute)}}}}}" for attribute in by)
    ask = Ask(expr=_amount(RESULTS, "$window", ONE_METRIC, by=by), name=name)
    return lines_panel(
        "Results by label and reason",
        f"Results of ${METRIC} in the last $window: a skipped or failed one is no score.",
        [ask],
        stacked=True,
    )


def _by(dimension: Dimension) -> table.Panel:
    """Return means and pass rates by one dimension, with the scores that they are made of."""
    by = (dimension.attribute,)
    asks = [
        Ask(expr=MEAN.value(by=by, window=RANGE), name="mean"),
        Ask(expr=PASS_RATE.value(by=by, window=RANGE), name="pass rate"),
        Ask(expr=judged(by=by, window=RANGE), name="scores"),
    ]
    title = f"${METRIC} by {dimension.key.replace('_', ' ')}"
    found = joined_table(title, "`other` has all values beyond the bound of telemetry.scores_by.", asks)
    return found.override_by_name(
        label(dimension.attribute), properties(displayName=dimension.key.replace("_", " "))
    )


def _running() -> Panels:
    money = [
        Ask(expr=_amount(COST, "$window"), name="US dollars"),
        Ask(expr=_amount(UNPRICED, "$window"), name="answers of unknown cost"),
    ]
    scored, chosen = (
        f"sum({gauge(f'ragtrace.evaluation.{part}', ONE_METRIC)})" for part in ("judged", "chosen")
    )
    coverage = [Ask(expr=f"{scored} / ({chosen} > 0)")]  # of all collectors together
    parts = [Ask(expr=scored, name="scored"), Ask(expr=chosen, name="chosen")]
    states = Ask(
        expr=f"sum by (state) (max by (job, state, reason) ({gauge('ragtrace.answers')}))", name="{{state}}"
    )
    health = [
        Ask(expr=f"min({gauge('ragtrace.collector.ready')})", name="ready"),
        Ask(expr=f"max({gauge('ragtrace.judge.stopped')})", name="judge stopped"),
        Ask(expr=f"max({gauge('ragtrace.answers.oldest_pending')})", name="oldest pending, s"),
    ]
    return (
        number_panel(
            f"Coverage of ${METRIC}", "Scored share of the answers that were chosen.", coverage, unit=_SHARE
        ),
        number_panel(
            "Coverage is of",
            "Answers of the last ten minutes: scored ones, and those chosen to be judged.",
            parts,
            width=8,
        ),
        number_panel("Collector", "1 while it takes spans; 1 while nothing is judged.", health, width=12),
        lines_panel("Cost of the judge", "In the last $window.", money).override_by_name(
            money[0].name, properties(unit="currencyUSD")
        ),
        lines_panel("Answers by state", "In the collector's ledger.", [states], stacked=True),
    )


def _drift() -> Panels:
    name = label(semconv.EVALUATION_NAME)
    anchors = [
        Ask(expr=f"avg by ({name}) ({gauge('ragtrace.drift.score')})", name=f"mean of {{{{{name}}}}}"),
        Ask(expr=f"avg({gauge('ragtrace.drift.agreement')})", name="agreement with known labels"),
    ]
    changes = [
        Ask(expr=f"max({gauge('ragtrace.drift.detected')})", name="judge drift"),
        Ask(expr=f"{MODEL_CHANGES} > bool 0", name="model of the judge"),
    ]
    return (
        lines_panel(
            "Anchors: the same answers, judged again and again",
            "If these lines move, the judge changed, not the system. Agreement: share of labels met.",
            anchors,
            unit=_SHARE,
        ),
        states_panel(
            "Judge drift",
            "When drift was detected, or the judge answered as another model.",
            changes,
            {"0": ("same", "green"), "1": ("changed", "orange")},
        ),
        alerts_panel("Alerts of Prometheus and Grafana", "Those that fire, as for missed objectives."),
    )
