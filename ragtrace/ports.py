"""The ports: what the library asks of the world.

Adapters stand in ``judge/``, ``backends/`` and the collector.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from ragtrace.model import Direction, JudgeIdentity, MetricOutcome, RagRecord, Usage
from ragtrace.traces.trace import Trace

if TYPE_CHECKING:
    from ragtrace.metrics.steps import Steps

__all__ = [
    "Embedder",
    "Embeddings",
    "FreeText",
    "Judge",
    "JudgeReply",
    "JudgeRequest",
    "Metric",
    "SpanSink",
    "YesProbability",
]

ReplyT = TypeVar("ReplyT", bound=BaseModel)


class FreeText(BaseModel):
    """A reply type: what the model wrote, as it is. Asked for without any response format but the request's
    ``sampling``; a judge that computes raises ``JudgeUnable``."""

    model_config = ConfigDict(frozen=True)

    text: str
    cut_off: bool = False
    """It ended at the token limit."""


class YesProbability(BaseModel):
    """A reply type: the probability that the model says *yes* to the request's question, read off the
    log-probabilities of its first token. A judge that has none raises ``JudgeUnable``."""

    model_config = ConfigDict(frozen=True)

    p_yes: float = Field(ge=0, le=1)
    """P(yes) / (P(yes) + P(no)), over all spellings of the two among the likeliest tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParameters:
    """How a model is to sample, where a request prescribes it: another tool's habits."""

    temperature: float | None = None
    top_p: float | None = None
    json_object: bool = False
    """Ask for ``response_format: {"type": "json_object"}``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRequest(Generic[ReplyT]):
    """One question to a judge: the same thing as a prompt, for language models, and as typed inputs, for
    judges that compute.

    The reply types `FreeText` and `YesProbability` ask in another form than JSON.
    """

    step: str
    """``extract``, ``verify``, ``chunks``, …: names the step in logs, caches and scripts."""
    system: str
    """Instructions. The static part stands first, so that providers can cache it."""
    user: str
    """The material. Text under judgment is fenced and marked as data."""
    reply_type: type[ReplyT]
    """The form of the answer; its JSON schema bounds every string and list."""
    inputs: BaseModel
    """What the prompt was rendered from."""
    max_output_tokens: int
    items: Mapping[int, str] = field(default_factory=dict)
    """What is asked about, by id, where each is answered by itself: caches keep the answers apart."""
    about: Callable[[Collection[int]], JudgeRequest[ReplyT]] | None = None
    """Returns the same request about some of the ``items`` alone."""
    check: Callable[[ReplyT], None] | None = None
    """Raises ``JudgeCompromised`` if a reply is not to be believed: a cache hands such a reply on, unkept."""
    sampling: SamplingParameters | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReply(Generic[ReplyT]):
    """A judge's answer."""

    value: ReplyT
    usage: Usage
    abstained: frozenset[int] = frozenset()
    """Item ids that the judge knows it cannot decide: asking again is pointless."""
    notes: Mapping[int, str] = field(default_factory=dict)
    """Why it abstained, by item id: for people."""


class Judge(Protocol):
    """Answers questions about a record in a given form."""

    @property
    def identity(self) -> JudgeIdentity:
        """Who judges: stands on every score."""
        ...

    async def ask(self, request: JudgeRequest[ReplyT]) -> JudgeReply[ReplyT]:
        """Answer the request.

        Raises:
            JudgeError: no usable answer; the subclass says whether asking later may help.
        """
        ...

    async def aclose(self) -> None:
        """Release sockets."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings:
    """Vectors of texts, in the order of the texts."""

    vectors: tuple[tuple[float, ...], ...]
    usage: Usage


class Embedder(Protocol):
    """Turns texts into vectors whose cosine says how alike they are."""

    @property
    def identity(self) -> JudgeIdentity:
        """Who embeds: stands beside the judge on scores that need it."""
        ...

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return a vector for each text.

        Raises:
            JudgeError: no usable answer; the subclass says whether asking later may help.
        """
        ...

    async def aclose(self) -> None:
        """Release sockets."""
        ...


