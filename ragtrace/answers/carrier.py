"""Read carriers back, and open an answer of a trace: its record, its evaluations, what people say of it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Annotated, Any, Final, NamedTuple, TypeVar

from pydantic import BaseModel, Field, ValidationError

from ragtrace import semconv
from ragtrace.answers.port import AnswerGone, AnswerVersion, OpenedAnswer
from ragtrace.answers.shown import counted
from ragtrace.answers.summary import AnswerKey, AnswerSummary, first_faithfulness, summary_of_judged
from ragtrace.model import (
    Blame,
    Chunk,
    ChunkVerdict,
    Claim,
    Compat,
    Diagnosis,
    Direction,
    Evaluation,
    Fault,
    Intermediate,
    JudgedAnswer,
    JudgeIdentity,
    Label,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    RagRecord,
    Sample,
    SkipReason,
    StepRun,
    Target,
    Usage,
    Verdict,
    VerdictCounts,
    VerdictLabel,
    content_sha256,
    evaluator_set_of,
    version_of_set,
)
from ragtrace.traces import carrier_table as table
from ragtrace.traces.attach import carrier_span_id
from ragtrace.traces.carrier_table import Attributes, integer_of, number_of, text_of, texts_of
from ragtrace.traces.extract import ExtractRules, extract_records, is_evaluator
from ragtrace.traces.trace import Scope, Span, SpanEvent, Trace

VerdictT = TypeVar("VerdictT", Verdict, ChunkVerdict)
ModelT = TypeVar("ModelT", bound=BaseModel)

_HELD: Final = "hold"
_ADDED_PREFIXES: Final = (
    semconv.EVAL_PREFIX,
    semconv.SCORE_PREFIX,
    semconv.LABEL_PREFIX,
    semconv.THRESHOLD_PREFIX,
    semconv.PASS_WHEN_PREFIX,
    semconv.COMPAT_STATUS_PREFIX,
    semconv.COMPAT_SCORE_PREFIX,
    f"{semconv.BLAME_EVENT}.",
    f"{semconv.OI_EVALUATIONS}.",
)
_ADDED_EVENTS: Final = (
    semconv.EVALUATION_RESULT,
    semconv.CLAIM_EVENT_PREFIX,
    semconv.REFERENCE_EVENT_PREFIX,
    semconv.CHUNK_EVENT_PREFIX,
    semconv.BLAME_EVENT,
)


def is_carrier(span: Span) -> bool:
    """Return whether the span is a carrier of ragtrace, of its own or in hold mode."""
    if span.scope.name != semconv.SCOPE_EVALUATION:
        is_whole = span.attributes.get(semconv.OI_KIND) == semconv.OI_EVALUATOR and (
            semconv.SCHEMA in span.attributes  # some back ends keep no scopes
        )
        return is_held(span) or (is_whole and target_span_id(span) is not None)
    return target_span_id(span) is not None and _has_outcome(span)


def is_held(span: Span) -> bool:
    """Return whether the span is an answer to which its scores were added in hold mode."""
    return span.attributes.get(semconv.EVAL_MODE) == _HELD and span.scope.name != semconv.SCOPE_EVALUATION


def target_span_id(carrier: Span) -> str | None:
    """Return the span that a carrier is about."""
    if is_held(carrier):
        return carrier.span_id
    linked = (link.span_id for link in carrier.links if link.trace_id == carrier.trace_id)
    named = text_of(carrier.attributes, semconv.TARGET_SPAN_ID)
    return named or next(linked, None) or carrier.parent_span_id


def without_scores(span: Span) -> Span:
    """Return the answer span as the application sent it, without what hold mode added.

    An answer with scores looks like an evaluation, and evaluations have no record.
    """
    if not is_held(span):
        return span
    kept = {key: value for key, value in span.attributes.items() if not key.startswith(_ADDED_PREFIXES)}
    events = tuple(event for event in span.events if not event.name.startswith(_ADDED_EVENTS))
    return replace(span, attributes=kept, events=events)


def as_carrier(span: Span) -> Span:
    """Return the carrier; for an answer with its scores, the carrier that it would have."""
    if not is_held(span):
        return span
    held = read_carrier(span, RagRecord(id="", question=None, chunks=(), answer=None))
    return replace(
        span,
        span_id=held.evaluation_id,
        parent_span_id=span.span_id,
        scope=Scope(name=semconv.SCOPE_EVALUATION, version=span.scope.version),
        attributes={**span.attributes, semconv.TARGET_SPAN_ID: span.span_id},
    )


def told_by(carrier: Span) -> RagRecord:
    """Return what the carrier says of an answer, without content: for one whose span cannot be read."""
    told = table.ANSWER.read(carrier.attributes).get("record", {})
    of_target = {"start_ns": carrier.start_ns, "end_ns": carrier.end_ns, **told.pop("target", {})}
    of_target["trace_id"] = carrier.trace_id
    of_target["span_id"] = target_span_id(carrier) or carrier.span_id
    resource = carrier.resource
    target = Target(**of_target, resource=resource.attributes, resource_schema_url=resource.schema_url)
    name = f"{target.trace_id}:{target.span_id}"
    return RagRecord(id=name, question=None, chunks=(), answer=None, target=target, **told)


def summary_of(carrier: Span) -> AnswerSummary | None:
    """Read the summary of an answer from its carrier alone; ``None`` if the span is no carrier.

    Of a carrier of a newer schema version, or one that a back end has changed, it reads what it can.
    The tenant is that of the carrier's resource. Feedback is on other spans.
    """
    if is_held(carrier) or not is_carrier(carrier):
        return None
    judged = read_carrier(carrier, told_by(carrier)).judged
    results = _results(carrier)
    counts = {
        key: (_counts(told, semconv.CLAIMS_PREFIX), _counts(told, semconv.CHUNKS_PREFIX))
        for key, told in results.items()
    }
    there = {key: each for key, each in counts.items() if any(of.total for of in each)}
    summary = summary_of_judged(judged, counts=there)
    suspicion = table.share_of(carrier.attributes, semconv.SUSPICION)
    cause = text_of(carrier.attributes, semconv.BLAME_CLASS) or text_of(carrier.attributes, semconv.DIAGNOSIS)
    return replace(
        summary, suspicion=None if suspicion is None else round(suspicion, 3), blame=cause or summary.blame
    )


def _counts(told: Attributes, prefix: str) -> VerdictCounts:
    """Return how many verdicts there were, also of those that the carrier left out."""
    named = {word: f"{prefix}{word}" for word in _WORDS if f"{prefix}{word}" in told}
    counted = {word: table.COUNT.read(told, key) or 0 for word, key in named.items()}
    return VerdictCounts(**{word: min(number, _MOST_COUNTED) for word, number in counted.items()})


_MOST_COUNTED: Final = 1_000_000
_WORDS: Final = {label.value: label for label in VerdictLabel}
_REASONS: Final = {reason.value: reason for reason in SkipReason}


def read_carrier(carrier: Span, record: RagRecord) -> AnswerVersion:
    """Read an evaluation from its carrier, or, in hold mode, from the answer span.

    The carrier has what a person looks at. It leaves out, and so does the result: claims and chunks beyond
    its limits, the calls of single metrics, intermediate results beyond 16, and whether an undecided verdict
    was left out by the judge. Explanation and reason of a metric are one text. Outcomes are in one order for
    all places: faithfulness first, then by name.

    Whatever is missing, unreadable or different today becomes a notice, never an exception and never a
    score.
    """
    verdicts, judge = _read_verdicts(carrier, record), _read_judge(carrier)
    outcomes, unreadable = _read_outcomes(carrier, verdicts, judge)
    told = table.ANSWER.read(carrier.attributes)
    run, sample = told["evaluation"], told.get("sample", {})
    rate = sample.get("rate", sample.get("probability"))
    evaluation = Evaluation(
        record_id=record.id,
        outcomes=tuple(outcomes.values()),
        judge=judge,
        evaluator_set=evaluator_set_of((outcome.metric, outcome.profile) for outcome in outcomes.values()),
        evaluator_version=version_of_set([outcome.evaluator_version for outcome in outcomes.values()]),
        run_id=run.get("run_id", ""),
        started_at_ns=run.get("started_at_ns", carrier.start_ns),
        duration_ms=run.get("duration_ms", 0),
        input_sha256=run.get("input_sha256", ""),
        input_truncated=run["input_truncated"],
        usage=Usage(**run.get("usage", {})),
        compromised=table.flag_of(carrier.attributes, semconv.EVAL_COMPROMISED),
        blame=_read_blame(carrier),
        judge_card=run.get("judge_card", ""),
    )
    notices = (
        *_about_schema(carrier.attributes),
        *unreadable,
        *_about_record(evaluation, record),
        *_about_room(carrier, outcomes, verdicts),
        *_about_events(verdicts.faults, record),
    )
    return AnswerVersion(
        judged=JudgedAnswer(
            record=record,
            evaluation=evaluation,
            sample=Sample(rule=sample["rule"], rate=rate, probability=sample.get("probability"))
            if "rule" in sample and rate is not None
            else None,
            carrier_span_id=None if is_held(carrier) else carrier.span_id,
            supersedes=told.get("supersedes", ""),
            cost_usd=told.get("cost_usd"),
        ),
        evaluation_id=_evaluation_id(carrier, evaluation),
        carrier=carrier,
        notices=tuple(dict.fromkeys(notices)),
    )


def _has_outcome(span: Span) -> bool:
    keys = (semconv.EVAL_STATUS, semconv.EVAL_STARTED_AT, semconv.SCHEMA)
    return any(key in span.attributes for key in keys) or any(
        key.startswith(semconv.LABEL_PREFIX) for key in span.attributes
    )


def _evaluation_id(carrier: Span, evaluation: Evaluation) -> str:
    if not is_held(carrier):
        return carrier.span_id
    return carrier_span_id(
        trace_id=carrier.trace_id,
        span_id=carrier.span_id,
        evaluator_set=evaluation.evaluator_set,
        evaluator_version=evaluation.evaluator_version,
        tenant=text_of(carrier.resource.attributes, semconv.TENANT) or "",
    )


def _about_schema(told: Attributes) -> Iterator[str]:
    schema, known = integer_of(told, semconv.SCHEMA), int(semconv.SCHEMA_VERSION)
    if schema is not None and schema > known:
        yield (
            f"A newer ragtrace wrote this carrier (schema version {schema}, and this one reads {known}): what"
            " is new in it is not shown"
        )
    if semconv.SCHEMA not in told:
        yield "This place keeps scores, not the whole carrier: tokens and cost of the run are missing"


def _about_record(evaluation: Evaluation, record: RagRecord) -> Iterator[str]:
    judged = evaluation.input_sha256
    if judged and record.provenance and judged != content_sha256(record):
        yield (
            "The trace reads differently today: question, chunks and answer below are not exactly what the"
            " judge saw"
        )


def _about_room(
    carrier: Span, outcomes: Mapping[str, MetricOutcome], verdicts: EventVerdicts
) -> Iterator[str]:
    """Say how many verdicts the carrier, or the back end, left out."""
    told = _results(carrier)
    for key, outcome in outcomes.items():
        if not isinstance(outcome, MetricResult):
            continue
        for prefix, kept, noun in (
            (semconv.CLAIMS_PREFIX, len(verdicts.claims.get(key, ())), "claims"),
            (semconv.CHUNKS_PREFIX, len(verdicts.chunks.get(key, ())), "chunks"),
        ):
            total = integer_of(told.get(key, {}), f"{prefix}total") or 0
            if kept < total:
                yield f"{kept:,} of {total:,} {noun} are on the trace; the failing ones first"


def _about_events(faults: Counter[str], record: RagRecord) -> Iterator[str]:
    if unreadable := faults["unreadable"]:
        yield f"{counted(unreadable, 'verdict')} on this carrier cannot be read, and left out"
    if faults["without_text"]:
        shown = "claims have verdicts but no words, because the answer is not there either"
        if record.answer is not None:
            shown = "passages of the answer are shown as its claims"
        yield f"This carrier has no texts (`attach.content` is false): {shown}"
    if unverified := faults["unverified"]:
        quotes = counted(unverified, "quote is", "quotes are")
        yield f"{quotes} not in the chunks any more, and shown as unverified"


def _read_blame(carrier: Span) -> Blame:
    """Read the causes. One of a newer ragtrace is left out."""
    events = (event.attributes for event in carrier.events if event.name == semconv.BLAME_EVENT)
    found = [{"why": "", **table.FAULT.read(told)} for told in events]
    return Blame(
        faults=tuple(Fault(**told) for told in found if "blame" in told),
        missing=texts_of(carrier.attributes, semconv.BLAME_MISSING),
    )


# -- outcomes ---------------------------------------------------------------------------------------------
_OWN_PROFILE: Final = "ragtrace"
_COMPOSITE: Final = "rag_score"
_UNREADABLE: Final = "unreadable_carrier"
_UNKNOWN_ERROR: Final = "unknown"


def _read_judge(carrier: Span) -> JudgeIdentity:
    """Return the judge of the whole evaluation."""
    judges = [judge for event in _results(carrier).values() if (judge := _judge_in(event))]
    provider = text_of(carrier.attributes, semconv.JUDGE_PROVIDER)
    model = text_of(carrier.attributes, semconv.JUDGE_MODEL)
    if provider is None and model is None and judges:
        return judges[0]
    screen = text_of(carrier.attributes, semconv.JUDGE_SCREEN)
    whole = JudgeIdentity(provider=provider or "", model=model or "", screen=screen or "")
    return next((judge for judge in judges if judge.named == whole.named), whole)


def _read_outcomes(
    carrier: Span, verdicts: EventVerdicts, judge: JudgeIdentity
) -> tuple[Mapping[str, MetricOutcome], tuple[str, ...]]:
    """Return the outcomes by name, faithfulness first, and sentences on what is unreadable."""
    events, span, notices = _results(carrier), carrier.attributes, []
    prefix, outcomes = semconv.LABEL_PREFIX, dict[str, MetricOutcome]()
    labeled = (key.removeprefix(prefix) for key in span if key.startswith(prefix))
    # in one order everywhere: events begin with failed metrics, and back ends sort keys
    for key in sorted({*labeled, *events}, key=first_faithfulness):
        outcomes[key] = outcome = _outcome(key, events.get(key, {}), span, verdicts, judge)
        if isinstance(outcome, MetricFailure) and outcome.error_type == _UNREADABLE:
            notices.append(f"{key}: {outcome.message}")
        elif isinstance(outcome, MetricResult) and outcome.score is None and outcome.skip_reason is None:
            notices.append(f"{key} was skipped, and the carrier does not say why")
    return _with_diagnosis(outcomes, span), tuple(notices)


def _results(carrier: Span) -> Mapping[str, Attributes]:
    named = (event for event in carrier.events if event.name == semconv.EVALUATION_RESULT)
    return {
        name: event.attributes
        for event in named
        if (name := text_of(event.attributes, semconv.EVALUATION_NAME))
    }


def _outcome(
    key: str, event: Attributes, span: Attributes, verdicts: EventVerdicts, judge: JudgeIdentity
) -> MetricOutcome:
    """Read an outcome from its event and, what that does not say, from the attributes of the span."""
    told = {**table.METRIC.read(span, metric=key), **table.RESULT.read(event)}
    profile, found, metric = (text_of(event, semconv.EVALUATOR_ID) or "").partition("/")
    explanation, compat = told.pop("explanation", ""), told.pop("compat", {})
    common: dict[str, Any] = {
        "metric": metric if found else key,
        "profile": profile if found else _OWN_PROFILE,
        "evaluator_version": told.pop("evaluator_version", ""),
        "usage": Usage(**told.pop("usage", {})),
        "compat": Compat(**compat) if "status" in compat else None,
        "duration_ms": told.pop("duration_ms", 0),
        "steps": _read_steps(event),
    }
    error_type, label = told.pop("error_type", ""), told.pop("label", None)
    score, threshold, why = told.pop("score", None), told.pop("threshold", None), ""
    if error_type or label is Label.ERROR:
        error_type = error_type or _in_brief(key, span) or _UNKNOWN_ERROR
    elif label is not Label.SKIPPED and (score is None or not 0 <= score <= 1):
        error_type, why = _UNREADABLE, "its carrier has no readable score"
    elif label is None and threshold is None:
        error_type, why = _UNREADABLE, "its carrier says neither whether it passed nor where it passes"
    if error_type:
        return MetricFailure(error_type=error_type, message=why or explanation or error_type, **common)
    is_skipped, own = label is Label.SKIPPED, _judge_in(event)
    said = (explanation, text_of(span, semconv.EVAL_SKIP_REASON))
    reason = next((_REASONS[word] for word in said if word in _REASONS), None)
    skip_reason = told.pop("skip_reason", None) or reason
    result = MetricResult(
        **{"direction": Direction.HIGHER_IS_BETTER, **told},
        **common,
        score=None if is_skipped else score,
        threshold=threshold,
        skip_reason=skip_reason if is_skipped else None,
        explanation=explanation,
        verdicts=tuple(verdicts.claims.get(key, ())),
        chunk_verdicts=tuple(verdicts.chunks.get(key, ())),
        details={
            name.removeprefix(semconv.DETAIL_PREFIX): value
            for name in event
            if name.startswith(semconv.DETAIL_PREFIX) and (value := number_of(event, name)) is not None
        },
        intermediate=_read_intermediate(event),
        judge=None if own is None or own.named == judge.named else own,
    )
    # the label is the one that was written, whatever rule gave it
    is_by_rule = threshold is None or (label is not None and result.label is not label)
    return result if is_skipped or not is_by_rule else replace(result, passed=label is Label.PASS)


def _in_brief(key: str, span: Attributes) -> str | None:
    brief = text_of(span, semconv.BRIEF) or ""
    found = re.search(rf"(?:^|; ){re.escape(key)} error: (\w+)(?:;|$)", brief)
    return found[1] if found else None


def _judge_in(event: Attributes) -> JudgeIdentity | None:
    provider, model = text_of(event, semconv.JUDGE_PROVIDER), text_of(event, semconv.JUDGE_MODEL)
    if provider is None or model is None:
        return None
    kind = text_of(event, semconv.EVALUATOR_TYPE)
    return JudgeIdentity(
        provider=provider,
        model=model,
        computes=kind in ("deterministic", "human"),
        is_human=kind == "human",
        screen=text_of(event, semconv.JUDGE_SCREEN) or "",
    )


def _with_diagnosis(outcomes: dict[str, MetricOutcome], span: Attributes) -> Mapping[str, MetricOutcome]:
    """Put the answer's diagnosis on the composite metric, or else on a result that has no verdicts."""
    diagnosis = table.one_of(Diagnosis).read(span, semconv.DIAGNOSIS)
    results = {key: result for key, result in outcomes.items() if isinstance(result, MetricResult)}
    scored = {key: result for key, result in results.items() if result.score is not None}
    bare = (key for key, result in scored.items() if not (result.verdicts or result.chunk_verdicts))
    own = (key for key, result in scored.items() if result.metric == _COMPOSITE)
    key = next(own, None) or next(bare, None) or next(iter(scored), None)
    if diagnosis is None or key is None:
        return outcomes
    return outcomes | {key: replace(results[key], diagnosis=diagnosis)}


