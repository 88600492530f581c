"""The outcomes of an evaluation on the carrier: attributes, a line of text each, and events."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice, zip_longest
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from ragtrace import semconv
from ragtrace.model import (
    CLAIM_LABELS,
    OF_CRITERION,
    OF_REFERENCE,
    AttributeValue,
    ChunkVerdict,
    Claim,
    Evaluation,
    Intermediate,
    JudgeIdentity,
    Label,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    RagRecord,
    StepRun,
    Verdict,
    VerdictCounts,
    VerdictLabel,
)
from ragtrace.traces.carrier_table import CHUNK, CLAIM, FAULT, METRIC, OUTCOMES, RESULT, TEXT
from ragtrace.traces.trace import SpanEvent, cut_utf8

Status = Literal["ok", "partial", "error", "skipped"]

_OWN_PROFILE: Final = "ragtrace"
_COMPOSITE: Final = "rag_score"
_WORST_FIRST: Final = (Label.FAIL, Label.ERROR, Label.SKIPPED, Label.PASS)


def keyed(evaluation: Evaluation) -> Iterator[tuple[str, MetricOutcome]]:
    """Yield each outcome with its name in attribute keys.

    The name is the metric's. If it ran more than once, the profile follows, then a number.
    """
    taken: set[str] = set()
    for outcome in evaluation.outcomes:
        names = chain(
            (outcome.metric, f"{outcome.metric}.{outcome.profile}"),
            (f"{outcome.metric}.{outcome.profile}.{number}" for number in count(2)),
        )
        key = next(name for name in names if name not in taken)
        taken.add(key)
        yield key, outcome


def worst_first(outcomes: Iterable[tuple[str, MetricOutcome]]) -> list[tuple[str, MetricOutcome]]:
    """Sort outcomes for display: failed ones first."""
    return sorted(outcomes, key=lambda keyed: _WORST_FIRST.index(keyed[1].label))


def overall_label(evaluation: Evaluation) -> Label:
    """Return the label of the answer: one failing metric fails it; an error counts only if nothing passed."""
    labels = {outcome.label for outcome in evaluation.outcomes}
    return next((label for label in (Label.FAIL, Label.PASS, Label.ERROR) if label in labels), Label.SKIPPED)


def status_of(evaluation: Evaluation) -> Status:
    """Return the evaluation's status: ``ragtrace.eval.status``."""
    if evaluation.failures:
        return "error" if len(evaluation.failures) == len(evaluation.outcomes) else "partial"
    return "ok" if any(result.score is not None for result in evaluation.results) else "skipped"


def outcome_attributes(evaluation: Evaluation) -> dict[str, AttributeValue]:
    """Return flat scalars for search in back ends. A failure has no score."""
    status, overall, results = status_of(evaluation), overall_label(evaluation), evaluation.results
    of_metrics: dict[str, AttributeValue] = {}
    for key, outcome in keyed(evaluation):
        of_metrics |= METRIC.write(outcome, {}, metric=key)
    skipped = next((result.skip_reason for result in results if result.skip_reason), None)
    given: dict[str, AttributeValue] = {
        semconv.EVAL_STATUS: status,
        semconv.EVAL_SKIP_REASON: skipped if status == "skipped" else None,
        semconv.PASS: overall is Label.PASS if overall in (Label.PASS, Label.FAIL) else None,
        "<metrics>": of_metrics,
        semconv.BLAME_CLASSES: tuple(found.value for found in evaluation.blame.classes),
        semconv.DIAGNOSIS: next((result.diagnosis for result in results if result.diagnosis), None),
        semconv.COMPOSITE: next((result.score for result in results if result.metric == _COMPOSITE), None),
    }
    return OUTCOMES.write(evaluation, given)


def evaluation_objects(
    evaluation: Evaluation, explain: Callable[[MetricOutcome], str]
) -> Iterator[dict[str, AttributeValue]]:
    """Yield OpenInference's ``evaluations.<i>.evaluation.*``, one object per metric, flat and zero-based."""
    for index, (key, outcome) in enumerate(keyed(evaluation)):
        prefix = f"{semconv.OI_EVALUATIONS}.{index}.evaluation."
        score = outcome.score if isinstance(outcome, MetricResult) else None
        metadata = {"profile": outcome.profile, "evaluator_version": outcome.evaluator_version}
        yield {
            f"{prefix}name": key,
            **({f"{prefix}score": float(score)} if score is not None else {}),
            f"{prefix}label": outcome.label.value,
            f"{prefix}explanation": explain(outcome),
            f"{prefix}annotator_kind": _annotator_kind(judge_of(outcome, evaluation)),
            f"{prefix}identifier": f"{_OWN_PROFILE}/{key}",
            f"{prefix}metadata": json.dumps(metadata, sort_keys=True),
        }


