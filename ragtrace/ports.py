"""The ports: the protocols that adapters implement.

Adapters are in ``judge/``, ``backends/`` and the collector.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from ragtrace.judge_steps import Prompt, PromptName
from ragtrace.model import (
    DecidedBy,
    Direction,
    JudgeIdentity,
    MetricOutcome,
    Part,
    RagRecord,
    Usage,
)
from ragtrace.traces.trace import Trace

if TYPE_CHECKING:
    from ragtrace.metrics.session import StepSession

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
    """Sampling settings, if a request prescribes them to match another tool."""

    temperature: float | None = None
    top_p: float | None = None
    json_object: bool = False
    """Ask for ``response_format: {"type": "json_object"}``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRequest(Generic[ReplyT]):
    """One request to a judge: a prompt for language models, and typed inputs for judges that compute.

    The reply types `FreeText` and `YesProbability` do not ask for JSON.
    """

    step: str
    """``extract``, ``verify``, ``chunks``, …: the step's name in logs, caches and scripts."""
    system: str
    """Instructions. The static part comes first, so that providers can cache it."""
    user: str
    """The material. Text under judgment is fenced and marked as data."""
    reply_type: type[ReplyT]
    """The reply type; its JSON schema bounds every string and list."""
    inputs: BaseModel
    """The values that the prompt was rendered from."""
    max_output_tokens: int
    items: Mapping[int, str] = field(default_factory=dict)
    """Claims by id, without canaries: a screen may decide some of them first."""
    about: Callable[[Collection[int]], JudgeRequest[ReplyT]] | None = None
    """Returns the same request about some of the ``items`` alone."""
    check: Callable[[ReplyT], None] | None = None
    """Raises a ``JudgeError`` if a reply is not to be believed: a cache returns it without storing it."""
    canaries: tuple[str, ...] = ()
    """Canary claims that other requests asked about these chunks: a cache must know what guards a verdict."""
    sampling: SamplingParameters | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReply(Generic[ReplyT]):
    """A judge's answer."""

    value: ReplyT
    usage: Usage
    abstained: frozenset[int] = frozenset()
    """Ids of items that the judge cannot decide: asking again is pointless."""
    notes: Mapping[int, str] = field(default_factory=dict)
    """Reasons for abstaining by item id, human-readable."""
    support: Mapping[int, float] = field(default_factory=dict)
    """P(the chunks support the claim) by item id, if the judge gives one, also of items it abstains from."""
    decided_by: Mapping[int, DecidedBy] = field(default_factory=dict)
    """Who decided, by item id, if the judge is a cascade. The probability is its screen's."""


class Judge(Protocol):
    """Answers requests about a record in the requested form."""

    @property
    def identity(self) -> JudgeIdentity:
        """The judge's identity, written on every score."""
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
    """Vectors in the order of their texts."""

    vectors: tuple[tuple[float, ...], ...]
    usage: Usage


