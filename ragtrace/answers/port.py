"""The port of an index of judged answers: filters, pages and sums over rows without content."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from ragtrace.answers.sessions import SessionSummary
from ragtrace.answers.summary import AnswerKey, AnswerSummary
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


class AnswerIndex(Protocol):
    """Searches judged answers. Only the valid evaluation of an answer counts, not those it supersedes.

    **Errors.** Every method raises ReadError if the index cannot be read, and InputError if a cursor is
    not one of this filter.
    """

    async def page(
        self, chosen: AnswerFilter, *, sort: SortBy = SortBy.NEWEST, after: str | None = None, limit: int = 50
    ) -> AnswerPage:
        """Return a page of a list. ``chosen.text`` is ignored: the index has no text."""
        ...

    def every(self, chosen: AnswerFilter, *, sort: SortBy = SortBy.NEWEST) -> AsyncIterator[AnswerSummary]:
        """Yield all answers of a list, for an export."""
        ...

    async def arrivals(
        self, chosen: AnswerFilter, *, after: frozenset[int] | None = None, limit: int = 500
    ) -> Arrivals:
        """Return the valid evaluations that came after a position; without one, only the position now.

        An evaluation that is written again does not come again.
        """
        ...

    async def versions(self, key: AnswerKey) -> Sequence[AnswerSummary]:
        """Return all evaluations of an answer, the valid one first; empty if it is not known."""
        ...

    async def session(self, session: str, *, tenant: str | None, limit: int = 100) -> Sequence[AnswerSummary]:
        """Return the answers of a session in the order of time."""
        ...

    async def sessions(
        self, *, tenant: str | None, label: Label | None = None, after: str | None = None, limit: int = 50
    ) -> SessionPage:
        """Return a page of the sessions of answers, the newest answer first.

        With a label, they are those that were judged so as a whole, the newest verdict first.
        """
        ...

    async def judged_sessions(self, session: str, *, tenant: str | None) -> Sequence[SessionSummary]:
        """Return the judged sessions under an id, the newest first: of several tenants, or far apart."""
        ...

    async def metrics(self, scope: TrafficScope) -> Sequence[str]:
        """Return the names of the metrics that occur, ``faithfulness`` first."""
        ...

    async def trends(
        self, metrics: Sequence[str], scope: TrafficScope, *, period_ns: int
    ) -> Sequence[MetricTrend]:
        """Return metrics over time, in their order. Periods are multiples of an hour, counted from 1970."""
        ...

    async def sums(self, scope: TrafficScope) -> Sums:
        """Return a scope in numbers."""
        ...

    async def quadrant(self, scope: TrafficScope) -> Quadrant | None:
        """Return the quadrant; ``None`` if no answer has both metrics."""
        ...

    async def values(self, dimension: str, scope: TrafficScope, *, limit: int = 100) -> Mapping[str, int]:
        """Return the values of ``service``, ``model``, ``prompt_version``, ``tenant`` or ``blame``.

        They come with their number of answers, the most frequent first.

        Raises:
            ValueError: there is no such dimension.
        """
        ...

    async def releases(self, scope: TrafficScope) -> Sequence[Release]:
        """Return the releases of a scope, in order of time."""
        ...

    async def newest_ns(self, scope: TrafficScope) -> int | None:
        """Return the time of the newest answer; ``None`` without any."""
        ...

    async def random_order(
        self, scope: TrafficScope, *, after: float, limit: int
    ) -> Sequence[tuple[float, AnswerSummary]]:
        """Return the next answers in random order, which does not depend on when they came.

        Each comes with its position in [0, 1). ``after`` is the last known position, or -1 to begin. Fewer
        than ``limit`` come only at the end.
        """
        ...