_Count = Annotated[int, Field(ge=0)]


class _Step(BaseModel):
    step: str
    duration_ms: _Count = 0
    calls: _Count = 0
    input_tokens: _Count = 0
    output_tokens: _Count = 0
    unmetered_calls: _Count = 0


class _Made(BaseModel):
    truth: str | None = None
    question: str | None = None
    similarity: float | None = None


def _read_steps(event: Attributes) -> tuple[StepRun, ...]:
    """Read the judge steps; what is unreadable is left out."""
    return tuple(
        StepRun(
            step=told.step,
            duration_ms=told.duration_ms,
            usage=Usage(**told.model_dump(exclude={"step", "duration_ms"})),
        )
        for told in _read(event, semconv.STEPS, _Step)
    )


def _read_intermediate(event: Attributes) -> Intermediate | None:
    """Read the intermediate results that the carrier has; without content it has numbers only."""
    items = _read(event, semconv.INTERMEDIATE, _Made)
    if not items:
        return None
    asked = [item for item in items if item.question is not None or item.similarity is not None]
    return Intermediate(
        truths=tuple(item.truth for item in items if item.truth is not None),
        truths_limit=integer_of(event, semconv.TRUTHS_LIMIT),
        questions=tuple(item.question for item in asked if item.question is not None),
        similarities=tuple(item.similarity for item in asked),
    )


