"""What an index of judged answers is asked and returns: filters, pages and sums of rows without content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ragtrace.answers.summary import AnswerSummary
from ragtrace.model import Label, VerdictLabel
from ragtrace.stats import WeightedMean


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficScope:
    """Which part of the traffic: what overviews and lists can both be narrowed to."""

    tenant: str | None = None
    """``None`` for all tenants; a reader with a tenant sees only that one."""
    since_ns: int | None = None
    until_ns: int | None = None
    """Exclusive."""
    service: str | None = None
    model: str | None = None
    prompt_version: str | None = None


class SortBy(StrEnum):
    """The order of a list."""

    NEWEST = "newest"
    OLDEST = "oldest"
    WORST = "worst"
    """By the score of ``AnswerFilter.metric``, the worst first; answers without a score are left out."""
    BEST = "best"
    COST = "cost"
    """The most expensive first."""
    DOUBT = "doubt"
    """Those first whose evaluations disagree, then by `AnswerSummary.doubt`."""
    SUSPICION = "suspicion"
    """The most suspicious first; answers without suspicion are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFilter:
    """Which answers: all conditions that are set must hold."""

    scope: TrafficScope = TrafficScope()
    metric: str | None = None
    """The metric that score and label are about; ``None`` for ``faithfulness``."""
    min_score: float | None = None
    max_score: float | None = None
    label: Label | None = None
    """Of the metric if one is named, else of the answer."""
    verdict: VerdictLabel | None = None
    """At least one claim (or chunk) has this verdict."""
    blame: str | None = None
    judge: str | None = None
    """``provider:model``."""
    session: str | None = None
    feedback: str | None = None
    """``up``, ``down``, ``any`` or ``none``."""
    trace_id: str | None = None
    """The trace, or how its id begins."""
    text: str | None = None
    """Words of the question or answer. The index has no text: a page that filters by it opens the answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPage:
    """One page of a list."""

    answers: tuple[AnswerSummary, ...]
    next: str | None
    """The cursor of the next page, for URLs; ``None`` at the end."""
    is_cut: bool = False
    """The search stopped after its time limit before the page was full: ``next`` goes on from there."""
    searched_to_ns: int | None = None
    """Where it stopped, if it was cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    """One metric in one period."""

    start_ns: int
    mean: WeightedMean | None
    """Of the scores, weighted by one over the sampling probability; ``None`` without a score."""
    passing: WeightedMean | None
    """The share that passes."""
    answers: int
    """Judged answers of the period, with and without a score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTrend:
    """One metric over time."""

    metric: str
    lower_is_better: bool
    whole: TrendPoint
    """The whole range at once."""
    points: tuple[TrendPoint, ...]
    """In order; periods without an answer are left out."""
    period_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quadrant:
    """Chunk precision by faithfulness: answers by whether each passes."""

    healthy: int
    generation_problem: int
    retrieval_noise: int
    retrieval_failure: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """A scope in numbers."""

    answers: int
    labels: Mapping[Label, int]
    verdicts: Mapping[VerdictLabel, int]
    """Claims by verdict."""
    blames: Mapping[str, int]
    reasons: Mapping[str, int]
    """Why answers were skipped or failed."""
    cost_usd: float
    unpriced: int
    """Answers of unknown cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """What came into an index since it was last asked."""

    answers: tuple[AnswerSummary, ...]
    """In the order in which they came, whenever the answers themselves were given."""
    position: frozenset[int]
    """Where to go on: the last rows that were there."""
    has_more: bool = False
    """More have come already."""


class SessionKey(NamedTuple):
    """Which session: its id, of a tenant."""

    session: str
    tenant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage:
    """One page of a list of sessions."""

    sessions: tuple[SessionKey, ...]
    next: str | None
    """The cursor of the next page, for URLs; ``None`` at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The first answer of a version of an application or of its prompt, which came after another one."""

    at_ns: int
    """The begin of its hour."""
    service: str
    dimension: str
    """``service_version`` or ``prompt_version``."""
    value: str
