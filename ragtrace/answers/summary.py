"""One judged answer in short: what an index keeps, and what lists and charts are made of."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias

from ragtrace import semconv
from ragtrace.model import (
    AttributeValue,
    Direction,
    JudgedAnswer,
    JudgeIdentity,
    Label,
    RagRecord,
    Sample,
    Target,
    VerdictCounts,
)
from ragtrace.traces.attach import AttachOptions, carrier, tenant_of
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
        return next((metric for metric in self.metrics if metric.name == name), None)


class ScreenedAnswer(NamedTuple):
    """An answer that a screen looked at before anyone decided whether to judge it."""

    key: AnswerKey
    service: str
    time_ns: int
    suspicion: float
    probability: float
    """With which it was screened."""


def summary_of(carrier: Span, *, tenant: str = "") -> AnswerSummary | None:
    """Read the summary of an answer from its carrier alone; ``None`` if the span is no carrier.

    Of a carrier of a newer schema version, or one that a back end has changed, it reads what it can.
    ``tenant`` is by default that of the carrier's resource. Feedback is on other spans.
    """
    answer_span = carrier.parent_span_id or _text(carrier.attributes.get(semconv.TARGET_SPAN_ID))
    if not answer_span or not _is_carrier(carrier):
        return None
    told, resource = carrier.attributes, carrier.resource.attributes
    results = _results(carrier)
    metrics = tuple(_metrics(told, results))
    label = _label(carrier, metrics)
    claims = _claims(carrier, results)
    suspicion = _share(told.get(semconv.SUSPICION))
    return AnswerSummary(
        key=AnswerKey(carrier.trace_id, answer_span, tenant or _text(resource.get(semconv.TENANT))),
        carrier_span_id=carrier.span_id,
        supersedes=_text(told.get(semconv.EVAL_SUPERSEDES)),
        time_ns=_time_ns(told.get(semconv.TARGET_START)) or carrier.start_ns,
        judged_ns=_time_ns(told.get(semconv.EVAL_STARTED_AT)) or carrier.end_ns,
        service=_text(resource.get(semconv.SERVICE_NAME)),
        service_version=_text(resource.get(semconv.SERVICE_VERSION)),
        pipeline=_text(told.get(semconv.TARGET_ROOT_NAME)).removeprefix(f"{semconv.OP_INVOKE_WORKFLOW} "),
        model=_text(told.get(semconv.TARGET_MODEL)),
        prompt_version=_text(told.get(semconv.TARGET_PROMPT_VERSION)),
        session=_text(told.get(semconv.SESSION_ID)) or _text(told.get(semconv.CONVERSATION_ID)),
        label=label,
        reason=_reason(told, results) if label in (Label.ERROR, Label.SKIPPED) else "",
        metrics=metrics,
        claims=claims,
        chunks=_chunks(results),
        blame=_text(told.get(semconv.BLAME_CLASS)) or _text(told.get(semconv.DIAGNOSIS)),
        judge=_judge(told),
        evaluator_version=_evaluator_version(results),
        rule=_text(told.get(semconv.SAMPLE_RULE)),
        probability=_probability(told.get(semconv.SAMPLE_PROBABILITY)),
        cost_usd=_cost(told.get(semconv.JUDGE_COST_USD)),
        suspicion=None if suspicion is None else round(suspicion, 3),
        doubt=round(max(_unsure(carrier), claims.unjudged / (claims.total or 1), _near(told, results)), 2),
    )


def summary_of_judged(answer: JudgedAnswer) -> AnswerSummary:
    """Return the summary of a judged answer, such as a row of a report: what its carrier would tell."""
    record, key = answer.record, key_of(answer.record)
    started_ns = answer.evaluation.started_at_ns
    target = record.target or Target(
        trace_id=key.trace_id, span_id=key.span_id, start_ns=started_ns, end_ns=started_ns
    )
    span = carrier(
        answer.evaluation,
        replace(record, target=target),
        sample=answer.sample or Sample(rule="", rate=1.0, probability=1.0),
        options=AttachOptions(content=False),
        now_ns=started_ns,
        cost_usd=answer.cost_usd,
    )
    summary = summary_of(span)
    assert summary is not None  # it was just built as a carrier
    return replace(
        summary, carrier_span_id=answer.carrier_span_id or span.span_id, question=short_question(record)
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
_CLAIMS_FROM: Final = (_FIRST, "hallucination", "groundedness")
"""The metrics whose verdicts are on the claims of the answer, the best choice first."""
_OF_REFERENCE: Final = "context_recall"
_CHUNKS_FROM: Final = ("chunk_precision", "context_relevance", "context_precision")
_LOWER_IS_BETTER: Final = "hallucination"
_SUPPORT: Final = ("supported", "contradicted", "unsupported", "unjudged")
_RELEVANCE: Final = ("relevant", "partly_relevant", "irrelevant", "unjudged")
_LABELS: Final = frozenset(Label)

_Attributes: TypeAlias = Mapping[str, AttributeValue]


def first_faithfulness(name: str) -> tuple[bool, bool, str]:
    """Return the sort key of metrics for people: faithfulness, its variants, then the others by name."""
    return (name != _FIRST, base_name(name) != _FIRST, name)


def base_name(metric: str) -> str:
    """Return a metric's name without the profile that follows if it ran more than once."""
    return metric.partition(".")[0]