def _read(event: Attributes, key: str, form: type[ModelT]) -> list[ModelT]:
    found = []
    for text in texts_of(event, key):
        try:
            found.append(form.model_validate_json(text))
        except ValidationError:
            continue
    return found


# -- verdicts ---------------------------------------------------------------------------------------------
_CUT_MARK: Final = "…"


class EventVerdicts(NamedTuple):
    """The verdicts of a carrier, by the metric's name in attribute keys."""

    claims: Mapping[str, Sequence[Verdict]]
    """In the order of the answer."""
    chunks: Mapping[str, Sequence[ChunkVerdict]]
    """By rank."""
    faults: Counter[str]
    """What a reader should know about the events."""


def _read_verdicts(carrier: Span, record: RagRecord) -> EventVerdicts:
    """Read the verdicts of a carrier; an unreadable one is counted and left out."""
    claims: dict[str, list[Verdict]] = defaultdict(list)
    chunks: dict[str, list[ChunkVerdict]] = defaultdict(list)
    faults, reader = Counter[str](), _Chunks(record.chunks)
    for event in carrier.events:
        if event.name.startswith((semconv.CLAIM_EVENT_PREFIX, semconv.REFERENCE_EVENT_PREFIX)):
            verdict = _claim(event, record, reader, faults)
            _share(verdict, claims, event.attributes, semconv.CLAIM_METRICS, semconv.CLAIM_METRIC, faults)
        elif event.name.startswith(semconv.CHUNK_EVENT_PREFIX):
            graded = _chunk(event, reader)
            _share(graded, chunks, event.attributes, semconv.CHUNK_METRICS, semconv.CHUNK_METRIC, faults)
    for of_metric in claims.values():
        of_metric.sort(key=_place)
    for of_metric_too in chunks.values():
        of_metric_too.sort(key=attrgetter("rank"))
    return EventVerdicts(claims, chunks, faults)