def judge_of(outcome: MetricOutcome, evaluation: Evaluation) -> JudgeIdentity:
    """Return the judge of an outcome: the evaluation's, or the second one after a failed canary claim."""
    substitute = outcome.judge if isinstance(outcome, MetricResult) else None
    return substitute or evaluation.judge


def _annotator_kind(judge: JudgeIdentity) -> Literal["LLM", "CODE", "HUMAN"]:
    """Return OpenInference's annotator kind: whether a language model, code or people judged."""
    if judge.is_human:
        return "HUMAN"
    return "CODE" if judge.computes else "LLM"


_BRIEF_CHARS: Final = 200
_BRIEF_CHUNK_IDS: Final = 3
_WORDS: Final = {VerdictLabel.PARTLY_RELEVANT: "partly relevant", VerdictLabel.NOT_MET: "not met"}
_VERDICTS_WORST_FIRST: Final = (
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.IRRELEVANT,
    VerdictLabel.NOT_MET,
    VerdictLabel.UNJUDGED,
    VerdictLabel.PARTLY_RELEVANT,
)
_UNITS: Final = {OF_CRITERION: "criterion", "sentence": "sentence", "reference": "reference sentence"}


def brief(evaluation: Evaluation) -> str:
    """Return a one-line summary: ``faithfulness 0.50 fail: 1 of 2 claims contradicted (faq-12)``.

    Failed metrics come first, and passed ones are short.
    """
    outcomes = worst_first(keyed(evaluation))
    if not outcomes:
        return "nothing was measured"
    is_short = len(outcomes) > 1
    return _fitting([_line(key, outcome, is_short=is_short) for key, outcome in outcomes])


def explain(outcome: MetricOutcome, *, content: bool) -> str:
    """Explain an outcome in one sentence; without content, only by its counts."""
    if isinstance(outcome, MetricFailure):
        return outcome.message or outcome.error_type
    said = [outcome.explanation, outcome.reason] if content else []
    return ": ".join(sentence for sentence in said if sentence) or _summary(outcome)


def _fitting(lines: Sequence[str]) -> str:
    """Join as many lines as fit, and append the number of omitted lines."""
    for shown in range(len(lines), 0, -1):
        left = len(lines) - shown
        text = "; ".join([*lines[:shown], *([f"{left} more"] if left else [])])
        if len(text) <= _BRIEF_CHARS:
            return text
    return lines[0][: _BRIEF_CHARS - 1] + "…"


def _line(key: str, outcome: MetricOutcome, *, is_short: bool) -> str:
    if isinstance(outcome, MetricFailure):
        return f"{key} error: {outcome.error_type}"
    if outcome.score is None:
        return f"{key} skipped: {_summary(outcome)}"
    said = f"{key} {outcome.score:.2f} {outcome.label.value}"
    if is_short and outcome.label is Label.PASS:
        return said
    chunk_ids = _contradicting_chunks(outcome)
    where = f" ({', '.join(chunk_ids)})" if chunk_ids else ""
    return f"{said}: {_summary(outcome)}{where}"


def _summary(result: MetricResult) -> str:
    if result.skip_reason:
        return result.skip_reason.value
    if result.diagnosis:
        return result.diagnosis.value.replace("_", " ")
    said = [_tally(group) for group in (result.verdicts, result.chunk_verdicts) if group]
    passes = result.pass_when or f"threshold {result.threshold:.2f}"
    return ", ".join(said) or f"score {result.score:.2f}, {passes}"


def _tally(verdicts: Sequence[Verdict | ChunkVerdict]) -> str:
    """Count the verdicts that are not good: ``1 of 4 claims contradicted, 2 unsupported``."""
    counts, unit = VerdictCounts.of(each for each in verdicts if not _is_incidental(each)), _unit(verdicts)
    # a background statement serves the question, but a background chunk only takes up room
    labels = _VERDICTS_WORST_FIRST if unit == "chunk" else _VERDICTS_WORST_FIRST[:-1]
    found = [(getattr(counts, label.value), label) for label in labels]
    wrong = [f"{number} {_WORDS.get(label, label.value)}" for number, label in found if number]
    if unit == OF_CRITERION:  # one a metric
        return f"criterion {wrong[0].partition(' ')[2] if wrong else 'met'}"
    if incidental := len(verdicts) - counts.total:
        wrong.append(f"{incidental} flawed only incidentally")
    if not wrong:
        good = "supported" if counts.supported else "relevant"
        return f"all {counts.total} {unit}s {good}" if counts.total > 1 else f"its one {unit} is {good}"
    (number, first), rest = wrong[0].split(" ", 1), wrong[1:]
    units = f"1 {unit}" if len(verdicts) == 1 else f"{len(verdicts)} {unit}s"
    return ", ".join([f"{number} of {units} {first}", *rest])


