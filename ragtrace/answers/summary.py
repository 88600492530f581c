"""A judged answer and a judged session in short: what an index keeps, what lists and charts are made of."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from ragtrace import semconv
from ragtrace.model import (
    CLAIM_LABELS,
    Direction,
    Evaluation,
    JudgedAnswer,
    Label,
    MetricFailure,
    MetricResult,
    RagRecord,
    VerdictCounts,
)
from ragtrace.traces.attach import carrier_span_id, tenant_of
from ragtrace.traces.carrier_outcomes import keyed, overall_label
from ragtrace.traces.carrier_table import Attributes, integer_of, text_of
from ragtrace.traces.trace import Span


class AnswerKey(NamedTuple):
    """Which answer: the judged span of a trace, of a tenant."""

    trace_id: str
    """32 lower-case hex digits."""
    span_id: str
    """16 lower-case hex digits."""
    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSummary:
    """The outcome of one metric."""

    name: str
    """Its name in attribute keys: ``faithfulness``; ``faithfulness.ragas`` if the metric ran twice."""
    label: Label
    score: float | None
    """In [0, 1]; ``None`` if it failed or was skipped."""
    direction: Direction = Direction.HIGHER_IS_BETTER


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSummary:
    """One evaluation of an answer, as its carrier tells it, and the question, if its text is at hand."""

    key: AnswerKey
    carrier_span_id: str
    supersedes: str = ""
    """The span id of the carrier that this one replaces."""
    time_ns: int
    """When the judged span began; Unix time in nanoseconds, as all times here."""
    judged_ns: int
    service: str = ""
    service_version: str = ""
    """``service.version``: which release of the application answered."""
    pipeline: str = ""
    """The workflow, or what the trace's root span is called: of ``ragtrace.target.root_name``."""
    question: str = field(default="", repr=False)
    """How the question begins. It is content: it goes into no log, and is sealed where content is."""
    model: str = ""
    prompt_version: str = ""
    session: str = ""
    """``session.id``, or else ``gen_ai.conversation.id``."""
    label: Label
    """Of the answer: one failing metric fails it."""
    reason: str = ""
    """Why it was skipped, or the type of the first error; empty if it passed or failed."""
    metrics: tuple[MetricSummary, ...] = ()
    claims: VerdictCounts = field(default_factory=VerdictCounts)
    """Of the claims of the answer, each once: as the metric faithfulness judges them, if it ran."""
    chunks: VerdictCounts = field(default_factory=VerdictCounts)
    """Of the relevance of the chunks."""
    blame: str = ""
    """``ragtrace.blame.class``, else ``ragtrace.diagnosis``: which part of the call failed."""
    judge: str = ""
    """``provider:model``."""
    evaluator_version: str = ""
    rule: str = ""
    """Of sampling."""
    probability: float | None = None
    """The sampling probability; ``None`` if unknown, and then averages leave the answer out."""
    cost_usd: float | None = None
    suspicion: float | None = None
    """``ragtrace.suspicion``, from 0 to 1 in thousandths; ``None`` if neither judge nor screen says it."""
    feedback: str = ""
    """``up`` or ``down``."""
    doubt: float = 0.0
    """How far from sure the verdicts are, in [0, 1] and in hundredths: the largest of twice what the least
    confident claim lacks, the share of undecided claims, and half the nearness to the other label."""
    is_disputed: bool = False
    """Whether one valid evaluation passes the answer and another fails it. Only the index knows it: a carrier
    tells of one evaluation."""

    def metric(self, name: str) -> MetricSummary | None:
        """Return the outcome of a metric, if it ran."""
        for metric in self.metrics:
            if metric.name == name:
                return metric
        return None


class ScreenedAnswer(NamedTuple):
    """An answer that a screen looked at before anyone decided whether to judge it."""

    key: AnswerKey
    service: str
    time_ns: int
    suspicion: float
    probability: float
    """With which it was screened."""


