"""The values of ragtrace: what is judged, and what comes out.

All are frozen. ``None`` means absent. A failure is a [`MetricFailure`][ragtrace.model.MetricFailure] and a
metric that has nothing to judge is a skipped [`MetricResult`][ragtrace.model.MetricResult]: neither ever
has a score.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

__all__ = [
    "Chunk",
    "ChunkVerdict",
    "Claim",
    "Direction",
    "Evaluation",
    "JudgeIdentity",
    "MetricFailure",
    "MetricResult",
    "Part",
    "RagRecord",
    "SkipReason",
    "Usage",
    "Verdict",
    "VerdictLabel",
]

AttributeValue: TypeAlias = (
    "str | bool | int | float | bytes | tuple[AttributeValue, ...] | Mapping[str, AttributeValue] | None"
)
"""A decoded OTLP ``AnyValue``: arrays are tuples, kvlists are mappings."""


class Part(StrEnum):
    """A part of a RAG call."""

    QUESTION = "question"
    CONTEXT = "context"
    ANSWER = "answer"
    REFERENCE = "reference"


class SkipReason(StrEnum):
    """Why there was nothing to judge: ``ragtrace.eval.skip_reason``."""

    NO_CONTENT = "no_content"
    """The instrumentation did not record the text (capture is off by default in many)."""
    NO_RETRIEVAL = "no_retrieval"
    """Nothing was retrieved for this answer, or no span says so."""
    EMPTY_RETRIEVAL = "empty_retrieval"
    """The retrieval found nothing: whatever the answer says, it does not come from chunks."""
    REDACTED = "redacted"
    """The text was replaced by a redaction mark."""
    TRUNCATED = "truncated"
    """The text was cut on its way: a verdict about the rest would be invented."""
    INCOMPLETE = "incomplete"
    """Attributes or spans were dropped before they reached ragtrace."""
    FAILED_CALL = "failed_call"
    """The RAG call ended in an error and has no answer."""
    REFUSAL = "refusal"
    """The answer declines to answer."""
    NO_CLAIMS = "no_claims"
    """The answer states nothing that can be checked."""
    ALL_UNJUDGED = "all_unjudged"
    """The judge decided nothing of what it was asked: no claim, no chunk, no question."""
    UNDECIDED = "undecided"
    """Too few verdicts to tell pass from fail: the judge left out too many claims, or one that decides it."""
    NO_REFERENCE = "no_reference"
    """The metric needs a reference answer and there is none."""
    MISSING_PART = "missing_part"
    """A metric that this one is made of has no score."""
    OUT_OF_RANGE = "out_of_range"
    """The rule that was asked for gives a number outside [0, 1]: `Compat.score` or the details have it."""
    TOOL_NAN = "peer_nan"
    """The rule of the tool that was asked for gives no number here (NaN)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A retrieved chunk, as the generator was given it."""

    id: str
    """The producer's id; else ``sha256(text)[:16]``."""
    text: str | None
    """``None`` where the producer recorded ids only."""
    rank: int = 0
    """Position in the retrieved list, from 0."""
    score: float | None = None
    """The retriever's own number."""
    score_kind: str = "similarity"
    """``similarity`` (higher is nearer) or ``distance`` (lower is nearer)."""
    metadata: Mapping[str, AttributeValue] = field(default_factory=dict)
    truncated: bool = False
    span_id: str | None = None
    """The span it was read from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a part of a record was read from, and why there."""

    part: Part
    span_id: str
    span_name: str
    attribute: str
    """The attribute key, or its prefix with ``*`` where a list was flattened."""
    convention: str
    """Whose words they are: ``ragtrace``, ``otel-genai``, ``openinference``, …"""
    why: str
    """One sentence for people: the rule that chose this span and attribute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A part of a record that is missing or damaged, with the reason."""

    part: Part
    reason: SkipReason
    detail: str
    """One sentence for people: what was seen, where, and what to do about it."""


