"""Alert rules over the score metrics, as files of Prometheus and of Grafana's alerting."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction
from typing import Any, Final, NamedTuple

import yaml

from ragtrace import semconv
from ragtrace.errors import InputError
from ragtrace.metrics.registry import OWN_PROFILE, metric_named
from ragtrace.model import Direction
from ragtrace.plugins import Address

RUNBOOK: Final = "https://github.com/ragtrace/ragtrace/blob/main/docs/runbook.md"
_WEIGHTED: Final = "ragtrace_evaluation_score_weighted"
"""Counts each judged answer as the answers of the whole traffic that it represents."""
_RAW: Final = "ragtrace_evaluation_score"
_UNJUDGED: Final = timedelta(hours=6)
_FAST, _SLOW = timedelta(minutes=1), timedelta(minutes=10)
_UNITS: Final = (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("m", timedelta(minutes=1)))
_BUCKETS: Final = 20
"""The histograms of scores have bounds at every twentieth."""
_MOST_CLAIMS: Final = 12
"""Of a typical answer: a score is a share of so many claims."""
_LARGEST_SHARE: Final = 0.9
"""A burn rate whose share of failing answers lies beyond could never be seen, or hardly."""
_TABLE: Final = (
    (0.02, timedelta(hours=1), timedelta(minutes=5), True, 1),
    (0.05, timedelta(hours=6), timedelta(minutes=30), True, 2),
    (0.10, timedelta(days=3), timedelta(hours=6), False, 10),
)
"""Share of the budget, windows, urgency, and by how much more answers the longer window needs.

Of the first four, Google's SRE Workbook, chapter 5, table 5-8: with a window of 30 days these are the burn
rates 14.4, 6 and 1. The last is ours: a rate near 1 is told from 1 with more answers only.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """This share of a service's answers is good."""

    name: str
    metric: str
    """As the metric's scores are named, or its address in code."""
    service: str
    tenant: str | None = None
    at_least: float | None = None
    """The lowest good score. Without a bound, an answer is good if the metric's own rule passes it."""
    at_most: float | None = None
    """The highest good score, of a metric whose low scores are the good ones."""
    share: float
    """The share of answers that shall be good."""
    window: timedelta
    fewest_answers: int
    """Judged in the longer window of the fastest burn rate; fewer say nothing."""

    @property
    def budget(self) -> float:
        """The share of answers that may fail: what is called the error budget."""
        return round(1 - self.share, 9)


class _BurnRate(NamedTuple):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """One alert."""

    name: str
    expression: str
    """In PromQL: it fires while there is a value."""
    lasting: timedelta = timedelta()
    severity: str
    labels: Mapping[str, str] = field(default_factory=dict)
    summary: str
    description: str