def _share(
    verdict: VerdictT | None,
    by_metric: dict[str, list[VerdictT]],
    attributes: Attributes,
    several: str,
    one: str,
    faults: Counter[str],
) -> None:
    """Give a verdict to every metric that uses it."""
    metrics = texts_of(attributes, several) or texts_of(attributes, one)
    if verdict is None or not metrics:
        faults["unreadable"] += 1
        return
    for metric in metrics:
        by_metric[metric].append(verdict)


def _place(verdict: Verdict) -> tuple[bool, int, int]:
    # metrics that share a claim also share its index, so only the place orders claims and sentences alike
    claim = verdict.claim
    return claim.start is None, claim.start or 0, claim.index


def _claim(event: SpanEvent, record: RagRecord, chunks: _Chunks, faults: Counter[str]) -> Verdict | None:
    told: dict[str, Any] = {"label": _label_in(event), **table.CLAIM.read(event.attributes)}
    claim = told.pop("claim", {})
    if told["label"] is None or "index" not in claim:
        return None
    told["chunk_ids"] = tuple(map(chunks.full_id, told.get("chunk_ids", ())))
    verdict = Verdict(claim=_claim_in(claim, record, faults), **told)
    quote = verdict.quote
    if quote is not None and verdict.quote_verified and not chunks.have(quote, verdict.chunk_ids):
        faults["unverified"] += 1
        return replace(verdict, quote_verified=False)
    return verdict


