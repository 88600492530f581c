"""What became of records under one metric, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ragtrace.model import Direction, Label, MetricFailure, MetricOutcome, VerdictLabel


@dataclass(slots=True, kw_only=True)
class MetricTally:
    """What became of the records under one metric. Its numbers add up to the records seen."""

    metric: str
    records: int = 0
    score_sum: float = 0.0
    labels: Counter[Label] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    claims: Counter[VerdictLabel] = field(default_factory=Counter)
    chunks: Counter[VerdictLabel] = field(default_factory=Counter)
    calls: int = 0
    """Of the steps this metric rests on: metrics share steps."""
    direction: Direction = Direction.HIGHER_IS_BETTER
    pass_when: str | None = None
    """What must hold for a pass, where it is known."""

    @property
    def scored(self) -> int:
        """The denominator of the mean."""
        return self.labels[Label.PASS] + self.labels[Label.FAIL]

    @property
    def mean(self) -> float | None:
        """The mean of the scores there are; ``None`` where there are none."""
        return self.score_sum / self.scored if self.scored else None

    def reaches(self, score: float) -> bool:
        """Say whether the mean is at least this good: where lower is better, at most 1 - score."""
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