class RecordingRule(NamedTuple):
    """A value that Prometheus works out once for all who ask."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleGroup:
    """Rules that are worked out together."""

    name: str
    interval: timedelta = _FAST
    labels: Mapping[str, str] = field(default_factory=dict)
    """What each rule is marked with, for routes and silences."""
    recordings: Sequence[RecordingRule] = ()
    alerts: Sequence[AlertRule] = ()


def _written(window: timedelta) -> str:
    """Write a duration as Prometheus does: ``5m``, ``3d``."""
    for unit, length in _UNITS:
        if not window % length:
            return f"{window // length}{unit}"
    return f"{max(1, int(window.total_seconds()))}s"


def _growth(series: str, window: timedelta) -> str:
    """Return how much a counter grew in a window. One that is born in it, above zero, counts as a whole."""
    wide = _written(window)
    return f"({series} unless {series} offset {wide} or increase({series}[{wide}]))"


JUDGING: Final = RuleGroup(
    name="ragtrace-judging",
    alerts=(
        AlertRule(
            name="RagtraceCoverageLow",
            expression="ragtrace_evaluation_coverage < 0.8",
            lasting=timedelta(minutes=3),
            severity="warning",
            summary="{{ $value | humanizePercentage }} of the answers that {{ $labels.instance }} chose have"
            " a score of {{ $labels.gen_ai_evaluation_name }}",
            description="The others failed, expired or wait: shares of good answers leave them out.",
        ),
        AlertRule(
            name="RagtraceJudgeDrifts",
            expression="max without (gen_ai_evaluation_name) (ragtrace_drift_detected) == 1",
            severity="warning",
            summary="the judge of {{ $labels.instance }} says something else about the anchors than before",
            description="A trend that moved at that time may be the judge's, not the application's.",
        ),
        AlertRule(
            name="RagtraceJudgeModelChanged",
            expression=f"{_growth('ragtrace_judge_model_changes_total', timedelta(hours=1))} > 0",
            severity="info",
            summary="the model that answers for the judge of {{ $labels.instance }} is another one now",
            description="The name that was asked for stayed the same.",
        ),
    ),
)
"""About the judging itself, whatever the metric."""


class ObjectiveRules:
    """What watches one objective, by how fast its error budget burns.

    Raises:
        InputError: there is no such metric, or Prometheus cannot tell which of its scores are good.
    """

    def __init__(self, objective: Objective) -> None:
        metric = objective.metric
        name, _, profile = (metric, "", "") if Address.parse(metric) else metric.partition(".")
        found = metric_named(name, profile=profile or OWN_PROFILE)
        self.metric = f"{found.name}.{profile}" if profile else found.name
        """As its scores are named."""
        self.objective = objective
        self._bound, told = _failing_by(objective, found.direction, self.metric)
        self.pairs = tuple(_burn_rates(objective))
        self.notes = tuple(filter(None, (told, _capped(objective, self.pairs))))
        """What the rules cannot see, a sentence each."""

    def groups(self, *, recorded: bool) -> Iterator[RuleGroup]:
        """Yield the rules; the alerts ask recording rules, or the collector's own series."""
        objective = self.objective
        about = {"service": objective.service, "tenant": objective.tenant}
        labels = {"slo": objective.name, "metric": self.metric}
        labels |= {key: value for key, value in about.items() if value is not None}
        name = f"ragtrace-slo-{objective.name}"
        windows = sorted({window for pair in self.pairs for window in (pair.short, pair.long)})
        counted = sorted({pair.long for pair in self.pairs} | {_UNJUDGED})
        recordings = (
            *(RecordingRule(_recorded("failing", each), self._failing(each)) for each in windows),
            *(RecordingRule(_recorded("judged", each), self._judged(each)) for each in counted),
        )
        alerts = (*(self._burning(pair, recorded) for pair in self.pairs), self._unjudged(recorded))
        yield RuleGroup(name=name, labels=labels, recordings=recordings if recorded else (), alerts=alerts)
        if recorded:  # for what is left of the budget
            whole = RecordingRule(_recorded("failing", objective.window), self._failing(objective.window))
            yield RuleGroup(name=f"{name}-window", interval=_SLOW, labels=labels, recordings=(whole,))

    def _failing(self, window: timedelta) -> str:
        """Ask which share of the answers of a window failed, of all traffic: no value without answers."""
        every = self._count(_WEIGHTED, window)
        if self._bound is None:
            failed = self._count(_WEIGHTED, window, f'{_label(semconv.EVALUATION_LABEL)}="fail"')
            return f"(({failed} or 0 * {every}) / ({every} > 0))"
        le = '=~"0|0.0"' if not self._bound else f'="{float(self._bound):g}"'
        up_to = _growth(f"{_WEIGHTED}_bucket{{{self._selector()},le{le}}}", window)
        share = f"(sum{up_to} / ({every} > 0))"
        return share if self.objective.at_most is None else f"(1 - {share})"

    def _judged(self, window: timedelta) -> str:
        """Ask how many answers were judged in a window: the denominator that noise depends on."""
        return self._count(_RAW, window)

    def _count(self, name: str, window: timedelta, *more: str) -> str:
        return f"sum{_growth(f'{name}_count{{{self._selector(*more)}}}', window)}"

    def _selector(self, *more: str) -> str:
        named = {
            semconv.EVALUATION_NAME: self.metric,
            semconv.SERVICE_NAME: self.objective.service,
            semconv.TENANT: self.objective.tenant,
        }
        quoted = {key: json.dumps(value, ensure_ascii=False) for key, value in named.items() if value}
        return ",".join([*(f"{_label(key)}={value}" for key, value in quoted.items()), *more])

    def _asked(self, what: str, window: timedelta, recorded: bool) -> str:
        if recorded:
            return f"{_recorded(what, window)}{{slo={json.dumps(self.objective.name)}}}"
        return self._failing(window) if what == "failing" else self._judged(window)

    def _burning(self, pair: _BurnRate, recorded: bool) -> AlertRule:
        """Ask whether both windows fail too much.

        The shorter window ends the alert soon after the trouble. Without an answer in it, which is common
        where few are judged, it says nothing, and the longer one alone decides.
        """
        objective = self.objective
        long, short = (self._asked("failing", window, recorded) for window in (pair.long, pair.short))
        judged = self._asked("judged", pair.long, recorded)
        seen = (
            f"{pair.failing:.3g} of the answers in the last {_written(pair.long)} and {_written(pair.short)}"
        )
        told = (
            f"More than {seen} fail, of at least {pair.fewest} that were judged:"
            f" {pair.rate:.3g} times what uses up the error budget of {_written(objective.window)}."
        )
        return AlertRule(
            name="RagtraceSloBurnsFast" if pair.is_urgent else "RagtraceSloBurnsSlowly",
            expression=(
                f"({long} > {pair.failing:g})\n"
                f"and ({short} > {pair.failing:g} or {long} unless {short})\n"
                f"and ({judged} >= {pair.fewest})"
            ),
            severity="critical" if pair.is_urgent else "warning",
            labels={"long_window": _written(pair.long)},
            summary=(
                f"{objective.name}: {{{{ $value | humanizePercentage }}}} of the answers of the last"
                f" {_written(pair.long)} fail {self.metric}, and {100 * objective.budget:.3g} % may"
            ),
            description=" ".join((told, *self.notes)),
        )

    def _unjudged(self, recorded: bool) -> AlertRule:
        judged = self._asked("judged", _UNJUDGED, recorded)
        hours = _written(_UNJUDGED)
        return AlertRule(
            name="RagtraceSloUnjudged",
            expression=f"absent({judged} > 0)",
            lasting=timedelta(hours=1),
            severity="info",
            summary=f"{self.objective.name}: no answer was judged by {self.metric} in the last {hours}",
            description="Nothing is known about the objective: this is neither good nor bad.",
        )