def _claim_in(told: dict[str, Any], record: RagRecord, faults: Counter[str]) -> Claim:
    answer, start, end = record.answer, told.pop("start", None), told.pop("end", None)
    is_whole = start is end if start is None or end is None else 0 <= start <= end <= len(answer or "")
    if answer is not None and not is_whole:
        start = end = None
    if "text" not in told:
        faults["without_text"] += 1
        told["text"] = "" if answer is None or start is None else answer[start:end]
    return Claim(start=start, end=end, **told)


def _chunk(event: SpanEvent, chunks: _Chunks) -> ChunkVerdict | None:
    told: dict[str, Any] = {"label": _label_in(event), **table.CHUNK.read(event.attributes)}
    if told["label"] is None or not told.keys() >= {"chunk_id", "rank"}:
        return None
    return ChunkVerdict(**{**told, "chunk_id": chunks.full_id(told["chunk_id"])})


def _label_in(event: SpanEvent) -> VerdictLabel | None:
    """Return the verdict in the event's name."""
    return _WORDS.get(event.name.rpartition(".")[2])


class _Chunks:
    """The chunks of the record as it is today."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self._texts: dict[str, list[str]] = defaultdict(list)
        for chunk in chunks:
            self._texts[chunk.id].append(chunk.text or "")

    def full_id(self, told: str) -> str:
        """Return the chunk's id, if the carrier has only its beginning."""
        if told in self._texts or not told.endswith(_CUT_MARK):
            return told
        begun = [known for known in self._texts if known.startswith(told[: -len(_CUT_MARK)])]
        return begun[0] if len(begun) == 1 else told

    def have(self, quote: str, chunk_ids: Iterable[str]) -> bool:
        """Return whether one of these chunks has the quote."""
        return any(quote in text for chunk_id in chunk_ids for text in self._texts.get(chunk_id, ()))