class Embedder(Protocol):
    """Embeds texts as vectors; their cosine measures similarity."""

    @property
    def identity(self) -> JudgeIdentity:
        """The embedder's identity, written next to the judge on scores that use it."""
        ...

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return one vector per text.

        Raises:
            JudgeError: no usable answer; the subclass says whether asking later may help.
        """
        ...

    async def aclose(self) -> None:
        """Release sockets."""
        ...


class Metric(Protocol):
    """Measures one property of a record. Stateless: one instance serves concurrent records.

    A class that inherits the port gets the defaults of what it does not declare.
    """

    @property
    def name(self) -> str:
        """The name in attribute keys: ``faithfulness``."""
        ...

    @property
    def profile(self) -> str:
        """The tool whose rules apply; ``ragtrace`` for its own rules."""
        ...

    @property
    def version(self) -> str:
        """Changes whenever the same verdicts or prompts could give another score."""
        ...

    @property
    def threshold(self) -> float | None:
        """Where ``pass`` begins; ``None`` for a metric with another rule (``pass_when``)."""
        ...

    @property
    def pass_when(self) -> str | None:
        """The rule of ``pass`` in words, ``contradicted == 0``; ``None`` if ``threshold`` says it all."""
        return None

    @property
    def direction(self) -> Direction:
        """Whether higher or lower scores are better."""
        ...

    @property
    def needs(self) -> tuple[Part, ...]:
        """The parts of a record without which it is skipped."""
        return ()

    @property
    def uses(self) -> tuple[str, ...] | None:
        """The judge steps it uses, such as ``verify``; its version changes with their prompts.

        ``()`` is none of them. ``None`` does not say: its version changes with the prompts of every step.
        """
        return None

    @property
    def prompts(self) -> Mapping[PromptName, Prompt]:
        """Prompts of its own for these steps, by the name of the prompt they replace."""
        return {}

    async def measure(self, record: RagRecord, steps: StepSession) -> MetricOutcome:
        """Score the record, or skip it with a reason. ``steps`` runs judge steps shared by metrics once.

        Raise a failure, or return one that carries more, such as another tool's result.

        Raises:
            JudgeError: the judge gave no usable answer.
        """
        ...


def pass_condition(metric: Metric) -> str:
    """Return the condition of a metric's ``pass``: ``score >= 0.5``, or its rule."""
    if metric.pass_when is not None:
        return metric.pass_when
    relation = ">=" if metric.direction is Direction.HIGHER_IS_BETTER else "<="
    return f"score {relation} {metric.threshold:g}"


class TraceReader(Protocol):
    """Reads stored traces."""

    async def get(self, trace_id: str) -> Trace | None:
        """Return the trace, or ``None`` if the back end has none.

        Raises:
            ReadError: the back end could not be read.
            InputError: this cannot be the id of a trace, or a file is no OTLP; names file and place.
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
    """A search for stored traces: traces with a span that matches all fields that are set."""

    since_ns: int
    until_ns: int
    """Nanoseconds since 1970; the end is exclusive."""
    service: str | None = None
    operation: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    traceql: str | None = None
    """A TraceQL query, which replaces service, operation and tags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The result of one search."""

    found: Mapping[str, Trace | None]
    """By trace id; the value is the trace if the back end returned it."""
    limit: int
    """The back end's maximum number of traces."""
    is_cut: bool
    """Whether the limit was reached, so there may be more traces."""

    @classmethod
    def of(cls, found: Mapping[str, Trace | None], *, limit: int) -> Page:
        """Make a page of at most ``limit`` traces."""
        return cls(found=found, limit=limit, is_cut=len(found) >= limit)

    @classmethod
    def joined(cls, pages: Sequence[Page]) -> Page:
        """Join several pages into one: of each service, or each project."""
        found = {trace_id: trace for page in pages for trace_id, trace in page.found.items()}
        limit = sum(page.limit for page in pages)
        return cls(found=found, limit=limit, is_cut=any(page.is_cut for page in pages))


class TraceSearch(TraceReader, Protocol):
    """Reads stored traces by query."""

    @property
    def shortest_ns(self) -> int:
        """The shortest time range that can be searched."""
        ...

    @property
    def longest_ns(self) -> int:
        """The longest time range that the back end searches at once."""
        ...

    async def search(self, query: TraceQuery) -> Page:
        """Search once and return the back end's one page of results.

        Raises:
            ReadError: the back end could not be read, or does not understand the query.
        """
        ...


class SpanSink(Protocol):
    """Sends spans to a receiver."""

    @property
    def name(self) -> str:
        """Kind and address for messages, without secrets."""
        ...

    async def send(self, request: bytes) -> None:
        """Send a serialized OTLP ``ExportTraceServiceRequest``; on return the receiver has it.

        Raises:
            SendRetryable: try again later.
            SendUnconfirmed: it reported success with an unreadable body.
            SendRejected: do not try again.
            SendRefused: nor any other request; credentials or address are wrong.
        """
        ...

    async def aclose(self) -> None:
        """Release sockets and files."""
        ...


class Clock(Protocol):
    """Returns the time, so that tests need not wait."""

    def now_ns(self) -> int:
        """Unix time in nanoseconds."""
        ...