class Metric(Protocol):
    """Measures one property of a record. Stateless: one instance serves many records at once."""

    @property
    def name(self) -> str:
        """``faithfulness``: stands in attribute keys."""
        ...

    @property
    def profile(self) -> str:
        """Whose rules: ``ragtrace`` for our own."""
        ...

    @property
    def version(self) -> str:
        """Changes whenever the same verdicts or prompts could give another score."""
        ...

    @property
    def threshold(self) -> float | None:
        """Where ``pass`` begins; ``None`` for a metric whose rule (``pass_when``) asks for more."""
        ...

    @property
    def direction(self) -> Direction:
        """Which way the numbers are good."""
        ...

    async def measure(self, record: RagRecord, steps: Steps) -> MetricOutcome:
        """Score the record, or skip it with a reason. Judge steps that metrics share run once in ``steps``.

        A failure is raised; one that has more to say, such as what another tool makes of it, is returned.

        Raises:
            JudgeError: the judge gave no usable answer.
        """
        ...


def passes_when(metric: Metric) -> str:
    """Say what must hold for a metric's ``pass``: ``score >= 0.5``, or its rule."""
    rule = getattr(metric, "pass_when", None)
    relation = ">=" if metric.direction is Direction.HIGHER_IS_BETTER else "<="
    return f"score {relation} {metric.threshold:g}" if rule is None else str(rule)


class TraceReader(Protocol):
    """Reads stored traces."""

    async def get(self, trace_id: str) -> Trace | None:
        """Return the trace, or ``None`` if the back end has none.

        Raises:
            ReadError: the back end could not be read.
        """
        ...

    def traces(self) -> AsyncIterator[Trace]:
        """Yield every trace of the source.

        Raises:
            ReadError: the back end could not be read.
        """
        ...

    async def aclose(self) -> None:
        """Release sockets and files."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceQuery:
    """Which stored traces are looked for: those with a span that matches all that is set."""

    since_ns: int
    until_ns: int
    """Nanoseconds since 1970; the end is not part of it."""
    service: str | None = None
    operation: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    traceql: str | None = None
    """A selection in Tempo's own language, in place of service, operation and tags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What one search found."""

    found: Mapping[str, Trace | None]
    """By trace id; with the trace where the back end gave it along."""
    limit: int
    """How many traces the back end gives at most."""
    is_cut: bool
    """Whether that limit was reached, so that there may be more."""

    @classmethod
    def of(cls, found: Mapping[str, Trace | None], *, limit: int) -> Page:
        """Make a page, which is cut where it is full."""
        return cls(found=found, limit=limit, is_cut=len(found) >= limit)

    @classmethod
    def joined(cls, pages: Sequence[Page]) -> Page:
        """Make one page of several: of each service, or each project."""
        found = {trace_id: trace for page in pages for trace_id, trace in page.found.items()}
        limit = sum(page.limit for page in pages)
        return cls(found=found, limit=limit, is_cut=any(page.is_cut for page in pages))


class TraceSearch(TraceReader, Protocol):
    """Reads stored traces that a query finds."""

    @property
    def shortest_ns(self) -> int:
        """The shortest stretch of time that can be searched."""
        ...

    @property
    def longest_ns(self) -> int:
        """The longest stretch of time that the back end searches at once."""
        ...

    async def search(self, query: TraceQuery) -> Page:
        """Search once, for as much as the back end gives at once.

        Raises:
            ReadError: the back end could not be read, or does not understand the query.
        """
        ...


class SpanSink(Protocol):
    """Takes spans somewhere."""

    @property
    def name(self) -> str:
        """For people: the kind and the address, without secrets."""
        ...

    async def send(self, request: bytes) -> None:
        """Hand over a serialized OTLP ``ExportTraceServiceRequest``; on return the receiver has it.

        Raises:
            SendRetryable: try again later.
            SendUnconfirmed: it said yes, and its answer cannot be read.
            SendRejected: never try again.
        """
        ...

    async def aclose(self) -> None:
        """Release sockets and files."""
        ...


class Clock(Protocol):
    """Tells the time, so that tests need not wait for it."""

    def now_ns(self) -> int:
        """Unix time in nanoseconds."""
        ...
