"""What places of judged answers are asked and return: filters, pages and sums without
content, and one answer opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.errors import ReadError
from ragtrace.model import JudgedAnswer, Label, RagRecord, VerdictLabel
from ragtrace.stats import WeightedMean
from ragtrace.traces.trace import Span, Trace


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


VERDICTS: Final = tuple(each for each in VerdictLabel if each not in (VerdictLabel.MET, VerdictLabel.NOT_MET))
"""The verdicts on claims and chunks. A criterion is a metric: its label is searched for."""


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
    """At least one claim (or chunk) has this one of `VERDICTS`."""
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


class AnswerGone(ReadError):
    """The place was read, and it has no such answer (any more). The message is a sentence for people."""


class AnswerDamaged(ReadError):
    """The collector's own store has it and cannot read it. The message is a sentence for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerVersion:
    """One evaluation of an answer, read back from its carrier or from a report."""

    judged: JudgedAnswer
    """The record as it is today, with this evaluation; ``judged.carrier_span_id`` names the carrier."""
    evaluation_id: str = ""
    """The carrier's span id; in hold mode, which has no carrier, the id that it would have."""
    carrier: Span | None = None
    """The raw carrier: the answer span itself in hold mode; ``None`` if it comes from a report."""
    is_valid: bool = True
    """No other evaluation supersedes it."""
    notices: tuple[str, ...] = ()
    """Sentences: claims left out for room, a newer schema, a record that changed since it was judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedAnswer:
    """An answer with its content."""

    key: AnswerKey
    record: RagRecord
    versions: tuple[AnswerVersion, ...]
    """Valid ones first, then the newest first; never empty."""
    trace: Trace | None
    """The whole trace; ``None`` if it comes from a report."""
    read_from: str
    """Kind and address of the place, without secrets: ``jaeger:http://localhost:16686``."""
    feedback: tuple[Span, ...] = ()
    """Spans of feedback and of reviews on this answer."""
    notices: tuple[str, ...] = ()
    """Sentences about the whole answer: a record that can no longer be read, a place that keeps less."""


class AnswerSource(Protocol):
    """Opens answers where their content is."""

    @property
    def name(self) -> str:
        """Kind and address, without secrets."""
        ...

    async def open(self, key: AnswerKey) -> OpenedAnswer:
        """Return the answer with its content.

        Raises:
            AnswerGone: the place has it no more, or not yet.
            ReadError: the place could not be read.
        """
        ...

    async def aclose(self) -> None:
        """Release sockets and files."""
        ...