def summary_of_judged(
    answer: JudgedAnswer,
    *,
    tenant: str = "",
    counts: Mapping[str, tuple[VerdictCounts, VerdictCounts]] = MappingProxyType({}),
) -> AnswerSummary:
    """Return the summary of a judged answer.

    ``tenant`` is by default that of the application. ``counts`` has the verdicts on claims and on chunks by
    the names of the metrics, if the answer does not have them all.
    """
    record, evaluation, sample = answer.record, answer.evaluation, answer.sample
    target, key = record.target, key_of(record)
    by_name = dict(sorted(keyed(evaluation), key=lambda named: first_faithfulness(named[0])))
    results = {name: each for name, each in by_name.items() if isinstance(each, MetricResult)}
    counted = {
        name: counts.get(name) or (VerdictCounts.of(result.verdicts), VerdictCounts.of(result.chunk_verdicts))
        for name, result in results.items()
    }
    claims = _first((name, each) for name, (each, _) in counted.items() if _are_claims(name, each))
    label, judge = overall_label(evaluation), evaluation.judge
    resource = target.resource if target else {}
    suspicion = evaluation.suspicion
    if suspicion is None and sample:
        suspicion = sample.suspicion
    why = [*(failure.error_type for failure in by_name.values() if isinstance(failure, MetricFailure))]
    why += [result.skip_reason for result in results.values() if result.skip_reason]
    diagnosis = next((result.diagnosis for result in evaluation.results if result.diagnosis), "")
    near = max((_nearness(result, counted[name][0]) for name, result in results.items()), default=0.0)
    doubt = max(_unsure(evaluation), claims.unjudged / (claims.total or 1), near / 2)
    return AnswerSummary(
        key=key._replace(tenant=tenant or key.tenant),
        carrier_span_id=answer.carrier_span_id
        or carrier_span_id(
            trace_id=key.trace_id,
            span_id=key.span_id,
            evaluator_set=evaluation.evaluator_set,
            evaluator_version=evaluation.evaluator_version,
            tenant=key.tenant,
        ),
        supersedes=answer.supersedes,
        time_ns=target.start_ns if target else evaluation.started_at_ns,
        judged_ns=evaluation.started_at_ns,
        service=answer.service or "",
        service_version=text_of(resource, semconv.SERVICE_VERSION) or "",
        pipeline=(target.root_name if target else "").removeprefix(f"{semconv.OP_INVOKE_WORKFLOW} "),
        question=short_question(record),
        model=record.model or "",
        prompt_version=record.prompt_version or "",
        session=record.session_id or record.conversation_id or "",
        label=label,
        reason=str(why[0]) if why and label in (Label.ERROR, Label.SKIPPED) else "",
        metrics=tuple(
            MetricSummary(
                name=name,
                label=outcome.label,
                score=outcome.score if isinstance(outcome, MetricResult) else None,
                direction=outcome.direction if isinstance(outcome, MetricResult) else _direction(name),
            )
            for name, outcome in by_name.items()
        ),
        claims=claims,
        chunks=_first((name, of_chunks) for name, (_, of_chunks) in counted.items() if of_chunks.total),
        blame=evaluation.blame.primary or diagnosis,
        judge=judge.name if judge.provider and judge.model else judge.provider or judge.model,
        evaluator_version=next((each.evaluator_version for each in by_name.values()), ""),
        rule=sample.rule if sample else "",
        probability=answer.probability or None,
        cost_usd=answer.cost_usd,
        suspicion=None if suspicion is None else round(suspicion, 3),
        doubt=round(doubt, 2),
    )


def short_question(record: RagRecord | None) -> str:
    """Return the question on one line, as lists show it; empty without any."""
    words = " ".join(((record and record.question) or "")[: 4 * _QUESTION_CHARS].split())
    return words if len(words) <= _QUESTION_CHARS else f"{words[: _QUESTION_CHARS - 1]}…"