_OF_PEOPLE: Final = (semconv.FEEDBACK_PREFIX, semconv.REVIEW_PREFIX, f"{semconv.OI_ANNOTATIONS}.")
_NO_RECORD: Final = (
    "Question, chunks and answer can no longer be read from this trace: only what the evaluations say is"
    " shown"
)

_NOBODYS: Final = (
    "Spans of this trace name no tenant, and are not what was judged for this one: only what the evaluations"
    " say is shown"
)


def open_answer(
    trace: Trace,
    key: AnswerKey,
    rules: ExtractRules,
    *,
    read_from: str,
    evaluations: Collection[str] = (),
    is_own: bool = False,
    kept: RagRecord | None = None,
) -> OpenedAnswer:
    """Open the answer on a span of a trace, with the record that the collector reads from the same spans.

    ``trace`` has all spans of the trace id with the carriers. For the key's tenant, those of others are left
    out. Anyone may send spans with a known trace id, so that spans that name no tenant are nobody's: of
    these, only the ``evaluations`` are taken that are known to be the tenant's, and content if it is what
    was judged for the tenant. ``is_own`` says that the place has given the tenant's spans alone.
    ``read_from`` names the place, without secrets. ``kept`` is the record that was judged, for a trace that
    has it no more.

    Raises:
        AnswerGone: the trace has no evaluation of this span.
    """
    trace, nobodys = (trace, ()) if is_own else of_tenant(trace, key.tenant, evaluations)
    carriers = [span for span in trace.spans if is_carrier(span)]
    own = [span for span in carriers if target_span_id(span) == key.span_id]
    if not own:
        raise AnswerGone(_why_gone(trace, key, read_from))
    found = records_in(trace, rules)
    record = found.by_span.get(key.span_id, kept)
    if record is None and nobodys:  # what was judged for the tenant is no secret to it
        whole = Trace(trace_id=trace.trace_id, spans=(*trace.spans, *nobodys))
        record = records_in(whole, rules).by_span.get(key.span_id)
        judged = {carrier.attributes.get(semconv.EVAL_INPUT_SHA256) for carrier in own}
        record = record if record and content_sha256(record) in judged else None
        read = {key.span_id, *(each.span_id for each in record.provenance)} if record else ()
        spans = (*trace.spans, *(span for span in nobodys if span.span_id in read))
        trace = Trace(trace_id=trace.trace_id, spans=spans)
    notices = () if record else (found.fault or (_NOBODYS if nobodys else _NO_RECORD),)
    record = record or told_by(own[0])
    return OpenedAnswer(
        key=key,
        record=record,
        versions=in_order([read_carrier(carrier, record) for carrier in own], _superseded(carriers)),
        trace=trace,
        read_from=read_from,
        feedback=tuple(_feedback(trace, key.span_id, found.by_span)),
        notices=notices,
    )


