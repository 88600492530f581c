"""The data model: the records that ragtrace judges and the results it returns.

All types are frozen. ``None`` means absent. A failure is a [`MetricFailure`][ragtrace.model.MetricFailure]. A
metric with nothing to judge is a skipped [`MetricResult`][ragtrace.model.MetricResult]. Neither has a score.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from typing_extensions import TypeAliasType

from ragtrace._row_fields import RECORD_FIELDS, FieldConflict, UnreadableValue, contexts_in, fields_of, ids_in
from ragtrace.semconv import SERVICE_NAME, TENANT

__all__ = [
    "Chunk",
    "ChunkVerdict",
    "Claim",
    "Direction",
    "EarlierTurn",
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

AttributeValue = TypeAliasType(
    "AttributeValue",
    "str | bool | int | float | bytes | tuple[AttributeValue, ...] | Mapping[str, AttributeValue] | None",
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
    """The instrumentation did not record the text (many have capture off by default)."""
    NO_RETRIEVAL = "no_retrieval"
    """No span records a retrieval for this answer."""
    EMPTY_RETRIEVAL = "empty_retrieval"
    """The retrieval returned no chunks, so the answer cannot come from chunks."""
    REDACTED = "redacted"
    """A redaction mark replaces the text."""
    TRUNCATED = "truncated"
    """The text was truncated: a verdict on the missing part would be made up."""
    INCOMPLETE = "incomplete"
    """The answer was not finished, or attributes or spans were dropped upstream of ragtrace."""
    FAILED_CALL = "failed_call"
    """The RAG call ended in an error and has no answer."""
    REFUSAL = "refusal"
    """The answer declines to answer."""
    NO_CLAIMS = "no_claims"
    """The answer has no checkable statement."""
    ALL_UNJUDGED = "all_unjudged"
    """The judge decided no item: no claim, no chunk, no question."""
    UNDECIDED = "undecided"
    """Too few verdicts to tell pass from fail: the judge skipped too many claims, or a decisive one."""
    NO_REFERENCE = "no_reference"
    """The metric needs a reference answer, and the record has none."""
    MISSING_PART = "missing_part"
    """A component metric has no score."""
    OUT_OF_RANGE = "out_of_range"
    """The chosen rule gives a number outside [0, 1]; `Compat.score` or the details hold it."""
    TOOL_NAN = "peer_nan"
    """The other tool's rule gives no number here (NaN)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A retrieved chunk as the generator received it."""

    id: str
    """The producer's id; else ``sha256(text)[:16]``."""
    text: str | None
    """``None`` if the producer recorded only ids."""
    rank: int = 0
    """Position in the retrieved list, from 0."""
    score: float | None = None
    """The retriever's own number."""
    score_kind: str = "similarity"
    """``similarity`` (higher is nearer) or ``distance`` (lower is nearer)."""
    metadata: Mapping[str, AttributeValue] = field(default_factory=dict)
    truncated: bool = False
    span_id: str | None = None
    """The source span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The source of a part of a record, and the reason for choosing it."""

    part: Part
    span_id: str
    span_name: str
    attribute: str
    """The attribute key, or its prefix with ``*`` for a flattened list."""
    convention: str
    """The convention: ``ragtrace``, ``otel-genai``, ``openinference``, …"""
    why: str
    """One sentence: the rule that chose this span and attribute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A missing or damaged part of a record, with the reason."""

    part: Part
    reason: SkipReason
    detail: str
    """One sentence: what was found, where, and what to do about it."""


class TargetKind(StrEnum):
    """The kind of the carrier's target span: ``ragtrace.target.kind``."""

    ANSWER = "answer"
    RETRIEVAL = "retrieval"
    TRACE = "trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The evaluated span: everything that its carrier needs."""

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
    """The application's resource. The carrier copies it, so that a search by service finds the carrier."""
    resource_schema_url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTurn:
    """A question and its answer, from before the judged question in the same conversation."""

    question: str | None
    answer: str

    @classmethod
    def bounded(cls, question: str | None, answer: str) -> EarlierTurn:
        """Return a turn of at most 1,000 characters of each: they show what a pronoun means."""
        return cls(question=None if question is None else _short(question), answer=_short(answer))


