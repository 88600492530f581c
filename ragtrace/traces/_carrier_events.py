"""The carrier's events: metrics, then claims, then chunks, with failing ones first in each group.

The order matters, because Jaeger's page shows the first three events of a span.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ragtrace import semconv
from ragtrace.model import (
    OF_REFERENCE,
    AttributeValue,
    ChunkVerdict,
    Claim,
    Evaluation,
    Intermediate,
    JudgeIdentity,
    MetricOutcome,
    MetricResult,
    RagRecord,
    StepRun,
    Verdict,
    VerdictCounts,
    VerdictLabel,
)
from ragtrace.traces._carrier_text import explain
from ragtrace.traces.carrier_outcomes import judge_of, keyed, worst_first
from ragtrace.traces.carrier_table import CHUNK, CLAIM, FAULT, RESULT
from ragtrace.traces.text import cut_utf8
from ragtrace.traces.trace import SpanEvent

MAX_EVENTS: Final = 128
"""The default limit of readers and collectors for a span's events."""
_MAX_FAULTS: Final = 8
_MAX_DETAILS: Final = 16
_STEP_NS: Final = 1_000  # Jaeger keeps microseconds
_SUPPORT: Final = (
    VerdictLabel.SUPPORTED,
    VerdictLabel.CONTRADICTED,
    VerdictLabel.UNSUPPORTED,
    VerdictLabel.UNJUDGED,
)
_RELEVANCE: Final = (
    VerdictLabel.RELEVANT,
    VerdictLabel.PARTLY_RELEVANT,
    VerdictLabel.IRRELEVANT,
    VerdictLabel.UNJUDGED,
)


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
    chosen = choose(outcomes, max_claims=max_claims, room=MAX_EVENTS - len(outcomes) - len(faults))
    claims_of, chunks_of = chosen.claims_of, chosen.chunks_of
    results = (
        _result(key, each, evaluation, record, _Emitted(claims_of[key], chunks_of[key]), content=content)
        for key, each in worst_first(outcomes)
    )
    drafts = [
        *((semconv.EVALUATION_RESULT, attributes) for attributes in results),
        *((_claim_name(each.verdict), _claim(each, content=content)) for each in chosen.claims),
        *(_chunks(chosen.chunks, record, content=content)),
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
    words = [words for words in (_SUPPORT, _RELEVANCE) if given.intersection(words[:-1])] or [_SUPPORT]
    counts = VerdictCounts.of(verdicts)
    return {
        f"{prefix}total": counts.total,
        **{f"{prefix}{label.value}": getattr(counts, label.value) for each in words for label in each},
        f"{prefix}emitted": emitted,
    }


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
    return CLAIM.write(shown.verdict, given, content=content)


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
        semconv.INTERMEDIATE_TOTAL: max(len(made.truths), len(made.questions), len(made.similarities))
        + len(made.sentences),
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
    for sentence in sorted(made.sentences, key=lambda grade: _BEST_FIRST.get(grade.label.value, 3)):
        yield {
            "chunk_id": _short(sentence.chunk_id),
            "start": sentence.start,
            "end": sentence.end,
            "label": sentence.label.value,
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


_BEST_FIRST: Final = {"relevant": 0, "partly_relevant": 1, "irrelevant": 2}


# -- which verdicts have room: each once, even if several metrics use it, with failing ones first ----------
MAX_CLAIM_EVENTS: Final = 90
MAX_CHUNK_EVENTS: Final = 32
_ORDER: Final = {
    VerdictLabel.CONTRADICTED: 0,
    VerdictLabel.UNSUPPORTED: 1,
    VerdictLabel.IRRELEVANT: 2,
    VerdictLabel.UNJUDGED: 3,
    VerdictLabel.PARTLY_RELEVANT: 4,
    VerdictLabel.SUPPORTED: 5,
    VerdictLabel.RELEVANT: 6,
}

_KINDS_ALIKE: Final = ("factual", "sentence")

VerdictT = TypeVar("VerdictT", Verdict, ChunkVerdict)


@dataclass(frozen=True, slots=True)
class CarrierVerdict(Generic[VerdictT]):
    """A verdict and the metrics that use it."""

    verdict: VerdictT
    metrics: tuple[str, ...]
    """Their names in attribute keys, in run order."""


@dataclass(frozen=True, slots=True)
class CarrierVerdicts:
    """The verdicts that fit on a carrier."""

    claims: tuple[CarrierVerdict[Verdict], ...]
    chunks: tuple[CarrierVerdict[ChunkVerdict], ...]

    @property
    def claims_of(self) -> Counter[str]:
        """Number of emitted claims per metric."""
        return Counter(name for shown in self.claims for name in shown.metrics)

    @property
    def chunks_of(self) -> Counter[str]:
        """Number of emitted chunks per metric."""
        return Counter(name for shown in self.chunks for name in shown.metrics)


def choose(outcomes: Sequence[tuple[str, MetricOutcome]], *, max_claims: int, room: int) -> CarrierVerdicts:
    """Choose the verdicts of several metrics to show in ``room`` events, at most ``max_claims`` on claims."""
    results = [(key, outcome) for key, outcome in outcomes if isinstance(outcome, MetricResult)]
    claims = _once([(key, verdict) for key, result in results for verdict in result.verdicts])
    claims = claims[: max(0, min(max_claims, MAX_CLAIM_EVENTS, room))]
    chunks = _once([(key, verdict) for key, result in results for verdict in result.chunk_verdicts])
    return CarrierVerdicts(tuple(claims), tuple(chunks[: max(0, min(MAX_CHUNK_EVENTS, room - len(claims)))]))


def _once(verdicts: Iterable[tuple[str, VerdictT]]) -> list[CarrierVerdict[VerdictT]]:
    """Merge equal verdicts: three metrics that use the same claim show it once."""
    first: dict[Hashable, VerdictT] = {}
    metrics: dict[Hashable, dict[str, None]] = {}
    for key, verdict in verdicts:
        mark = _mark(verdict)
        first.setdefault(mark, verdict)
        metrics.setdefault(mark, {})[key] = None
    shown = [CarrierVerdict(verdict, tuple(metrics[mark])) for mark, verdict in first.items()]
    return sorted(shown, key=lambda each: _ORDER[each.verdict.label])


def _mark(verdict: Verdict | ChunkVerdict) -> Hashable:
    """Return the identity of a verdict: a sentence with a single claim equals that claim."""
    if isinstance(verdict, ChunkVerdict):
        return verdict
    claim = verdict.claim
    if claim.kind not in _KINDS_ALIKE or claim.start is None:
        return verdict
    return replace(verdict, claim=Claim(index=0, text=claim.text, start=claim.start, end=claim.end))