_QUESTION_CHARS: Final = 200


def key_of(record: RagRecord) -> AnswerKey:
    """Return which answer a record is about. Without a trace, the ids are derived from the record's."""
    if record.target is not None:
        return AnswerKey(record.target.trace_id, record.target.span_id, tenant_of(record.target))
    digest = hashlib.sha256(record.id.encode("utf-8", "replace")).hexdigest()
    return AnswerKey(digest[:32], digest[32:48])


_FIRST: Final = "faithfulness"
_COUNTS_FROM: Final = (
    *(_FIRST, "hallucination", "groundedness"),
    *("chunk_precision", "context_relevance", "context_precision"),
)
"""The metrics whose verdicts are on claims of the answer, and on chunks, the best choice first."""
_OF_OTHERS: Final = (
    *("context_recall", "factual_correctness", "noise_sensitivity"),
    *("citation_precision", "citation_recall"),
)
"""Metrics whose verdicts are not on claims by the chunks."""
_LOWER_IS_BETTER: Final = ("hallucination", "noise_sensitivity")


def first_faithfulness(name: str) -> tuple[bool, bool, str]:
    """Return the sort key of metrics for people: faithfulness, its variants, then the others by name."""
    return (name != _FIRST, base_name(name) != _FIRST, name)


def base_name(metric: str) -> str:
    """Return a metric's name without the profile that follows if it ran more than once."""
    return metric.partition(".")[0]


def _direction(name: str) -> Direction:
    """Return the direction of a metric that failed: its carrier does not say it."""
    is_lower = base_name(name) in _LOWER_IS_BETTER
    return Direction.LOWER_IS_BETTER if is_lower else Direction.HIGHER_IS_BETTER


def _are_claims(name: str, counts: VerdictCounts) -> bool:
    """Say whether these are verdicts on claims of the answer: neither on statements nor on the reference."""
    of_claims = counts.supported + counts.contradicted + counts.unsupported
    is_of_others = counts.judged > of_claims
    return base_name(name) not in _OF_OTHERS and (of_claims > 0 or (counts.total > 0 and not is_of_others))


def _first(found: Iterable[tuple[str, VerdictCounts]]) -> VerdictCounts:
    """Return the counts of the metric that tells most."""

    def rank(named: tuple[str, VerdictCounts]) -> tuple[int, str]:
        base = base_name(named[0])
        return (_COUNTS_FROM.index(base) if base in _COUNTS_FROM else len(_COUNTS_FROM), named[0])

    return min(found, key=rank, default=("", VerdictCounts()))[1]


def _unsure(evaluation: Evaluation) -> float:
    """Return twice what the least confident claim lacks: a claim as likely wrong as right has 1."""
    verdicts = (verdict for result in evaluation.results for verdict in result.verdicts)
    told = (verdict.confidence for verdict in verdicts if verdict.confidence is not None)
    return min(1.0, 2 * (1 - min(told, default=1.0)))


def _nearness(result: MetricResult, counts: VerdictCounts) -> float:
    """Return how near a metric is to the other label: by its threshold, or by claims."""
    score, threshold = result.score, result.threshold
    if score is None:
        return 0.0
    if threshold is not None and 0 <= threshold <= 1:
        return 1 - abs(score - threshold) / max(threshold, 1 - threshold)
    wrong = counts.contradicted + counts.unsupported
    return 1 / wrong if wrong else 0.0


FACTS: Final = (
    *("trace_id", "span_id", "tenant", "carrier_span_id", "time", "judged_at", "service", "service_version"),
    *("pipeline", "model", "prompt_version", "session", "label", "reason", "blame"),
    *(f"claims_{label.value}" for label in CLAIM_LABELS),
    *("judge", "evaluator_version", "sample_rule", "sample_probability", "suspicion", "cost_usd", "feedback"),
)