_MOST_TURN_CHARS: Final = 1_000


def _short(text: str) -> str:
    return text if len(text) <= _MOST_TURN_CHARS else f"{text[:_MOST_TURN_CHARS]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """What the model's provider says that a part of the answer comes from."""

    start: int | None
    """Offset in the answer, in characters from 0; ``None``: the answer does not have the cited part."""
    end: int | None
    """Exclusive. The start again: it cites for the sentence that ends there."""
    chunk_ids: tuple[str, ...] = ()
    """Empty if no chunk of the record is of this source."""
    source: str = ""
    """What the provider calls the source: a title, a file, an address or an id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hops:
    """What became of chunks between the retriever and the model, as far as spans tell."""

    dropped: tuple[Chunk, ...] = ()
    """Retrieved, and left out by a later hop; ``Chunk.span_id`` is the retrieval."""
    dropped_by: str = ""
    """The span that left them out, such as a reranker's."""
    shown: Mapping[str, int] = field(default_factory=dict)
    """How many characters of a chunk the model's prompt has, by chunk id: of those that it has not whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RagRecord:
    """One RAG call: a question, the retrieved chunks and the answer."""

    id: str
    """Unique in a run; ``trace_id:span_id`` for records from traces."""
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
    provider_citations: tuple[Citation, ...] = ()
    """What the model's provider returned beside the answer; marks in its text, such as ``[1]``, are apart."""
    earlier_turns: tuple[EarlierTurn, ...] = ()
    """What the model was shown of the conversation, the oldest first: it tells what "it" and "there" mean,
    and is not judged."""
    retrieval_query: str | None = None
    """The retriever's query, if it differs from the question."""
    hops: Hops | None = None
    """``None`` if neither a reranker nor the prompt is recorded. The judge does not see it."""
    is_marked: bool = False
    """Whether the application says that it is a RAG call, as with `ragtrace.rag`."""
    context_from_prompt: bool = False
    """Whether the chunks are passages of the model's prompt because no retrieval was recorded."""
    provenance: tuple[Provenance, ...] = ()
    passed_over: tuple[Provenance, ...] = ()
    """Sources that were read but not chosen, with the reason."""
    gaps: tuple[Gap, ...] = ()

    @classmethod
    def of(
        cls,
        given: object = None,
        /,
        *,
        question: str | None = None,
        contexts: object = None,
        answer: str | None = None,
        reference: str | None = None,
        id: str | None = None,  # noqa: A002  the field's name
        **others: object,
    ) -> RagRecord:
        """Make a record from plain values, or from the sample or test case of another tool.

        Args:
            given: A mapping, dataclass, named tuple or pydantic model with the parts of a record, such as
                RAGAS' ``SingleTurnSample`` or DeepEval's ``LLMTestCase``; a record is returned as it is.
            question: The question.
            contexts: A text, a chunk, a document of LangChain, LlamaIndex or a vector store, or a list of
                these, perhaps in pairs with scores. A mapping gives each text its chunk id.
            answer: The answer.
            reference: A reference answer.
            id: The record's id; by default, as for chunks, from a hash of the content.
            others: Parts under the names that other tools give them, such as ``user_input``,
                ``retrieved_contexts`` and ``response``.

        Raises:
            TypeError: a name is unknown, a value has no readable form, or two values differ.

        Example:
            ```python
            RagRecord.of(question="How long?", contexts={"faq-12": "14 days."}, answer="30 days.")
            RagRecord.of(user_input="How long?", retrieved_contexts=["14 days."], response="30 days.")
            ```
        """
        if isinstance(given, RagRecord):
            return given
        named = {
            "question": question,
            "contexts": contexts,
            "answer": answer,
            "reference": reference,
            "id": id,
        }
        parts = _parts({name: value for name, value in named.items() if value is not None} | others, given)
        chunks = _chunks(parts.get("contexts"))
        texts = {name: _text(parts.get(name), name) for name in ("question", "answer", "reference")}
        try:
            reference_chunk_ids = ids_in(parts.get("reference_chunk_ids"))
        except UnreadableValue as exc:
            raise TypeError(f"`reference_chunk_ids`: {exc}") from None
        hashed = [*texts.values(), *(chunk.id for chunk in chunks)]
        return cls(
            id=_text(parts.get("id"), "id") or _digest(repr(hashed)),
            question=texts["question"],
            chunks=chunks,
            answer=texts["answer"],
            reference=texts["reference"],
            model=_text(parts.get("model"), "model"),
            prompt_version=_text(parts.get("prompt_version"), "prompt_version"),
            reference_chunk_ids=reference_chunk_ids,
            provider_citations=_citations(parts.get("provider_citations") or ()),
        )

    def gap(self, *parts: Part) -> Gap | None:
        """Return the first gap in one of the parts, or ``None``."""
        return next((gap for gap in self.gaps if gap.part in parts), None)