def _unit(verdicts: Sequence[Verdict | ChunkVerdict]) -> str:
    if isinstance(verdicts[0], ChunkVerdict):
        return "chunk"
    if any(verdict.label in _RELEVANCE[:-1] for verdict in verdicts):
        return "statement"
    return _UNITS.get(verdicts[0].claim.kind, "claim")


def _contradicting_chunks(result: MetricResult) -> list[str]:
    """Return the first chunks that contradict a claim."""
    ids = dict.fromkeys(_ids_against(result.verdicts))
    return list(ids)[:_BRIEF_CHUNK_IDS]


def _ids_against(verdicts: Sequence[Verdict]) -> Iterator[str]:
    for verdict in verdicts:
        if verdict.label is VerdictLabel.CONTRADICTED:
            yield from verdict.chunk_ids


MAX_EVENTS: Final = 128
"""The default limit of readers and collectors for a span's events."""
_MAX_FAULTS: Final = 8
_MAX_DETAILS: Final = 16
_STEP_NS: Final = 1_000  # Jaeger keeps microseconds
_RELEVANCE: Final = (
    VerdictLabel.RELEVANT,
    VerdictLabel.PARTLY_RELEVANT,
    VerdictLabel.IRRELEVANT,
    VerdictLabel.UNJUDGED,
)

_CRITERION: Final = (VerdictLabel.MET, VerdictLabel.NOT_MET, VerdictLabel.UNJUDGED)


class TimeRange(NamedTuple):
    """A time range in Unix nanoseconds."""

    start_ns: int
    end_ns: int


class _Emitted(NamedTuple):
    """The number of a metric's verdicts on the carrier."""

    claims: int
    chunks: int


def events_of(
    evaluation: Evaluation, record: RagRecord, *, max_claims: int, content: bool, within: TimeRange
) -> tuple[SpanEvent, ...]:
    """Build the events of a carrier, with time stamps inside its interval."""
    outcomes = list(islice(keyed(evaluation), MAX_EVENTS))
    faults = evaluation.blame.faults[: max(0, min(_MAX_FAULTS, MAX_EVENTS - len(outcomes)))]
    room = MAX_EVENTS - len(outcomes) - len(faults)
    made = [(key, outcome) for key, outcome in outcomes if isinstance(outcome, MetricResult)]
    claims = _once((key, verdict) for key, result in made for verdict in result.verdicts)
    claims = claims[: max(0, min(max_claims, MAX_CLAIM_EVENTS, room))]
    chunks = _once((key, verdict) for key, result in made for verdict in result.chunk_verdicts)
    chunks = chunks[: max(0, min(MAX_CHUNK_EVENTS, room - len(claims)))]
    claims_of = Counter(name for shown in claims for name in shown.metrics)
    chunks_of = Counter(name for shown in chunks for name in shown.metrics)
    results = (
        _result(key, each, evaluation, record, _Emitted(claims_of[key], chunks_of[key]), content=content)
        for key, each in worst_first(outcomes)
    )
    drafts = [
        *((semconv.EVALUATION_RESULT, attributes) for attributes in results),
        *((_claim_name(each.verdict), _claim(each, content=content)) for each in claims),
        *(_chunks(chunks, record, content=content)),
        *((semconv.BLAME_EVENT, FAULT.write(fault, {}, content=content)) for fault in faults),
    ]
    return tuple(
        SpanEvent(
            name=name,
            time_ns=min(within.start_ns + position * _STEP_NS, within.end_ns),
            attributes=attributes,
        )
        for position, (name, attributes) in enumerate(drafts)
    )


_COUNTS: Final = {field.key.partition("{")[0]: field.key for field in RESULT.fields if "{" in field.key}
_DETAILS: Final = f"{semconv.DETAIL_PREFIX}<reading>"