def _is_carrier(span: Span) -> bool:
    told = span.attributes
    if span.scope.name != semconv.SCOPE_EVALUATION:  # some back ends keep no scopes
        return semconv.SCHEMA in told and told.get(semconv.OI_KIND) == semconv.OI_EVALUATOR
    return semconv.SCHEMA in told or any(key.startswith(semconv.LABEL_PREFIX) for key in told)


def _results(carrier: Span) -> dict[str, _Attributes]:
    """Return the attributes of each metric's event by the metric's name, in the order of the carrier."""
    named = (
        (_text(event.attributes.get(semconv.EVALUATION_NAME)), event.attributes)
        for event in carrier.events
        if event.name == semconv.EVALUATION_RESULT
    )
    return {name: told for name, told in named if name}


def _metrics(told: _Attributes, results: Mapping[str, _Attributes]) -> Iterator[MetricSummary]:
    prefixes = (semconv.LABEL_PREFIX, semconv.SCORE_PREFIX)
    flat = {key.removeprefix(prefix) for prefix in prefixes for key in told if key.startswith(prefix)}
    for name in sorted(flat | results.keys(), key=first_faithfulness):
        result = results.get(name, {})
        given = told.get(f"{semconv.SCORE_PREFIX}{name}", result.get(semconv.EVALUATION_SCORE))
        label = told.get(f"{semconv.LABEL_PREFIX}{name}", result.get(semconv.EVALUATION_LABEL))
        score = _share(given)
        known = Label(str(label)) if label in _LABELS else Label.ERROR if score is None else None
        if known is not None:
            yield MetricSummary(name=name, label=known, score=score, direction=_direction(name, result))


def _direction(name: str, result: _Attributes) -> Direction:
    told = result.get(semconv.DIRECTION)
    if told in frozenset(Direction):
        return Direction(str(told))
    is_lower = base_name(name) == _LOWER_IS_BETTER
    return Direction.LOWER_IS_BETTER if is_lower else Direction.HIGHER_IS_BETTER


def _label(carrier: Span, metrics: Sequence[MetricSummary]) -> Label:
    passed = carrier.attributes.get(semconv.PASS)
    if isinstance(passed, bool):
        return Label.PASS if passed else Label.FAIL
    labels = {metric.label for metric in metrics}
    by_metric = (label for label in (Label.FAIL, Label.PASS, Label.ERROR) if label in labels)
    named = carrier.name.removeprefix(f"{semconv.CARRIER_NAME_PREFIX} ")
    return next(by_metric, Label(named) if named in _LABELS and not labels else Label.SKIPPED)


def _reason(told: _Attributes, results: Mapping[str, _Attributes]) -> str:
    in_order = sorted(results, key=first_faithfulness)
    failures = (_text(results[name].get(semconv.ERROR_TYPE)) for name in in_order)
    return next(filter(None, failures), "") or _text(told.get(semconv.EVAL_SKIP_REASON))