def prometheus_file(groups: Iterable[RuleGroup]) -> str:
    """Return a rule file of Prometheus: recording and alerting rules."""
    return _dumped({"groups": [_prometheus_group(group) for group in groups]})


def _prometheus_group(group: RuleGroup) -> dict[str, Any]:
    recordings = [
        {"record": rule.name, "expr": rule.expression, "labels": dict(group.labels)}
        for rule in group.recordings
    ]
    alerts = [
        {
            "alert": rule.name,
            "expr": rule.expression,
            **({"for": _written(rule.lasting)} if rule.lasting else {}),
            "labels": {"severity": rule.severity, **group.labels, **rule.labels},
            "annotations": _annotations(rule),
        }
        for rule in group.alerts
    ]
    return {"name": group.name, "interval": _written(group.interval), "rules": [*recordings, *alerts]}


def grafana_file(groups: Iterable[RuleGroup], *, datasource: str) -> str:
    """Return a provisioning file of Grafana's alerting, for a Prometheus data source by its ``uid``."""
    return _dumped({"apiVersion": 1, "groups": [_grafana_group(group, datasource) for group in groups]})


def _grafana_group(group: RuleGroup, datasource: str) -> dict[str, Any]:
    return {
        "orgId": 1,
        "name": group.name,
        "folder": "ragtrace",
        "interval": _written(group.interval),
        "rules": [_grafana_rule(rule, group, datasource) for rule in group.alerts],
    }


def _grafana_rule(rule: AlertRule, group: RuleGroup, datasource: str) -> dict[str, Any]:
    labels = {**group.labels, **rule.labels}
    title = " ".join(filter(None, (rule.name, labels.get("slo"), labels.get("long_window"))))
    query = {"refId": "A", "expr": rule.expression, "instant": True, "range": False}
    is_there = {"refId": "B", "type": "math", "expression": "is_number($A)"}  # a value of any size fires
    return {
        "uid": f"ragtrace-{hashlib.sha256(f'{group.name}/{title}'.encode()).hexdigest()[:16]}",
        "title": title,
        "condition": "B",
        "for": _written(rule.lasting) if rule.lasting else "0s",
        "noDataState": "OK",  # the expression has a value only while the alert fires
        "execErrState": "Error",
        "labels": {"severity": rule.severity, **labels},
        "annotations": {
            name: text.replace("$value", "$values.A.Value") for name, text in _annotations(rule).items()
        },
        "data": [
            {
                "refId": "A",
                "relativeTimeRange": {"from": 600, "to": 0},
                "datasourceUid": datasource,
                "model": query,
            },
            {
                "refId": "B",
                "relativeTimeRange": {"from": 0, "to": 0},
                "datasourceUid": "__expr__",
                "model": is_there,
            },
        ],
    }