def _result(
    key: str,
    outcome: MetricOutcome,
    evaluation: Evaluation,
    record: RagRecord,
    emitted: _Emitted,
    *,
    content: bool,
) -> dict[str, AttributeValue]:
    judge, result = judge_of(outcome, evaluation), outcome if isinstance(outcome, MetricResult) else None
    made = result.intermediate if result else None
    details = [each for each in result.details.items() if math.isfinite(each[1])] if result else []
    claims, chunks = (result.verdicts, result.chunk_verdicts) if result else ((), ())
    given: dict[str, AttributeValue] = {
        semconv.EVALUATION_NAME: key,
        semconv.EVALUATION_LABEL: result.label.value if result else None,
        _DETAILS: {f"{semconv.DETAIL_PREFIX}{name}": float(each) for name, each in details[:_MAX_DETAILS]},
        semconv.EVALUATION_EXPLANATION: explain(outcome, content=content),
        semconv.RESPONSE_ID: record.response_id,
        semconv.EVALUATOR_ID: f"{outcome.profile}/{outcome.metric}",
        semconv.EVALUATOR_TYPE: _evaluator_type(judge),
        semconv.JUDGE_PROVIDER: judge.provider,
        semconv.JUDGE_MODEL: judge.model,
        semconv.JUDGE_SCREEN: judge.screen,
        _COUNTS[semconv.CLAIMS_PREFIX]: _counted(semconv.CLAIMS_PREFIX, claims, emitted.claims),
        _COUNTS[semconv.CHUNKS_PREFIX]: _counted(semconv.CHUNKS_PREFIX, chunks, emitted.chunks),
        semconv.EVAL_DURATION_MS: outcome.duration_ms if outcome.steps or outcome.duration_ms else None,
        # arrays of JSON objects: Tempo cuts strings, not array elements
        semconv.STEPS: tuple(_json(_step(run)) for run in outcome.steps[:_MAX_STEPS]),
        **(_made(made, content=content) if made else {}),
    }
    return RESULT.write(outcome, given)


def _evaluator_type(judge: JudgeIdentity) -> str:
    if judge.is_human:
        return "human"
    return "deterministic" if judge.computes else "llm_judge"


def _counted(
    prefix: str, verdicts: Sequence[Verdict | ChunkVerdict], emitted: int
) -> dict[str, AttributeValue]:
    """Count verdicts by label, with zeros for unused labels."""
    if not verdicts:
        return {}
    given = {verdict.label for verdict in verdicts}
    words = [words for words in (CLAIM_LABELS, _RELEVANCE, _CRITERION) if given.intersection(words[:-1])] or [
        CLAIM_LABELS
    ]
    counts = VerdictCounts.of(verdicts)
    return {
        f"{prefix}total": counts.total,
        **{f"{prefix}{label.value}": getattr(counts, label.value) for each in words for label in each},
        **dict(_material(prefix, verdicts) if CLAIM_LABELS in words else ()),
        f"{prefix}emitted": emitted,
    }


def _material(
    prefix: str, verdicts: Sequence[Verdict | ChunkVerdict]
) -> Iterator[tuple[str, AttributeValue]]:
    """Count the flaws that are more than incidental words."""
    counts = VerdictCounts.of(verdict for verdict in verdicts if not _is_incidental(verdict))
    yield f"{prefix}material_contradicted", counts.contradicted
    yield f"{prefix}material_unsupported", counts.unsupported


def _claim_name(verdict: Verdict) -> str:
    is_of_reference = verdict.claim.kind == OF_REFERENCE
    prefix = semconv.REFERENCE_EVENT_PREFIX if is_of_reference else semconv.CLAIM_EVENT_PREFIX
    return f"{prefix}{verdict.label.value}"


def _claim(shown: CarrierVerdict[Verdict], *, content: bool) -> dict[str, AttributeValue]:
    not_of_reference = (semconv.CLAIM_VERDICT, semconv.CLAIM_OFFSET_START, semconv.CLAIM_OFFSET_END)
    is_of_reference = shown.verdict.claim.kind == OF_REFERENCE
    left_out = not_of_reference if is_of_reference else (semconv.REFERENCE_VERDICT,)
    given: dict[str, AttributeValue] = {
        semconv.CLAIM_METRIC: shown.metrics[0],
        semconv.CLAIM_METRICS: shown.metrics if len(shown.metrics) > 1 else None,
        **dict.fromkeys(left_out),
    }
    written = CLAIM.write(shown.verdict, given, content=content)
    if shown.verdict.claim.kind == OF_CRITERION:  # a setting, like a threshold
        written[semconv.CLAIM_ASSERTION] = TEXT.write(shown.verdict.claim.text)
    return written