class TargetKind(StrEnum):
    """What kind of span a carrier points at: ``ragtrace.target.kind``."""

    ANSWER = "answer"
    RETRIEVAL = "retrieval"
    TRACE = "trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The span an evaluation is about: all that its carrier needs to know of it."""

    trace_id: str
    """32 lower-case hex digits."""
    span_id: str
    """16 lower-case hex digits."""
    start_ns: int
    """Unix time in nanoseconds."""
    end_ns: int
    kind: TargetKind = TargetKind.ANSWER
    name: str = ""
    root_name: str = ""
    trace_flags: int = 0
    trace_state: str = ""
    resource: Mapping[str, AttributeValue] = field(default_factory=dict)
    """The application's own resource: the carrier copies it, so that a search by service finds it."""
    resource_schema_url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RagRecord:
    """One RAG call: a question, the chunks retrieved for it and the answer made of them."""

    id: str
    """Unique among the records of a run; ``trace_id:span_id`` for records from traces."""
    question: str | None
    chunks: tuple[Chunk, ...]
    answer: str | None
    reference: str | None = None
    """A reference ("ground truth") answer."""
    reference_chunk_ids: tuple[str, ...] = ()
    target: Target | None = None
    """Absent for records that do not come from a trace."""
    session_id: str | None = None
    conversation_id: str | None = None
    response_id: str | None = None
    model: str | None = None
    prompt_version: str | None = None
    retrieval_query: str | None = None
    """The query the retriever was given, where it differs from the question."""
    context_from_prompt: bool = False
    """Whether the chunks are passages of the model's prompt: no retrieval was recorded."""
    provenance: tuple[Provenance, ...] = ()
    passed_over: tuple[Provenance, ...] = ()
    """What was read as well, and why something else was believed."""
    gaps: tuple[Gap, ...] = ()

    @classmethod
    def of(
        cls,
        *,
        question: str | None = None,
        contexts: Iterable[str | Chunk] | Mapping[str, str] = (),
        answer: str | None = None,
        reference: str | None = None,
        id: str | None = None,  # noqa: A002  as the field is called
    ) -> RagRecord:
        """Make a record of plain texts; a mapping gives each context its chunk id.

        Texts without an id are named after their content, and so is the record.

        Raises:
            TypeError: ``contexts`` is one text, not several.

        Example:
            ```python
            RagRecord.of(question="How long?", contexts={"faq-12": "14 days."}, answer="30 days.")
            ```
        """
        if isinstance(contexts, str):
            raise TypeError("`contexts` is one text: write contexts=[text]")
        named = contexts.items() if isinstance(contexts, Mapping) else ((None, each) for each in contexts)
        chunks = tuple(_chunk(chunk_id, content, rank) for rank, (chunk_id, content) in enumerate(named))
        parts = [question, answer, reference, *(chunk.id for chunk in chunks)]
        return cls(
            id=id or _digest(repr(parts)),
            question=question,
            chunks=chunks,
            answer=answer,
            reference=reference,
        )

    def gap(self, *parts: Part) -> Gap | None:
        """Return the first gap in one of the parts, or ``None``."""
        return next((gap for gap in self.gaps if gap.part in parts), None)