def _claims(carrier: Span, results: Mapping[str, _Attributes]) -> VerdictCounts:
    names = _preferred(results, _CLAIMS_FROM)
    for name in (name for name in names if base_name(name) != _OF_REFERENCE):
        if f"{semconv.CLAIMS_PREFIX}supported" in results[name]:
            return _counts(results[name], semconv.CLAIMS_PREFIX, _SUPPORT)
    verdicts = Counter(_text(event.attributes.get(semconv.CLAIM_VERDICT)) for event in carrier.events)
    return VerdictCounts(**{word: verdicts[word] for word in _SUPPORT})


def _chunks(results: Mapping[str, _Attributes]) -> VerdictCounts:
    for name in _preferred(results, _CHUNKS_FROM):
        if f"{semconv.CHUNKS_PREFIX}relevant" in results[name]:
            return _counts(results[name], semconv.CHUNKS_PREFIX, _RELEVANCE)
    return VerdictCounts()


def _preferred(names: Iterable[str], first: Sequence[str]) -> list[str]:
    def rank(name: str) -> tuple[int, str]:
        base = base_name(name)
        return (first.index(base) if base in first else len(first), name)

    return sorted(names, key=rank)


def _counts(told: _Attributes, prefix: str, words: Sequence[str]) -> VerdictCounts:
    return VerdictCounts(**{word: _count(told.get(f"{prefix}{word}")) for word in words})


def _unsure(carrier: Span) -> float:
    """Return twice what the least confident claim lacks: a claim as likely wrong as right has 1."""
    told = (_share(event.attributes.get(semconv.CLAIM_CONFIDENCE)) for event in carrier.events)
    confidence = min((share for share in told if share is not None), default=1.0)
    return min(1.0, 2 * (1 - confidence))


def _near(told: _Attributes, results: Mapping[str, _Attributes]) -> float:
    """Return how near the nearest metric is to the other label, halved: by its threshold, or by claims."""
    return max((_nearness(name, told, result) for name, result in results.items()), default=0.0) / 2


def _nearness(name: str, told: _Attributes, result: _Attributes) -> float:
    score = _share(result.get(semconv.EVALUATION_SCORE))
    given = result.get(semconv.THRESHOLD, told.get(f"{semconv.THRESHOLD_PREFIX}{name}"))
    threshold = _share(given)
    if score is None:
        return 0.0
    if threshold is not None:
        return 1 - abs(score - threshold) / max(threshold, 1 - threshold)
    counts = _counts(result, semconv.CLAIMS_PREFIX, _SUPPORT)
    wrong = counts.contradicted + counts.unsupported
    return 1 / wrong if wrong else 0.0


def _judge(told: _Attributes) -> str:
    parts = [_text(told.get(key)) or "" for key in (semconv.JUDGE_PROVIDER, semconv.JUDGE_MODEL)]
    screen = _text(told.get(semconv.JUDGE_SCREEN)) or ""
    if not all(parts):
        return "".join(parts)
    return JudgeIdentity(provider=parts[0], model=parts[1], screen=screen).name


def _evaluator_version(results: Mapping[str, _Attributes]) -> str:
    names = sorted(results, key=first_faithfulness)
    versions = (_text(results[name].get(semconv.EVALUATOR_VERSION)) for name in names)
    return next(filter(None, versions), "")


def _text(value: AttributeValue) -> str:
    return value if isinstance(value, str) else ""


def _number(value: AttributeValue) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type]


def _share(value: AttributeValue) -> float | None:
    number = _number(value)
    return number if number is not None and 0 <= number <= 1 else None


def _probability(value: AttributeValue) -> float | None:
    return _share(value) or None  # averages divide by it


def _cost(value: AttributeValue) -> float | None:
    number = _number(value)
    return number if number is not None and number >= 0 else None


def _count(value: AttributeValue) -> int:
    number = _number(value)
    return min(int(number), _MOST_COUNTED) if number is not None and number > 0 else 0


_MOST_COUNTED: Final = 1_000_000


def _time_ns(value: AttributeValue) -> int | None:
    """Parse an RFC 3339 time in UTC with nanoseconds, as carriers have it."""
    found = _RFC3339.fullmatch(_text(value))
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(f"{found[1]}+00:00")
    except ValueError:
        return None
    since = moment - datetime.fromtimestamp(0, UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + int((found[2] or "").ljust(9, "0"))


_RFC3339: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")
