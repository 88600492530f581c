"""What reports are made of: a run's description, counts of outcomes, and templates of pages."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING

from ragtrace import __version__
from ragtrace.model import Direction, Label, MetricFailure, MetricOutcome, VerdictLabel

if TYPE_CHECKING:
    from jinja2 import Template


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """The description of a run, known before it begins."""

    source: str
    """The source of the answers, without secrets."""
    judge: str
    metrics: tuple[str, ...]
    """The metrics with their pass rules."""
    began_at_ns: int
    """Unix time in nanoseconds."""
    selection: Mapping[str, str] = field(default_factory=dict)
    """The options of the run."""
    second_judge: str | None = None
    prices_as_of: str = ""
    """The date of the prices."""
    trace_url: str | None = None
    """The URL template of a trace's page, with ``{trace_id}`` and ``{span_id}``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedAnswers:
    """Answers or traces that reports only count."""

    what: str
    """``sampled out``, ``already evaluated``, …"""
    number: int
    unit: str
    """``answer``, ``trace``, ``carrier``, ``window``."""
    why: str
    """A one-sentence description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The end of a run, with the skipped answers."""

    cut_short: str | None = None
    """Why it ended early, as a clause: ``it was stopped``."""
    left_out: tuple[SkippedAnswers, ...] = ()


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
        return round((self.mean if is_higher_better else 1 - self.mean) - score, 9) >= 0

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


def open_template(name: str, **filters: Callable[..., str]) -> Template:
    """Open a template by its path in the package; values are escaped.

    Raises:
        ModuleNotFoundError: Jinja2 is not installed.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    style = files("ragtrace.reports").joinpath("page.css").read_text("utf-8")
    environment = Environment(
        loader=PackageLoader("ragtrace", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    environment.globals |= {
        "style": style,
        "style_sha256": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        "ragtrace_version": __version__,
    }
    return environment.get_template(name)
