"""Alerts as values: what is asked, for how long, and what people read. Two formats are written from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from ragtrace_collector.alerts.objectives import BurnRate, burn_rates, failing_share, good_by
from ragtrace_collector.alerts.promql import SloQueries, WindowNames, recorded_name, written
from ragtrace_collector.config import CollectorConfig, SloConfig

RUNBOOK: Final = "https://github.com/ragtrace/ragtrace/blob/main/docs/runbook.md"
DRIFT_PAGE: Final = "https://github.com/ragtrace/ragtrace/blob/main/docs/drift.md"
_UNJUDGED: Final = timedelta(hours=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """One alert."""

    name: str
    expression: str
    """In PromQL: it fires while there is a value."""
    lasting: timedelta = timedelta()
    severity: str
    labels: dict[str, str] = field(default_factory=dict)
    summary: str
    description: str = ""

    @property
    def runbook_url(self) -> str:
        """Where people read what to do."""
        return f"{RUNBOOK}#{self.name.lower()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRule:
    """A value that Prometheus works out once for all who ask."""

    name: str
    expression: str
    labels: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SloRules:
    """What watches one objective."""

    slo: SloConfig
    queries: SloQueries
    notes: tuple[str, ...]
    """What the rules cannot see, a sentence each."""

    @classmethod
    def of(cls, slo: SloConfig, config: CollectorConfig) -> SloRules:
        """Choose the rules.

        Raises:
            ConfigError: Prometheus cannot tell which scores are good.
        """
        by = good_by(slo, config)
        return cls(slo=slo, queries=SloQueries(slo=slo, good_by=by), notes=tuple(_notes(slo, by.told)))

    @property
    def labels(self) -> dict[str, str]:
        """What each rule of the objective is marked with, for routes and silences."""
        return {"slo": self.slo.name, "metric": self.slo.metric, **self.slo.dimensions}

    def recordings(self) -> tuple[RecordingRule, ...]:
        """Return the shares and counts that its alerts compare."""
        pairs = burn_rates(self.slo)
        shares = sorted({window for pair in pairs for window in (pair.short, pair.long)})
        counts = sorted({pair.long for pair in pairs} | {_UNJUDGED})
        return (
            *(self._recording("failing", window, self.queries.failing(window)) for window in shares),
            *(self._recording("judged", window, self.queries.judged(window)) for window in counts),
        )

    def slow_recordings(self) -> tuple[RecordingRule, ...]:
        """Return what is worked out seldom: the share of the whole window, for what is left of its budget."""
        return (self._recording("failing", self.slo.window, self.queries.failing(self.slo.window)),)

    def _recording(self, what: str, window: timedelta, expression: str) -> RecordingRule:
        return RecordingRule(name=recorded_name(what, window), expression=expression, labels=self.labels)

    def alerts(self, *, recorded: bool) -> tuple[AlertRule, ...]:
        """Return its alerts; they ask recording rules, or Prometheus' own series."""
        names = WindowNames(queries=self.queries, recorded=recorded)
        burning = (self._burning(pair, names) for pair in burn_rates(self.slo))
        return (*burning, self._unjudged(names))

    def _burning(self, pair: BurnRate, names: WindowNames) -> AlertRule:
        slo, share = self.slo, failing_share(self.slo)
        seen = f"{pair.failing:.3g} of the answers in the last {written(pair.long)} and {written(pair.short)}"
        told = (
            f"More than {seen} fail, of at least {pair.fewest} that were judged:"
            f" {pair.rate:.3g} times what uses up the error budget of {written(slo.window)}."
        )
        return AlertRule(
            name="RagtraceSloBurnsFast" if pair.is_urgent else "RagtraceSloBurnsSlowly",
            expression=names.burning(pair),
            severity="critical" if pair.is_urgent else "warning",
            labels={**self.labels, "long_window": written(pair.long)},
            summary=(
                f"{slo.name}: {{{{ $value | humanizePercentage }}}} of the answers of the last"
                f" {written(pair.long)} fail {slo.metric}, and {100 * share:.3g} % may"
            ),
            description=" ".join((told, *(f"Note: {note}." for note in self.notes))),
        )

    def _unjudged(self, names: WindowNames) -> AlertRule:
        hours = written(_UNJUDGED)
        return AlertRule(
            name="RagtraceSloUnjudged",
            expression=f"absent({names.judged(_UNJUDGED)} > 0)",
            lasting=timedelta(hours=1),
            severity="info",
            labels=self.labels,
            summary=f"{self.slo.name}: no answer was judged by {self.slo.metric} in the last {hours}",
            description="Nothing is known about the objective: this is neither good nor bad.",
        )


def _notes(slo: SloConfig, told: str) -> Iterator[str]:
    if told:
        yield told
    capped = [pair for pair in burn_rates(slo) if pair.is_capped]
    if capped:
        windows = " and ".join(written(pair.long) for pair in capped)
        yield (
            f"at an objective of {slo.objective:g} the usual burn rate of {windows} could hardly be reached,"
            f" so the alert comes at {capped[0].failing:g} of the answers failing"
        )


EVALUATION_ALERTS: Final[Sequence[AlertRule]] = (
    AlertRule(
        name="RagtraceCoverageLow",
        expression="ragtrace_evaluation_coverage < 0.8",
        lasting=timedelta(hours=1),
        severity="warning",
        summary="{{ $labels.instance }} judged {{ $value | humanizePercentage }} of the answers it chose",
        description="The others failed, expired or wait: shares of good answers are of those judged only.",
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
        expression="increase(ragtrace_judge_model_changes_total[1h]) > 0",
        severity="info",
        summary="the model that answers for the judge of {{ $labels.instance }} is another one now",
        description="The name that was asked for stayed the same.",
    ),
)
"""About the judging itself, beside those of examples/deploy/prometheus/alerts.yml."""
