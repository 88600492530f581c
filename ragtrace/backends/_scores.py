"""Scores for back ends that do not read carriers: one per metric, on the answer's span."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from ragtrace import semconv
from ragtrace.model import AttributeValue, Label
from ragtrace.traces.otlp import decode
from ragtrace.traces.trace import Resource, Scope, Span, SpanEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One metric's result from a carrier."""

    trace_id: str
    """The answer's trace id, in the back end's form."""
    span_id: str
    carrier_id: str
    """Span id of the carrier: the same for the same answer and evaluator."""
    metric: str
    value: float | None
    """``None`` if the metric was skipped or failed."""
    label: str
    explanation: str
    evaluator_type: str
    """``llm_judge``, ``deterministic`` or ``human``."""
    metadata: Mapping[str, AttributeValue]
    """Judge, time, superseded carrier and single verdicts; JSON-serializable."""


class StoredScore(NamedTuple):
    """A score that was read from a span of a back end."""

    span_id: str
    metadata: Mapping[str, object]


def scores_in(request: bytes) -> tuple[Score, ...]:
    """Return the scores of all carriers in a serialized ``ExportTraceServiceRequest``.

    Raises:
        CodecError: the bytes are not OTLP.
    """
    return tuple(score for span in decode(request) if _is_carrier(span) for score in _scores(span))


def carriers_of(spans: Iterable[Span], kept: Iterable[StoredScore]) -> tuple[Span, ...]:
    """Rebuild the carriers of scores, as far as needed to know which answers are judged.

    Scores of other tools, and scores on other spans, are ignored.
    """
    targets = {span.span_id: span for span in spans}
    own = [each for each in kept if _carrier_id(each) and each.span_id in targets]
    grouped = groupby(sorted(own, key=_carrier_key), key=_carrier_key)
    return tuple(_carrier(targets[span_id], list(members)) for (span_id, _), members in grouped)


def hex_id(original: str, *, digits: int) -> str:
    """Return an OTLP id: the original if valid, else fixed digits derived from it."""
    plain = original.lower()
    if len(plain) == digits and not set(plain) - set("0123456789abcdef") and set(plain) != {"0"}:
        return plain
    return hashlib.sha256(original.encode()).hexdigest()[:digits]


def original_ids(trace_id: str, span_id: str) -> dict[str, AttributeValue]:
    """Return the resource attributes that keep ids which OTLP cannot hold."""
    ids = {
        semconv.ORIGINAL_TRACE_ID: (trace_id, hex_id(trace_id, digits=32)),
        semconv.ORIGINAL_SPAN_ID: (span_id, hex_id(span_id, digits=16)),
    }
    return {key: original for key, (original, plain) in ids.items() if original != plain}


_OF_CARRIER: Final = (
    semconv.BRIEF,
    semconv.EVAL_MODE,
    semconv.EVAL_RUN_ID,
    semconv.EVAL_STARTED_AT,
    semconv.EVAL_SUPERSEDES,
    semconv.EVAL_SKIP_REASON,
    semconv.EVAL_INPUT_TRUNCATED,
    semconv.EVAL_COMPROMISED,
    semconv.SAMPLE_RULE,
    semconv.SAMPLE_PROBABILITY,
)
_SAID_ELSEWHERE: Final = frozenset({semconv.EVALUATION_SCORE, semconv.EVALUATION_EXPLANATION})


def _is_carrier(span: Span) -> bool:
    return span.scope.name == semconv.SCOPE_EVALUATION and span.parent_span_id is not None


def _scores(carrier: Span) -> Iterator[Score]:
    resource = carrier.resource.attributes
    for event in carrier.events:
        if event.name != semconv.EVALUATION_RESULT:
            continue
        told, metric = event.attributes, str(event.attributes.get(semconv.EVALUATION_NAME))
        value = told.get(semconv.EVALUATION_SCORE)
        yield Score(
            trace_id=str(resource.get(semconv.ORIGINAL_TRACE_ID, carrier.trace_id)),
            span_id=str(resource.get(semconv.ORIGINAL_SPAN_ID, carrier.parent_span_id)),
            carrier_id=carrier.span_id,
            metric=metric,
            value=value if isinstance(value, float) else None,
            label=str(told.get(semconv.EVALUATION_LABEL, Label.ERROR.value)),
            explanation=str(told.get(semconv.EVALUATION_EXPLANATION, "")),
            evaluator_type=str(told.get(semconv.EVALUATOR_TYPE, "")),
            metadata=_metadata(carrier, event, metric),
        )


def _metadata(carrier: Span, result: SpanEvent, metric: str) -> dict[str, AttributeValue]:
    about = carrier.attributes
    verdicts = {
        "ragtrace.claims": _verdicts(carrier, metric, semconv.CLAIM_METRIC, semconv.CLAIM_METRICS),
        "ragtrace.chunks": _verdicts(carrier, metric, semconv.CHUNK_METRIC, semconv.CHUNK_METRICS),
    }
    return {
        semconv.CARRIER_SPAN_ID: carrier.span_id,
        **{key: about[key] for key in _OF_CARRIER if key in about},
        **{key: value for key, value in result.attributes.items() if key not in _SAID_ELSEWHERE},
        **{key: value for key, value in verdicts.items() if value},
    }


def _verdicts(carrier: Span, metric: str, one: str, several: str) -> tuple[AttributeValue, ...]:
    """Return the metric's verdicts, with the last part of their keys."""
    return tuple(
        {
            key.rpartition(".")[2]: value
            for key, value in event.attributes.items()
            if key not in (one, several)
        }
        for event in carrier.events
        if metric in _names(event.attributes.get(several, event.attributes.get(one)))
    )


def _names(value: AttributeValue) -> tuple[AttributeValue, ...]:
    return value if isinstance(value, tuple) else (value,)


def _carrier_id(score: StoredScore) -> str | None:
    found = score.metadata.get(semconv.CARRIER_SPAN_ID)
    return found if isinstance(found, str) else None


def _carrier_key(score: StoredScore) -> tuple[str, str]:
    return score.span_id, _carrier_id(score) or ""


def _carrier(target: Span, scores: list[StoredScore]) -> Span:
    about = (semconv.EVAL_STARTED_AT, semconv.EVAL_SUPERSEDES)
    metadata = scores[0].metadata
    return Span(
        trace_id=target.trace_id,
        span_id=_carrier_id(scores[0]) or "",
        parent_span_id=target.span_id,
        name=semconv.CARRIER_NAME_PREFIX,
        start_ns=target.start_ns,
        end_ns=target.end_ns,
        attributes={
            semconv.OI_KIND: semconv.OI_EVALUATOR,
            **{key: str(metadata[key]) for key in about if key in metadata},
            **{f"{semconv.LABEL_PREFIX}{name}": label for name, label in map(_told, scores)},
        },
        resource=Resource(attributes=target.resource.attributes),
        scope=Scope(name=semconv.SCOPE_EVALUATION),
    )


def _told(score: StoredScore) -> tuple[str, str]:
    label = score.metadata.get(semconv.EVALUATION_LABEL, Label.ERROR.value)
    return str(score.metadata.get(semconv.EVALUATION_NAME)), str(label)