def _annotations(rule: AlertRule) -> dict[str, str]:
    runbook_url = f"{RUNBOOK}#{rule.name.lower()}"
    return {"summary": rule.summary, "description": rule.description, "runbook_url": runbook_url}


def _failing_by(objective: Objective, direction: Direction, metric: str) -> tuple[Fraction | None, str]:
    """Return the bound of a bucket that parts failing scores from good ones, and what it gets wrong.

    A bucket includes its upper bound: "at most" is exact, and no bound means "at least". Then the one is
    chosen that is wrong about fewer scores. ``None``: what the metric's own rule labeled ``fail``.
    """
    is_lower_better = direction is Direction.LOWER_IS_BETTER
    if objective.at_least is not None and is_lower_better:
        raise InputError(f"a low score of {metric} is the good one: write --at-most, the highest good score")
    if objective.at_most is not None and not is_lower_better:
        raise InputError(f"a high score of {metric} is the good one: write --at-least, the lowest good score")
    bound = objective.at_most if is_lower_better else objective.at_least
    if bound is None:
        return None, ""
    flag = "--at-most" if is_lower_better else "--at-least"
    if not 0 <= bound <= 1 or bound == (1 if is_lower_better else 0):
        every = "0 or more and below 1" if is_lower_better else "above 0 and up to 1"
        raise InputError(f"{flag} {bound:g}: scores of {metric} are from 0 to 1; write a number {every}")
    twentieth = round(bound * _BUCKETS)
    if abs(bound * _BUCKETS - twentieth) > 1e-9:
        lowest = 0 if is_lower_better else 1
        near = min(max(twentieth, lowest), lowest + _BUCKETS - 1) / _BUCKETS
        raise InputError(
            f"{flag} {bound:g}: Prometheus knows scores by twentieths: write {flag} {near:g}; or give the"
            f" metric in `evaluate.metrics` the `threshold: {bound:g}`, and leave {flag} out"
        )
    least, below = Fraction(twentieth, _BUCKETS), Fraction(twentieth - 1, _BUCKETS)
    if is_lower_better:
        return least, ""
    if _is_rarer(least, below):
        return least, f"A score of exactly {bound:g} counts as failing in these rules."
    return below, f"A score between {float(below):g} and {bound:g} counts as good in these rules."


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


def _burn_rates(objective: Objective) -> Iterator[_BurnRate]:
    budget = objective.budget
    for share, long, short, is_urgent, factor in _TABLE:
        rate = max(1.0, share * (objective.window / long))
        failing = min(rate * budget, max(_LARGEST_SHARE, budget))
        yield _BurnRate(
            long=long,
            short=short,
            rate=round(failing / budget, 4),
            failing=round(failing, 6),
            is_urgent=is_urgent,
            fewest=objective.fewest_answers * factor,
            is_capped=failing < rate * budget,
        )


def _capped(objective: Objective, pairs: Iterable[_BurnRate]) -> str:
    capped = [pair for pair in pairs if pair.is_capped]
    if not capped:
        return ""
    windows = " and ".join(_written(pair.long) for pair in capped)
    return (
        f"At an objective of {objective.share:g} the usual burn rate of {windows} could hardly be reached,"
        f" so the alert comes at {capped[0].failing:g} of the answers failing."
    )


def _recorded(what: str, window: timedelta) -> str:
    """Return the name of a recording rule, after Prometheus' convention ``level:metric:operation``."""
    operation = "ratio_increase" if what == "failing" else "increase"
    return f"slo:ragtrace_{what}:{operation}{_written(window)}"


def _label(key: str) -> str:
    return key.replace(".", "_")


class _Dumper(yaml.SafeDumper):
    """Writes repeated values out, and expressions of several lines as blocks."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _dumped(document: Mapping[str, Any]) -> str:
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return f"# Written by `ragtrace rules`. docs/monitor.md explains it.\n{text}"