def _chunks(
    chosen: Iterable[CarrierVerdict[ChunkVerdict]], record: RagRecord, *, content: bool
) -> Iterator[tuple[str, dict[str, AttributeValue]]]:
    scores = {chunk.id: chunk.score for chunk in record.chunks}
    for shown in chosen:
        given: dict[str, AttributeValue] = {
            semconv.CHUNK_METRIC: shown.metrics[0],
            semconv.CHUNK_METRICS: shown.metrics if len(shown.metrics) > 1 else None,
            semconv.CHUNK_SCORE: scores.get(shown.verdict.chunk_id),
        }
        name = f"{semconv.CHUNK_EVENT_PREFIX}{shown.verdict.label.value}"
        yield name, CHUNK.write(shown.verdict, given, content=content)


# -- what a number was made of ----------------------------------------------------------------------------
_MAX_STEPS: Final = 16
_MAX_ITEMS: Final = 16
_MAX_TEXT_BYTES: Final = 600


def _made(made: Intermediate, *, content: bool) -> dict[str, AttributeValue]:
    items = [item for item in _items(made, content=content) if item]
    return {
        semconv.INTERMEDIATE: tuple(_json(item) for item in islice(items, _MAX_ITEMS)),
        semconv.INTERMEDIATE_TOTAL: max(len(made.truths), len(made.questions), len(made.similarities)),
        semconv.TRUTHS_LIMIT: made.truths_limit,
    }


def _items(made: Intermediate, *, content: bool) -> Iterator[dict[str, Any]]:
    for truth in made.truths:
        yield {"truth": _short(truth)} if content else {}
    for question, similarity in zip_longest(made.questions, made.similarities):
        yield {
            **({"question": _short(question)} if content and question is not None else {}),
            **({} if similarity is None or not math.isfinite(similarity) else {"similarity": similarity}),
        }


def _step(run: StepRun) -> dict[str, Any]:
    unmetered = run.usage.unmetered_calls
    return {
        "step": run.step,
        "duration_ms": run.duration_ms,
        "calls": run.usage.calls,
        "input_tokens": run.usage.input_tokens,
        "output_tokens": run.usage.output_tokens,
        **({"unmetered_calls": unmetered} if unmetered else {}),
    }


def _short(text: str) -> str:
    return cut_utf8(text, _MAX_TEXT_BYTES)


def _json(item: dict[str, Any]) -> str:
    return json.dumps(item, ensure_ascii=False, separators=(",", ":"))


# -- which verdicts have room: each once, even if several metrics use it, with failing ones first ----------
MAX_CLAIM_EVENTS: Final = 90
MAX_CHUNK_EVENTS: Final = 32
_ORDER: Final = {
    VerdictLabel.CONTRADICTED: 0,
    VerdictLabel.UNSUPPORTED: 1,
    VerdictLabel.IRRELEVANT: 2,
    VerdictLabel.NOT_MET: 2,
    VerdictLabel.UNJUDGED: 3,
    VerdictLabel.PARTLY_RELEVANT: 4,
    VerdictLabel.SUPPORTED: 5,
    VerdictLabel.RELEVANT: 6,
    VerdictLabel.MET: 6,
}

_KINDS_ALIKE: Final = ("factual", "sentence")

VerdictT = TypeVar("VerdictT", Verdict, ChunkVerdict)


@dataclass(frozen=True, slots=True)
class CarrierVerdict(Generic[VerdictT]):
    """A verdict and the metrics that use it."""

    verdict: VerdictT
    metrics: tuple[str, ...]
    """Their names in attribute keys, in run order."""


def _once(verdicts: Iterable[tuple[str, VerdictT]]) -> list[CarrierVerdict[VerdictT]]:
    """Merge equal verdicts: three metrics that use the same claim show it once."""
    first: dict[Hashable, VerdictT] = {}
    metrics: dict[Hashable, dict[str, None]] = {}
    for key, verdict in verdicts:
        mark = _mark(verdict)
        first.setdefault(mark, verdict)
        metrics.setdefault(mark, {})[key] = None
    shown = [CarrierVerdict(verdict, tuple(metrics[mark])) for mark, verdict in first.items()]
    return sorted(shown, key=lambda each: (_ORDER[each.verdict.label], _is_incidental(each.verdict)))


def _is_incidental(verdict: Verdict | ChunkVerdict) -> bool:
    return isinstance(verdict, Verdict) and verdict.is_incidental


def _mark(verdict: Verdict | ChunkVerdict) -> Hashable:
    """Return the identity of a verdict: a sentence with a single claim equals that claim."""
    if isinstance(verdict, ChunkVerdict):
        return verdict
    claim = verdict.claim
    if claim.kind not in _KINDS_ALIKE or claim.start is None:
        return verdict
    return replace(verdict, claim=Claim(index=0, text=claim.text, start=claim.start, end=claim.end))