def _chunk(chunk_id: str | None, content: str | Chunk, rank: int) -> Chunk:
    if isinstance(content, Chunk):
        return replace(content, rank=rank)
    return Chunk(id=chunk_id or _digest(content), text=content, rank=rank)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A statement of the answer that can be checked."""

    index: int
    """From 0, in the order of the answer."""
    text: str
    start: int | None = None
    """Offset in characters of the sentences it was drawn from, in the answer."""
    end: int | None = None
    kind: str = "factual"


class VerdictLabel(StrEnum):
    """What the context says about a claim; or what a statement or chunk is worth to the question."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    UNSUPPORTED = "unsupported"
    """The context does not mention it."""
    UNJUDGED = "unjudged"
    """The judge gave no usable verdict."""
    RELEVANT = "relevant"
    """It answers the question, or helps to."""
    PARTLY_RELEVANT = "partly_relevant"
    """It is background to the answer."""
    IRRELEVANT = "irrelevant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A claim, what was decided about it, and evidence that was checked by string search."""

    claim: Claim
    label: VerdictLabel
    reason: str | None = None
    chunk_ids: tuple[str, ...] = ()
    """Only ids that exist in the record."""
    quote: str | None = None
    """Verbatim text of the first of ``chunk_ids``; absent unless ``quote_verified``."""
    quote_verified: bool = False
    """Whether the judge's quote was found in a chunk it cited."""
    confidence: float | None = None
    """Probability in [0, 1] that the label is right, where the judge gives one."""
    omitted: bool = False
    """Unjudged because the judge gave no usable verdict, though asked again; not because it abstained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkVerdict:
    """What a retrieved chunk is worth to the question."""

    chunk_id: str
    rank: int
    """Position in the retrieved list, from 0."""
    label: VerdictLabel
    """``relevant``, ``partly_relevant``, ``irrelevant`` or ``unjudged``."""
    reason: str | None = None
    confidence: float | None = None
    """Probability in [0, 1] that the label is right, where the judge gives one."""
    omitted: bool = False
    """Unjudged because the judge gave no usable verdict, though asked again; not because it abstained."""


_NAMES_OF_LABELS = tuple((label, label.value) for label in VerdictLabel)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictCounts:
    """How many claims or chunks got which verdict: the denominators of every score."""

    supported: int = 0
    contradicted: int = 0
    unsupported: int = 0
    unjudged: int = 0
    relevant: int = 0
    partly_relevant: int = 0
    irrelevant: int = 0

    @classmethod
    def of(cls, verdicts: Iterable[Verdict | ChunkVerdict]) -> VerdictCounts:
        """Count verdicts by label."""
        labels = [verdict.label for verdict in verdicts]
        return cls(**{name: labels.count(label) for label, name in _NAMES_OF_LABELS})

    @property
    def total(self) -> int:
        """All of them."""
        return self.judged + self.unjudged

    @property
    def judged(self) -> int:
        """Those with a verdict."""
        relevance = self.relevant + self.partly_relevant + self.irrelevant
        return self.supported + self.contradicted + self.unsupported + relevance


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a judge was asked and what it cost. Numbers are sums over requests."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeIdentity:
    """Who judged: stands on every score."""

    provider: str
    """``openai``, ``lexical``, ``scripted``, …"""
    model: str
    computes: bool = False
    """Whether its verdicts come from code, not from a language model: then no text can talk it round."""
    contradicts: bool = True
    """Whether it can tell a contradiction from silence: without that, none found means nothing."""
    parameters: str = ""
    """A digest of what else its requests say (``judge.extra_body``), which can change its verdicts."""

    @property
    def named(self) -> tuple[str, ...]:
        """What tells it from other judges."""
        further = (self.parameters,) if self.parameters else ()
        return (self.provider, self.model, *further)


class Label(StrEnum):
    """The outcome of a metric in one searchable word: ``ragtrace.label.<metric>``."""

    PASS = "pass"
    FAIL = "fail"
    ERROR = "error"
    SKIPPED = "skipped"


class Direction(StrEnum):
    """Which way a metric's numbers are good."""

    HIGHER_IS_BETTER = "higher_is_better"
    LOWER_IS_BETTER = "lower_is_better"


class Diagnosis(StrEnum):
    """Where a RAG call fails: the quadrant of chunk precision and faithfulness."""

    HEALTHY = "healthy"
    """Both are high."""
    GENERATION_PROBLEM = "generation_problem"
    """The chunks are relevant, and the answer does not stand on them."""
    RETRIEVAL_NOISE = "retrieval_noise"
    """Most chunks are irrelevant, and the model copes."""
    RETRIEVAL_FAILURE = "retrieval_failure"
    """Most chunks are irrelevant, and the model fills the gap with inventions."""