def in_order(versions: Iterable[AnswerVersion], superseded: Iterable[str] = ()) -> tuple[AnswerVersion, ...]:
    """Say which versions are valid, and return those first, then the newest first."""
    versions = tuple(versions)
    gone = {each.judged.supersedes for each in versions if each.judged.supersedes != each.evaluation_id}
    gone.update(superseded)
    judged = [replace(version, is_valid=version.evaluation_id not in gone) for version in versions]
    return tuple(
        sorted(
            judged,
            key=lambda version: (
                not version.is_valid,
                -version.judged.evaluation.started_at_ns,
                version.evaluation_id,
            ),
        )
    )


class TraceRecords(NamedTuple):
    """The answers of a trace by their span; ``fault`` says why there are none."""

    by_span: Mapping[str, RagRecord]
    fault: str = ""


def records_in(trace: Trace, rules: ExtractRules) -> TraceRecords:
    """Read the records of a trace, from its spans as the application sent them."""
    sent = Trace(trace_id=trace.trace_id, spans=tuple(map(without_scores, trace.spans)))
    try:
        records = extract_records(sent, rules).records
    except Exception as exc:  # noqa: BLE001 -- the claims are still worth showing: the notice counts the fault
        return TraceRecords({}, f"{_NO_RECORD} ({type(exc).__name__} while reading its spans)")
    return TraceRecords({record.target.span_id: record for record in reversed(records) if record.target})