def _parts(named: Mapping[str, object], given: object) -> dict[str, object]:
    """Return the parts of a record by our own names for them."""
    unknown = next((name for name in named if not RECORD_FIELDS.is_known(name)), None)
    if unknown is not None:
        near = RECORD_FIELDS.nearest(unknown)
        raise TypeError(f"a record has no `{unknown}`{f': did you mean `{near}`?' if near else ''}")
    fields = {} if given is None else fields_of(given)
    if fields is None or (given is not None and not any(map(RECORD_FIELDS.is_known, fields))):
        raise TypeError(f"a {type(given).__name__} has none of the parts of a record")
    try:
        chosen = RECORD_FIELDS.chosen({**fields, **named})
    except FieldConflict as exc:
        raise TypeError(str(exc)) from None
    return {name: value for name, (_, value) in chosen.by_field.items()}


def _text(value: object, name: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return "\n".join(value) or None
    raise TypeError(f"`{name}` must be a string, and is a {type(value).__name__}")


def _citations(given: object) -> tuple[Citation, ...]:
    listed = [fields_of(each) or {} for each in given] if isinstance(given, list | tuple) else [{}]
    places = [each.get(name) for each in listed for name in ("start", "end")]
    if not all(type(place) is int for place in places):
        raise TypeError(
            '`provider_citations` must be a list of {"start": 0, "end": 21, "chunk_ids": ["faq"]}'
        )
    return tuple(
        Citation(start=each["start"], end=each["end"], chunk_ids=ids_in(each.get("chunk_ids")))
        for each in listed
    )


def _chunks(contexts: object) -> tuple[Chunk, ...]:
    if isinstance(contexts, Mapping) and all(isinstance(text, str) for text in contexts.values()):
        is_document = any("text" in found for found in contexts_in(contexts))
        contexts = (
            contexts if is_document else [{"id": name, "text": text} for name, text in contexts.items()]
        )
    if isinstance(contexts, Iterable) and not isinstance(contexts, str) and fields_of(contexts) is None:
        found = [each for context in contexts for each in _read_contexts(context, is_one=True)]
    else:
        found = _read_contexts(contexts)
    return tuple(replace(chunk, rank=rank) for rank, chunk in enumerate(found))


def _read_contexts(value: object, *, is_one: bool = False) -> list[Chunk]:
    if isinstance(value, Chunk):
        return [value]
    try:
        found = contexts_in([value] if is_one else value)
    except UnreadableValue as exc:
        raise TypeError(f"`contexts`: {exc}") from None
    listed = [] if found is None else found if isinstance(found, list) else [found]
    if not all(isinstance(each, dict) and "text" in each for each in listed):
        raise TypeError(f"`contexts`: a {type(value).__name__} has no text under a known name")
    return [chunk_of(**each) for each in listed]


def chunk_of(
    *,
    text: str | None,
    id: object = None,  # noqa: A002  the field's name
    score: float | None = None,
    metadata: Mapping[Any, Any] | None = None,
    rank: int = 0,
) -> Chunk:
    """Make a chunk of the values of a document; without an id it gets one from a hash of its text."""
    return Chunk(
        id=_digest(text or "") if id is None else str(id),
        text=text,
        rank=rank,
        score=score,
        metadata={}
        if metadata is None
        else {_scrubbed(key): _attribute(each) for key, each in metadata.items()},
    )


def _attribute(value: Any) -> AttributeValue:
    if isinstance(value, Mapping):
        return {_scrubbed(key): _attribute(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_attribute(item) for item in value)
    return value if value is None or isinstance(value, bool | int | float | bytes) else _scrubbed(value)


def _scrubbed(value: object) -> str:
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A checkable statement of the answer."""

    index: int
    """From 0, in the order of the answer."""
    text: str
    start: int | None = None
    """Character offsets of its source sentences in the answer."""
    end: int | None = None
    kind: str = "factual"
    """``reference`` for a sentence of the reference."""


OF_REFERENCE: Final = "reference"
"""The kind of a claim that is a sentence of the reference, or was compared with it."""
OF_CRITERION: Final = "criterion"
"""The kind of a claim that is a criterion: what the answer is to do, not what it says."""
OF_CITATION: Final = "citation"
"""The kind of a claim whose verdict is about what it cites."""


class VerdictLabel(StrEnum):
    """What the context says about a claim, or how relevant a statement or chunk is to the question."""

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
    MET = "met"
    """The answer meets the criterion."""
    NOT_MET = "not_met"


CLAIM_LABELS: Final = (
    VerdictLabel.SUPPORTED,
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.UNJUDGED,
)
"""Those of claims."""


class DecidedBy(StrEnum):
    """Who decided about a claim that a cascade judged."""

    SCREEN = "screen"
    JUDGE = "judge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A claim with its verdict and its evidence, verified by string search."""

    claim: Claim
    label: VerdictLabel
    reason: str | None = None
    chunk_ids: tuple[str, ...] = ()
    """Only ids that exist in the record."""
    quote: str | None = None
    """Verbatim text of the first of ``chunk_ids``, of a criterion that of the answer; absent unless
    ``quote_verified``."""
    quote_verified: bool = False
    """Whether the judge's quote was found in a chunk it cited."""
    confidence: float | None = None
    """Probability in [0, 1] that the label is right, if the judge gives one."""
    support: float | None = None
    """Probability in [0, 1] that the chunks support the claim, if the judge gives one, also if unjudged."""
    omitted: bool = False
    """Unjudged because the judge gave no usable verdict, though asked again; not because it abstained."""
    decided_by: DecidedBy | None = None
    """Who gave the verdict, if the judge is a cascade: its screen, or the judge behind it."""
    material: bool = True
    """Whether a flaw is more than an incidental word. A judge that does not say so finds material ones."""

    @property
    def is_incidental(self) -> bool:
        """Whether it is a flaw that the default pass rules forgive."""
        return not self.material and self.label in (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkVerdict:
    """The relevance of a retrieved chunk to the question."""

    chunk_id: str
    rank: int
    """Position in the retrieved list, from 0."""
    label: VerdictLabel
    """``relevant``, ``partly_relevant``, ``irrelevant`` or ``unjudged``."""
    reason: str | None = None
    confidence: float | None = None
    """Probability in [0, 1] that the label is right, if the judge gives one."""
    omitted: bool = False
    """Unjudged because the judge gave no usable verdict, though asked again; not because it abstained."""


_NAMES_OF_LABELS = tuple((label, label.value) for label in VerdictLabel)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictCounts:
    """Counts of claims or chunks by verdict: the denominators of every score."""

    supported: int = 0
    contradicted: int = 0
    unsupported: int = 0
    unjudged: int = 0
    relevant: int = 0
    partly_relevant: int = 0
    irrelevant: int = 0
    met: int = 0
    not_met: int = 0

    @classmethod
    def of(cls, verdicts: Iterable[Verdict | ChunkVerdict]) -> VerdictCounts:
        """Count verdicts by label."""
        labels = [verdict.label for verdict in verdicts]
        return cls(**{name: labels.count(label) for label, name in _NAMES_OF_LABELS})

    @property
    def total(self) -> int:
        """All verdicts, with the unjudged ones."""
        return self.judged + self.unjudged

    @property
    def judged(self) -> int:
        """Verdicts other than ``unjudged``."""
        relevance = self.relevant + self.partly_relevant + self.irrelevant
        return self.supported + self.contradicted + self.unsupported + relevance + self.met + self.not_met


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """A judge's requests, tokens and cost, summed over requests."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    unmetered_calls: int = 0
    """Of ``calls``, those that ended without token counts, such as timeouts: their cost is unknown."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            unmetered_calls=self.unmetered_calls + other.unmetered_calls,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """A judge step that a metric used. Metrics that share a step have the same run."""

    step: str
    """``extract``, ``verify``, …; ``retrieval`` if one call graded chunks and judged the reference."""
    duration_ms: int = field(compare=False)
    """From its first request to the end of its last, in milliseconds."""
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeIdentity:
    """The judge's identity, written on every score."""

    provider: str
    """``openai``, ``lexical``, ``scripted``, …"""
    model: str
    computes: bool = False
    """Whether code, not a language model, gives its verdicts. Prompt injection then has no effect."""
    is_human: bool = False
    """Whether people gave the verdicts, which code repeats."""
    contradicts: bool = True
    """Whether it can detect contradictions. If not, their absence means nothing."""
    parameters: str = ""
    """A digest of extra request fields (``judge.extra_body``), which can change its verdicts."""
    folds_contradicted: bool = False
    """Its verdict *contradicted* counts as *unsupported*: by its card it is wrong too often."""
    screen: str = ""
    """What decides claims before this judge is asked, and when: ``lexical:lexical-v4 [0.1, 0.9]``."""

    @property
    def named(self) -> tuple[str, ...]:
        """The fields that identify the judge."""
        folds = "contradicted folded" if self.folds_contradicted else ""
        return (self.provider, self.model, *filter(None, (self.parameters, folds, self.screen)))

    @property
    def name(self) -> str:
        """How it is written: ``openai:gpt-4o-mini``, and `` after …`` with what decides before it."""
        return f"{self.provider}:{self.model}" + (f" after {self.screen}" if self.screen else "")


class Label(StrEnum):
    """A metric's outcome as one searchable word: ``ragtrace.label.<metric>``."""

    PASS = "pass"
    FAIL = "fail"
    ERROR = "error"
    SKIPPED = "skipped"


class Direction(StrEnum):
    """Whether higher or lower scores are better."""

    HIGHER_IS_BETTER = "higher_is_better"
    LOWER_IS_BETTER = "lower_is_better"


class Diagnosis(StrEnum):
    """The failing part of a RAG call: the quadrant of chunk precision and faithfulness."""

    HEALTHY = "healthy"
    """Both are high."""
    GENERATION_PROBLEM = "generation_problem"
    """The chunks are relevant, but the answer is not grounded in them."""
    RETRIEVAL_NOISE = "retrieval_noise"
    """Most chunks are irrelevant, but the answer is grounded."""
    RETRIEVAL_FAILURE = "retrieval_failure"
    """Most chunks are irrelevant, and the model makes things up."""


class CompatStatus(StrEnum):
    """How another tool ends a run of its rules."""

    OK = "ok"
    NAN = "nan"
    ERROR = "error"
    """The tool raises an error."""
    GRADER_ERROR = "grader_error"
    """The tool reports that its grader failed (promptfoo)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compat:
    """The other tool's own result, kept next to ragtrace's."""

    status: CompatStatus
    score: float | None = None
    """Its raw number, which may be outside [0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intermediate:
    """A metric's intermediate results. They hold text under judgment, so only files show them."""

    truths: tuple[str, ...] = ()
    """Truths that were extracted from the chunks, and that claims were judged against."""
    truths_limit: int | None = None
    """The limit of their number for each chunk (DeepEval: in all); ``None`` if there was none."""
    questions: tuple[str, ...] = ()
    """Questions generated from the answer, to compare with the user's question."""
    similarities: tuple[float | None, ...] = ()
    """Cosine similarity of each generated question with the user's question; ``None`` if undefined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricResult:
    """A metric that ran: with a score, or skipped with a reason."""

    metric: str
    profile: str
    score: float | None
    """In [0, 1]; ``None`` if and only if ``skip_reason`` is set."""
    threshold: float | None
    """The lowest passing score; ``None`` if `pass_when` needs more than a score."""
    direction: Direction
    evaluator_version: str
    skip_reason: SkipReason | None = None
    explanation: str = ""
    reason: str | None = None
    """The judge's explanation of the score, if requested; it may hold text under judgment."""
    verdicts: tuple[Verdict, ...] = ()
    """Verdicts on claims of the answer, or on sentences of the reference."""
    chunk_verdicts: tuple[ChunkVerdict, ...] = ()
    """Verdicts on chunks, by rank."""
    details: Mapping[str, float] = field(default_factory=dict)
    """Other scores from the same verdicts, such as ``lenient``, ``lower_bound`` and ``coverage``."""
    intermediate: Intermediate | None = None
    """Intermediate results, if the metric has any."""
    prompt_sha256: str | None = None
    usage: Usage = Usage()
    compat: Compat | None = None
    """Set by profiles that follow another tool."""
    diagnosis: Diagnosis | None = None
    """Set by composite metrics that diagnose the call."""
    pass_when: str | None = None
    """The pass rule, if it is more than a threshold: ``contradicted == 0 and coverage >= 0.5``."""
    passed: bool | None = None
    """The rule's decision; ``None`` leaves it to the threshold."""
    judge: JudgeIdentity | None = None
    """The second judge, if it replaced the evaluation's judge after a failed canary claim."""
    duration_ms: int = field(default=0, compare=False)
    """Milliseconds until the result, waiting for shared steps included."""
    steps: tuple[StepRun, ...] = ()
    """The judge steps that it used, in their order."""

    @property
    def counts(self) -> VerdictCounts:
        """Count the verdicts by label."""
        return VerdictCounts.of((*self.verdicts, *self.chunk_verdicts))

    @property
    def label(self) -> Label:
        """``pass`` if the rule holds, or, without a rule, if the score reaches the threshold."""
        if self.score is None:
            return Label.SKIPPED
        if self.passed is not None or self.threshold is None:
            return Label.PASS if self.passed else Label.FAIL
        if self.direction is Direction.HIGHER_IS_BETTER:
            return Label.PASS if self.score >= self.threshold else Label.FAIL
        return Label.PASS if self.score <= self.threshold else Label.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFailure:
    """A metric that failed. It has no score."""

    metric: str
    profile: str
    error_type: str
    message: str
    """Human-readable; never holds text under judgment."""
    evaluator_version: str
    retryable: bool = False
    usage: Usage = Usage()
    label: Label = Label.ERROR
    compat: Compat | None = None
    """Set by profiles that follow another tool."""
    duration_ms: int = field(default=0, compare=False)
    """Milliseconds until the failure."""
    steps: tuple[StepRun, ...] = ()
    """The judge steps that it used, in their order, failed ones included."""


MetricOutcome: TypeAlias = MetricResult | MetricFailure


class BlameClass(StrEnum):
    """Which hop failed, and how. In the order of the pipeline: the first of several is the primary one."""

    RETRIEVAL_MISS = "retrieval_miss"
    """What was needed is in no chunk that the retriever found."""
    RERANK_DROP = "rerank_drop"
    """The retriever found it, and a reranker left it out."""
    TRUNCATED_CONTEXT = "truncated_context"
    """It was found and kept, but is not in the prompt, or was cut there."""
    STALE_OR_CONFLICTING_CHUNKS = "stale_or_conflicting_chunks"
    """Two chunks say different things about it."""
    CONTRADICTED_CONTEXT = "contradicted_context"
    """The model was given it, and says otherwise."""
    IGNORED_CONTEXT = "ignored_context"
    """The model was given it, and the answer uses none of it."""
    FABRICATED = "fabricated"
    """The answer uses the chunks, and adds what none of them mentions."""
    UNANSWERABLE = "unanswerable"
    """No chunk is relevant, and the answer declines: nothing failed but the coverage of the documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One failed hop of a RAG call, with its evidence."""

    blame: BlameClass
    why: str
    """One sentence without content."""
    claim: int | None = None
    """The wrong claim, from 0; ``None`` if it is about the whole answer."""
    chunk_ids: tuple[str, ...] = ()
    """Chunks that exist at a hop."""
    span_id: str = ""
    """The span of the hop, if it is known."""
    quote: str = ""
    """What a chunk says, word for word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """The causes of a bad answer; empty if nothing failed."""

    faults: tuple[Fault, ...] = ()
    missing: tuple[str, ...] = ()
    """What could tell the cause of further wrong claims, and was not measured."""

    @property
    def classes(self) -> tuple[BlameClass, ...]:
        """Each class once, in the order of the pipeline."""
        found = {fault.blame for fault in self.faults}
        return tuple(blame for blame in BlameClass if blame in found)

    @property
    def primary(self) -> BlameClass | None:
        """The earliest hop that failed."""
        return next(iter(self.classes), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """All results for one record in one run."""

    record_id: str
    outcomes: tuple[MetricOutcome, ...]
    judge: JudgeIdentity
    evaluator_set: str
    """Stable name of the metrics and profiles, e.g. ``faithfulness/ragtrace``."""
    evaluator_version: str
    run_id: str
    started_at_ns: int
    """Unix time in nanoseconds."""
    duration_ms: int
    input_sha256: str
    """Digest of the judge's input."""
    input_truncated: bool = False
    usage: Usage = Usage()
    compromised: bool = False
    """The judge failed a canary claim: each result names the second judge, or is a failure."""
    blame: Blame = Blame()
    """Which hops of the call failed."""
    judge_card: str = ""
    """What is known of the judge: ``none`` (nobody measured it), ``below_floor`` (no better than one lexical
    feature) or ``measured``; empty for labels that people gave, and if nobody said."""

    @property
    def results(self) -> tuple[MetricResult, ...]:
        """The outcomes that are not failures."""
        return tuple(outcome for outcome in self.outcomes if isinstance(outcome, MetricResult))

    @property
    def suspicion(self) -> float | None:
        """Return how likely an unsupported claim is in the answer, from 0 to 1; ``None`` if no judge said.

        ``1 - p1 * p2 * ...`` over the claims' probabilities of support, as if claims erred independently.
        Claims of one answer do not, so it ranks answers and overstates the share of flawed ones.
        """
        for result in self.results:
            support = [
                verdict.support
                for verdict in result.verdicts
                if verdict.support is not None and verdict.claim.kind != OF_REFERENCE
            ]
            if support:
                return 1 - math.prod(support)
        return None

    @property
    def failures(self) -> tuple[MetricFailure, ...]:
        """The outcomes that are failures."""
        return tuple(outcome for outcome in self.outcomes if isinstance(outcome, MetricFailure))


@dataclass(frozen=True, slots=True)
class Screening:
    """What the screen said of a record."""

    suspicion: float
    """From 0 to 1: how likely an unsupported claim is in the answer, by the judge without a key."""
    probability: float
    """With which records like this are screened at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """How a record was sampled."""

    rule: str
    """The sampling rule: ``ratio``, or the name of a configured rule."""
    rate: float
    """The rule's configured rate."""
    probability: float | None
    """The record's sampling probability: averages are weighted by its inverse.

    ``None`` if it is unknown, because the verdict on another answer selected this record, or because it was
    first skipped and then selected in follow-up sampling. Averages leave out such a record."""
    screening: Screening | None = field(default=None, compare=False)
    """What was known of the record before it was judged, if its rate depends on that."""

    @property
    def suspicion(self) -> float | None:
        """The suspicion by the screen, if there was one."""
        return None if self.screening is None else self.screening.suspicion


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAnswer:
    """A record with its evaluation: what reports, transcripts, the index and the page are made of."""

    record: RagRecord
    evaluation: Evaluation
    sample: Sample | None = None
    """How it was sampled; ``None`` without sampling."""
    carrier_span_id: str | None = None
    """The carrier span in its trace; ``None`` if there is none."""
    supersedes: str = ""
    """The span id of the carrier that its own one replaces."""
    cost_usd: float | None = None
    """The cost of judging it in US dollars; ``None`` if unknown."""

    @property
    def tenant(self) -> str:
        """The tenant whose application answered; empty if there is none."""
        return str(self.record.target.resource.get(TENANT, "")) if self.record.target else ""

    @property
    def service(self) -> str | None:
        """The service that answered."""
        target = self.record.target
        name = target.resource.get(SERVICE_NAME) if target else None
        return name if isinstance(name, str) else None

    @property
    def probability(self) -> float | None:
        """The answer's sampling probability; ``None`` if unknown."""
        return self.sample.probability if self.sample else 1.0

    @property
    def cluster(self) -> str:
        """The sampling cluster: the trace."""
        return self.record.target.trace_id if self.record.target else self.record.id


class Status(StrEnum):
    """The overall outcome of an answer."""

    JUDGED = "judged"
    """At least one metric has a score."""
    FAILED = "failed"
    """No metric has a score, and the judge failed on one."""
    INELIGIBLE = "ineligible"
    """There was nothing to judge."""


class AnswerOutcome(NamedTuple):
    """The outcome of an answer, and why it was not judged."""

    status: Status
    reason: str | None


def outcome_of(evaluation: Evaluation) -> AnswerOutcome:
    """Return the outcome of an answer: judged if a metric scored, else failed, else ineligible."""
    if any(result.score is not None for result in evaluation.results):
        return AnswerOutcome(Status.JUDGED, None)
    if evaluation.failures:
        return AnswerOutcome(Status.FAILED, evaluation.failures[0].error_type)
    return AnswerOutcome(Status.INELIGIBLE, str(evaluation.results[0].skip_reason))


def evaluator_set_of(names: Iterable[tuple[str, str]]) -> str:
    """Return the stable name of pairs of metric and profile, sorted: ``faithfulness/ragtrace``."""
    return ",".join(sorted(f"{metric}/{profile}" for metric, profile in names))


def version_of_set(versions: Sequence[str]) -> str:
    """Return the version of an evaluator from those of its metrics, in any order."""
    if len(versions) == 1:
        return versions[0]
    return f"{len(versions)}+{hashlib.sha256(' '.join(sorted(versions)).encode()).hexdigest()[:16]}"


def content_sha256(record: RagRecord) -> str:
    """Digest what the judge sees of a record: question, answer, reference, chunks and earlier turns."""
    seen: list[object] = [
        record.question,
        record.answer,
        record.reference,
        [[chunk.id, chunk.text] for chunk in record.chunks],
    ]
    if record.earlier_turns:
        seen.append([[turn.question, turn.answer] for turn in record.earlier_turns])
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()
