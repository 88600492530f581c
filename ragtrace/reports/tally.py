"""Counts of one metric's outcomes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ragtrace.model import Direction, Label, MetricFailure, MetricOutcome, VerdictLabel


@dataclass(slots=True, kw_only=True)
class MetricTally:
    """Counts of one metric's outcomes, which add up to the number of records."""

    metric: str
    records: int = 0
    score_sum: float = 0.0
    labels: Counter[Label] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    claims: Counter[VerdictLabel] = field(default_factory=Counter)
    chunks: Counter[VerdictLabel] = field(default_factory=Counter)
    calls: int = 0
    """Usage of the metric's steps; metrics share steps."""
    direction: Direction = Direction.HIGHER_IS_BETTER
    pass_when: str | None = None
    """The pass rule, if it is known."""

    @property
    def scored(self) -> int:
        """The denominator of the mean."""
        return self.labels[Label.PASS] + self.labels[Label.FAIL]

    @property
    def mean(self) -> float | None:
        """The mean of the scores; ``None`` if there are none."""
        return self.score_sum / self.scored if self.scored else None

    def reaches(self, score: float) -> bool:
        """Return whether the mean is at least this good; if lower is better, at most 1 - score."""
        if self.mean is None:
            return False
        is_higher_better = self.direction is Direction.HIGHER_IS_BETTER
        return (self.mean if is_higher_better else 1 - self.mean) >= score

    def add(self, outcome: MetricOutcome) -> None:
        """Count one outcome."""
        self.records += 1
        self.labels[outcome.label] += 1
        self.calls += outcome.usage.calls
        if isinstance(outcome, MetricFailure):
            self.errors[outcome.error_type] += 1
            return
        self.direction = outcome.direction
        self.claims.update(verdict.label for verdict in outcome.verdicts)
        self.chunks.update(verdict.label for verdict in outcome.chunk_verdicts)
        if outcome.score is None:
            self.skipped[str(outcome.skip_reason)] += 1
        else:
            self.score_sum += outcome.score