def facts_of(answer: AnswerSummary) -> dict[str, str | float | int | None]:
    """Return the facts without metrics, always in this order. None is content; times are UTC in ISO 8601."""
    told = {
        **answer.key._asdict(),
        "time": _iso(answer.time_ns),
        "judged_at": _iso(answer.judged_ns),
        **{f"claims_{label.value}": getattr(answer.claims, label.value) for label in CLAIM_LABELS},
        "sample_rule": answer.rule,
        "sample_probability": answer.probability,
    }
    return {name: told[name] if name in told else getattr(answer, name) for name in FACTS}


def row_of(answer: AnswerSummary) -> dict[str, str | float | int | None]:
    """Return the facts with the question, for an export or a program that follows answers."""
    return {**facts_of(answer), "question": answer.question}


def metrics_of(answer: AnswerSummary) -> dict[str, dict[str, str | float | None]]:
    """Return label and score of each metric by its name."""
    return {metric.name: {"label": metric.label.value, "score": metric.score} for metric in answer.metrics}


def _iso(time_ns: int) -> str:
    moment = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ns // 1_000_000 % 1_000:03d}Z"


_MIDDLE: Final = 0.5


class GivenFeedback(NamedTuple):
    """One span of feedback."""

    span_id: str
    """The span that it is on; empty if it names only the trace."""
    thumbs: str
    """``up`` or ``down``."""


def feedback_in(spans: Iterable[Span]) -> Iterator[GivenFeedback]:
    """Yield the feedback among spans of a trace, the oldest first: the last one on an answer counts.

    Feedback with a score alone is up above 0.5 and down below it; a comment alone is neither.
    """
    given = [span for span in spans if semconv.FEEDBACK_NAME in span.attributes]
    for span in sorted(given, key=lambda span: (span.end_ns, span.span_id)):
        thumbs = _thumbs(span)
        if thumbs:
            named = text_of(span.attributes, semconv.TARGET_SPAN_ID)
            yield GivenFeedback(named or span.parent_span_id or "", thumbs)


def _thumbs(span: Span) -> str:
    label, score = span.attributes.get(semconv.FEEDBACK_LABEL), span.attributes.get(semconv.FEEDBACK_SCORE)
    if label in ("up", "down"):
        return str(label)
    if not isinstance(score, (int, float)) or score == _MIDDLE:
        return ""
    return "up" if score > _MIDDLE else "down"


_MOST: Final = 1_000_000
_TRACE_ID: Final = re.compile("[0-9a-f]{32}")
_SPAN_ID: Final = re.compile("[0-9a-f]{16}")
_LABELS: Final = frozenset((Label.PASS, Label.FAIL, Label.SKIPPED))


class FaultKind(StrEnum):
    """What a claim of a later turn has to do with an earlier one."""

    CONTRADICTION = "contradiction"
    REPEATED = "repeated"
    CORRECTION = "correction"
    """No fault: the earlier claim was wrong, and this one is supported."""


