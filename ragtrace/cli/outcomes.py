"""Outcomes for people: a row a record and metric, the failing claims below it, and a summary that adds up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ragtrace.cli.terminal import by_kind, many, one_line
from ragtrace.model import (
    Evaluation,
    Label,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    RagRecord,
    Verdict,
    VerdictLabel,
)
from ragtrace.ports import Metric

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["OutcomeTable", "Tally"]

_LABEL_STYLE = {Label.PASS: "green", Label.FAIL: "bold red", Label.ERROR: "bold yellow", Label.SKIPPED: "dim"}
_FAILING = (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED)
_SCORE_WIDTH, _LABEL_WIDTH, _INDENT = 5, 7, 2
_NARROWEST_ID, _OTHERS_WIDTH = 8, 38


class OutcomeTable:
    """A table that is printed row by row, so that it needs no more memory than one row."""

    def __init__(
        self, console: Console, *, metrics: Sequence[Metric], id_title: str = "id", id_width: int = 26
    ) -> None:
        self._console = console
        self._names_metrics = len(metrics) > 1
        self._id_title = id_title
        self._id_width = min(id_width, max(_NARROWEST_ID, console.width - _OTHERS_WIDTH))
        self._has_header = False

    def print_evaluation(self, record: RagRecord, evaluation: Evaluation) -> None:
        """Print what each metric found about the record; above the first, the names of the columns."""
        if not self._has_header:
            self._print_header()
        for outcome in evaluation.outcomes:
            shown_id = record.target.trace_id if record.target else record.id
            self._console.print(self._outcome(shown_id, outcome))
            for verdict in _failing(outcome):
                self._console.print(_claim(verdict))

    def _print_header(self) -> None:
        self._console.print(self._row(self._id_title, "score", "label", "", "explanation"), style="bold")
        self._has_header = True

    def _outcome(self, record_id: str, outcome: MetricOutcome) -> Table:
        named = f"{outcome.metric}: " if self._names_metrics else ""
        return self._row(
            one_line(record_id),
            _score(outcome),
            str(outcome.label),
            _LABEL_STYLE[outcome.label],
            one_line(named + _explanation(outcome)),
        )

    def _row(self, record_id: str, score: str, label: str, style: str, explanation: str) -> Table:
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(width=self._id_width, overflow="fold")
        grid.add_column(width=_SCORE_WIDTH, justify="right")
        grid.add_column(width=_LABEL_WIDTH)
        grid.add_column(ratio=1, overflow="fold")
        grid.add_row(Text(record_id), score, Text(label, style=style), Text(explanation))
        return grid


_CLAIM_LABELS = (
    VerdictLabel.SUPPORTED,
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.UNJUDGED,
)


@dataclass(slots=True, kw_only=True)
class Tally:
    """What became of the records under one metric. Its numbers add up to the records seen."""

    metric: str
    records: int = 0
    score_sum: float = 0.0
    labels: Counter[Label] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    claims: Counter[VerdictLabel] = field(default_factory=Counter)
    calls: int = 0

    @property
    def scored(self) -> int:
        """The denominator of the mean."""
        return self.labels[Label.PASS] + self.labels[Label.FAIL]

    @property
    def mean(self) -> float | None:
        """The mean of the scores there are; ``None`` where there are none."""
        return self.score_sum / self.scored if self.scored else None

    def add(self, outcome: MetricOutcome) -> None:
        """Count one outcome."""
        self.records += 1
        self.labels[outcome.label] += 1
        self.calls += outcome.usage.calls
        if isinstance(outcome, MetricFailure):
            self.errors[outcome.error_type] += 1
            return
        self.claims.update(verdict.label for verdict in outcome.verdicts)
        if outcome.score is None:
            self.skipped[str(outcome.skip_reason)] += 1
        else:
            self.score_sum += outcome.score

    def lines(self) -> Iterator[str]:
        """Say it in words, every number with what it is a part of."""
        yield f"{self.metric}: {many(self.records, 'record')}"
        yield (
            f"  scored   {self.scored} (pass {self.labels[Label.PASS]}, fail {self.labels[Label.FAIL]})"
            + (f", mean score {self.mean:.2f} over these {self.scored}" if self.mean is not None else "")
        )
        yield f"  skipped  {by_kind(self.skipped)}"
        yield f"  errors   {by_kind(self.errors)}"
        if total := self.claims.total():
            parts = ", ".join(f"{label} {self.claims[label]}" for label in _CLAIM_LABELS)
            yield f"  claims   {total} ({parts})"
        if unjudged := self.claims[VerdictLabel.UNJUDGED]:
            yield f"           {many(unjudged, 'unjudged claim')} stand in no score"
        yield f"  calls    {self.calls} to the judge"


def _score(outcome: MetricOutcome) -> str:
    if isinstance(outcome, MetricResult) and outcome.score is not None:
        return f"{outcome.score:.2f}"
    return "-"


def _explanation(outcome: MetricOutcome) -> str:
    if isinstance(outcome, MetricFailure):
        return f"{outcome.error_type}: {outcome.message}"
    if outcome.skip_reason is not None:
        return f"{outcome.skip_reason}: {outcome.explanation}"
    return outcome.explanation


def _failing(outcome: MetricOutcome) -> list[Verdict]:
    if isinstance(outcome, MetricFailure):
        return []
    return [verdict for label in _FAILING for verdict in outcome.verdicts if verdict.label is label]


def _claim(verdict: Verdict) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(width=_INDENT)
    grid.add_column(width=len(VerdictLabel.CONTRADICTED))
    grid.add_column(ratio=1, overflow="fold")
    grid.add_row("", Text(str(verdict.label), style="red"), Text(one_line(verdict.claim.text)))
    for line in _evidence(verdict):
        grid.add_row("", "", Text(line, style="dim"))
    return grid


def _evidence(verdict: Verdict) -> Iterator[str]:
    chunks = ", ".join(one_line(each) for each in verdict.chunk_ids)
    if verdict.quote is not None:
        yield f"{chunks}: “{one_line(verdict.quote)}”"
    elif chunks:
        yield f"{chunks} (without a quote that could be found there)"
    if verdict.reason:
        yield one_line(verdict.reason)