class CompatStatus(StrEnum):
    """How a run under another tool's rules ends there."""

    OK = "ok"
    NAN = "nan"
    ERROR = "error"
    """It raises."""
    GRADER_ERROR = "grader_error"
    """It reports that its grader failed (promptfoo)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compat:
    """What another tool says where it runs, to be kept beside what ragtrace makes of it."""

    status: CompatStatus
    score: float | None = None
    """Its raw number, which may lie outside [0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intermediate:
    """What a metric made on its way to a score. It holds text under judgment: only files show it."""

    truths: tuple[str, ...] = ()
    """What DeepEval's rules extract from the chunks, and judge claims against."""
    questions: tuple[str, ...] = ()
    """Made from the answer, to be compared with the one that was asked."""
    similarities: tuple[float | None, ...] = ()
    """The cosine of each of the ``questions`` with the one that was asked; ``None`` where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricResult:
    """A metric that ran: with a score, or skipped with a reason."""

    metric: str
    profile: str
    score: float | None
    """In [0, 1]; ``None`` exactly where ``skip_reason`` is set."""
    threshold: float | None
    """Where ``pass`` begins; ``None`` where `pass_when` asks for more than a score."""
    direction: Direction
    evaluator_version: str
    skip_reason: SkipReason | None = None
    explanation: str = ""
    reason: str | None = None
    """Why it scored so, in the judge's words, where that was asked for: it may hold text under judgment."""
    verdicts: tuple[Verdict, ...] = ()
    """About claims of the answer, or sentences of the reference."""
    chunk_verdicts: tuple[ChunkVerdict, ...] = ()
    """About chunks, in the order of their ranks."""
    details: Mapping[str, float] = field(default_factory=dict)
    """Further readings of the same verdicts, such as ``lenient``, ``lower_bound`` and ``coverage``."""
    intermediate: Intermediate | None = None
    """What was made on the way, where the metric makes something."""
    prompt_sha256: str | None = None
    usage: Usage = Usage()
    compat: Compat | None = None
    """Set by profiles that follow another tool."""
    diagnosis: Diagnosis | None = None
    """Set by composites that can tell where the call fails."""
    pass_when: str | None = None
    """The rule of a pass, where it is more than a threshold: ``contradicted == 0 and coverage >= 0.5``."""
    passed: bool | None = None
    """What the rule says; ``None`` leaves it to the threshold."""
    judge: JudgeIdentity | None = None
    """Who judged instead of the evaluation's judge, which got a planted claim wrong: the second judge."""

    @property
    def counts(self) -> VerdictCounts:
        """Count the verdicts by label."""
        return VerdictCounts.of((*self.verdicts, *self.chunk_verdicts))

    @property
    def label(self) -> Label:
        """``pass`` where the rule says so; without a rule, where the score reaches the threshold."""
        if self.score is None:
            return Label.SKIPPED
        if self.passed is not None or self.threshold is None:
            return Label.PASS if self.passed else Label.FAIL
        if self.direction is Direction.HIGHER_IS_BETTER:
            return Label.PASS if self.score >= self.threshold else Label.FAIL
        return Label.PASS if self.score <= self.threshold else Label.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFailure:
    """A metric that could not run to its end. It has no score."""

    metric: str
    profile: str
    error_type: str
    message: str
    """For people; never holds text under judgment."""
    evaluator_version: str
    retryable: bool = False
    usage: Usage = Usage()
    label: Label = Label.ERROR
    compat: Compat | None = None
    """Set by profiles that follow another tool."""


MetricOutcome: TypeAlias = MetricResult | MetricFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """All that was found out about one record in one run."""

    record_id: str
    outcomes: tuple[MetricOutcome, ...]
    judge: JudgeIdentity
    evaluator_set: str
    """Stable name of the metrics and profiles that ran, e.g. ``faithfulness/ragtrace``."""
    evaluator_version: str
    run_id: str
    started_at_ns: int
    """Unix time in nanoseconds."""
    duration_ms: int
    input_sha256: str
    """Digest of what the judge saw."""
    input_truncated: bool = False
    usage: Usage = Usage()
    compromised: bool = False
    """The judge got a planted claim wrong: results name the second judge they rest on, or are failures."""

    @property
    def results(self) -> tuple[MetricResult, ...]:
        """The outcomes that are not failures."""
        return tuple(outcome for outcome in self.outcomes if isinstance(outcome, MetricResult))

    @property
    def failures(self) -> tuple[MetricFailure, ...]:
        """The outcomes that are failures."""
        return tuple(outcome for outcome in self.outcomes if isinstance(outcome, MetricFailure))