_KINDS: Final[Mapping[str, FaultKind]] = {
    semconv.SESSION_CONTRADICTION_EVENT: FaultKind.CONTRADICTION,
    semconv.SESSION_REPEATED_EVENT: FaultKind.REPEATED,
    semconv.SESSION_CORRECTION_EVENT: FaultKind.CORRECTION,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFault:
    """A claim of a later turn, and the earlier turn that it has to do with."""

    kind: FaultKind
    turn: int
    """Its number, from 1."""
    answer: AnswerKey
    earlier_turn: int
    earlier: AnswerKey


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A judged session, as its span tells it. It holds no text under judgment."""

    session: str
    tenant: str = ""
    trace_id: str
    """Of its last answer, as the next."""
    answer_span_id: str
    span_id: str
    """Of the session's span."""
    supersedes: str = ""
    time_ns: int
    """When its span ends; Unix time in nanoseconds."""
    label: Label
    turns: int
    decided: int
    faithful: int
    contradictions: int = 0
    repeated: int = 0
    corrections: int = 0
    unchecked: int = 0
    faults: tuple[SessionFault, ...] = ()
    """The latest of each kind first, as many as the span has."""

    @property
    def faithful_share(self) -> float | None:
        """Faithful / decided; ``None`` if none is decided."""
        return min(1.0, self.faithful / self.decided) if self.decided else None

    @property
    def last(self) -> AnswerKey:
        """The last answer."""
        return AnswerKey(self.trace_id, self.answer_span_id, self.tenant)


def session_summary_of(span: Span, *, tenant: str = "") -> SessionSummary | None:
    """Read the summary of a session from its span; ``None`` if it is no such span, or under no answer.

    Faults that name no answer are left out.
    ``tenant`` is by default that of the span's resource.
    """
    told = span.attributes
    session, label = text_of(told, semconv.SESSION_ID), text_of(told, semconv.SESSION_LABEL)
    if span.scope.name != semconv.SCOPE_EVALUATION or not session or not span.parent_span_id:
        return None
    if label is None or label not in _LABELS:
        return None
    owner = tenant or text_of(span.resource.attributes, semconv.TENANT) or ""
    return SessionSummary(
        session=session,
        tenant=owner,
        trace_id=span.trace_id,
        answer_span_id=span.parent_span_id,
        span_id=span.span_id,
        supersedes=text_of(told, semconv.SESSION_SUPERSEDES) or "",
        time_ns=span.end_ns,
        label=Label(label),
        turns=_count(told, semconv.SESSION_TURNS),
        decided=_count(told, semconv.SESSION_DECIDED),
        faithful=_count(told, semconv.SESSION_FAITHFUL),
        contradictions=_count(told, semconv.SESSION_CONTRADICTIONS),
        repeated=_count(told, semconv.SESSION_REPEATED),
        corrections=_count(told, semconv.SESSION_CORRECTIONS),
        unchecked=_count(told, semconv.SESSION_UNCHECKED),
        faults=tuple(fault for fault, _ in _faults(span, owner)),
    )


def fault_texts(span: Span, *, tenant: str = "") -> Mapping[SessionFault, tuple[tuple[str, str], ...]]:
    """Return claim and quote of each fault of a session's span, if it was written with content."""
    found: dict[SessionFault, tuple[tuple[str, str], ...]] = {}
    for fault, told in _faults(span, tenant):
        claim, quote = text_of(told, semconv.CLAIM_ASSERTION), text_of(told, semconv.CLAIM_QUOTE)
        if claim and quote:
            found[fault] = (*found.get(fault, ()), (claim, quote))
    return found


def _faults(span: Span, tenant: str) -> Iterator[tuple[SessionFault, Attributes]]:
    for event in span.events:
        kind, told = _KINDS.get(event.name), event.attributes
        answer = _key(told, semconv.SESSION_TURN_TRACE_ID, semconv.SESSION_TURN_SPAN_ID, tenant)
        earlier = _key(told, semconv.SESSION_EARLIER_TRACE_ID, semconv.SESSION_EARLIER_SPAN_ID, tenant)
        if kind is not None and answer is not None and earlier is not None:
            fault = SessionFault(
                kind=kind,
                turn=_count(told, semconv.SESSION_TURN),
                answer=answer,
                earlier_turn=_count(told, semconv.SESSION_EARLIER_TURN),
                earlier=earlier,
            )
            yield fault, told


def _key(told: Attributes, trace_id: str, span_id: str, tenant: str) -> AnswerKey | None:
    trace, span = text_of(told, trace_id) or "", text_of(told, span_id) or ""
    is_key = _TRACE_ID.fullmatch(trace) and _SPAN_ID.fullmatch(span)
    return AnswerKey(trace, span, tenant) if is_key else None


def _count(told: Attributes, key: str) -> int:
    return min(max(integer_of(told, key) or 0, 0), _MOST)