def of_tenant(trace: Trace, tenant: str, evaluations: Collection[str] = ()) -> tuple[Trace, tuple[Span, ...]]:
    """Return the tenant's spans, and those that are nobody's."""
    if not tenant:
        return trace, ()
    own, nobodys = list[Span](), list[Span]()
    for span in trace.spans:
        owner = span.resource.attributes.get(semconv.TENANT)
        if owner == tenant or (
            owner is None and is_carrier(span) and as_carrier(span).span_id in evaluations
        ):
            own.append(span)
        elif owner is None:
            nobodys.append(span)
    return Trace(trace_id=trace.trace_id, spans=tuple(own)), tuple(nobodys)


def _superseded(carriers: Iterable[Span]) -> set[str]:
    """Return the ids that carriers say they supersede; a later one may be on another span of the call."""
    named = ((span.span_id, span.attributes.get(semconv.EVAL_SUPERSEDES)) for span in carriers)
    return {other for own, other in named if isinstance(other, str) and other != own}


def _feedback(trace: Trace, span_id: str, by_span: Mapping[str, RagRecord]) -> Iterable[Span]:
    """Yield what people said, unless it is about another answer of the trace."""
    for span in trace.spans:
        if not is_evaluator(span) or not any(key.startswith(_OF_PEOPLE) for key in span.attributes):
            continue
        about = target_span_id(span)
        if about == span_id or about not in by_span:
            yield span


def _why_gone(trace: Trace, key: AnswerKey, read_from: str) -> str:
    if trace.find(key.span_id) is None:
        return (
            f"{read_from} has trace {key.trace_id}, but not its span {key.span_id}, nor an evaluation of it"
        )
    return (
        f"{read_from} has span {key.span_id} of trace {key.trace_id}, but no evaluation of it: it was not"
        " judged yet, or its carriers go to another place"
    )
