"""Scores for back ends that do not read carriers: one per metric, on the answer's span.

Langfuse's follow its documentation and are tested against documented requests, not a real server, which needs
ClickHouse, Redis and an object store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, NamedTuple

from ragtrace import semconv
from ragtrace.backends.otlp_sinks import HttpSink
from ragtrace.errors import SendRejected
from ragtrace.http import REPEATABLE
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
    value: object = None
    explanation: object = None


def scores_in(request: bytes) -> tuple[Score, ...]:
    """Return the scores of all carriers in a serialized ``ExportTraceServiceRequest``.

    Raises:
        CodecError: the bytes are not OTLP.
    """
    return tuple(score for span in decode(request) if _is_carrier(span) for score in _scores(span))


def with_carriers(spans: Sequence[Span], kept: Iterable[StoredScore]) -> tuple[Span, ...]:
    """Return the spans with the carriers that scores were made from, as far as the scores tell.

    A carrier that the back end also stored as a span keeps its own attributes, and its events if it has any.
    Scores of other tools, and scores on other spans, are ignored.
    """
    stored = {span.span_id: span for span in spans}
    own = [score for score in kept if _carrier_id(score) and score.span_id in stored]
    grouped = groupby(sorted(own, key=_carrier_key), key=_carrier_key)
    rebuilt = (_carrier(stored[span_id], list(members)) for (span_id, _), members in grouped)
    for carrier in rebuilt:
        sent = stored.get(carrier.span_id)
        stored[carrier.span_id] = _completed(sent, carrier) if sent else carrier
    return tuple(stored.values())


def _completed(sent: Span, rebuilt: Span) -> Span:
    attributes = {**rebuilt.attributes, **sent.attributes}
    return replace(sent, attributes=attributes, events=sent.events or rebuilt.events)


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
        _CLAIMS.key: _verdicts(carrier, metric, semconv.CLAIM_METRIC, semconv.CLAIM_METRICS),
        _CHUNKS.key: _verdicts(carrier, metric, semconv.CHUNK_METRIC, semconv.CHUNK_METRICS),
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
    metadata, labels = scores[0].metadata, dict(map(_told, scores))
    # the reason is the whole evaluation's only if nothing was measured
    own = [
        key
        for key in _OF_CARRIER
        if key != semconv.EVAL_SKIP_REASON or set(labels.values()) == {Label.SKIPPED.value}
    ]
    return Span(
        trace_id=target.trace_id,
        span_id=_carrier_id(scores[0]) or "",
        parent_span_id=target.span_id,
        name=semconv.CARRIER_NAME_PREFIX,
        start_ns=target.start_ns,
        end_ns=target.end_ns,
        attributes={
            semconv.OI_KIND: semconv.OI_EVALUATOR,
            **{key: _plain(metadata[key]) for key in own if key in metadata},
            **{f"{semconv.LABEL_PREFIX}{name}": label for name, label in labels.items()},
        },
        events=tuple(_events(scores, target.start_ns)),
        resource=Resource(attributes=target.resource.attributes),
        scope=Scope(name=semconv.SCOPE_EVALUATION),
    )


def _told(score: StoredScore) -> tuple[str, str]:
    label = score.metadata.get(semconv.EVALUATION_LABEL, Label.ERROR.value)
    return str(score.metadata.get(semconv.EVALUATION_NAME)), str(label)


def _events(scores: Iterable[StoredScore], time_ns: int) -> Iterator[SpanEvent]:
    """Yield a result for each score, then each verdict once, with all metrics that use it."""
    verdicts: dict[str, tuple[_Verdicts, Mapping[str, object], list[str]]] = {}
    for score in scores:
        yield _result(score, time_ns)
        name, _ = _told(score)
        for kind in (_CLAIMS, _CHUNKS):
            for verdict in _listed(score.metadata.get(kind.key)):
                mark = json.dumps([kind.key, verdict], sort_keys=True, default=str)
                verdicts.setdefault(mark, (kind, verdict, []))[2].append(name)
    for kind, verdict, names in verdicts.values():
        yield kind.event(verdict, names, time_ns)


def _result(score: StoredScore, time_ns: int) -> SpanEvent:
    elsewhere = {semconv.CARRIER_SPAN_ID, _CLAIMS.key, _CHUNKS.key, *_OF_CARRIER} - {semconv.EVAL_SKIP_REASON}
    told: dict[str, AttributeValue] = {
        key: _plain(value) for key, value in score.metadata.items() if key not in elsewhere
    }
    if isinstance(score.value, int | float):
        told[semconv.EVALUATION_SCORE] = float(score.value)
    if isinstance(score.explanation, str):
        told[semconv.EVALUATION_EXPLANATION] = score.explanation
    return SpanEvent(name=semconv.EVALUATION_RESULT, time_ns=time_ns, attributes=told)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdicts:
    """A list of verdicts in the metadata of a score, whose keys have lost their beginnings."""

    key: str
    prefix: str
    several: str
    verdict: str
    """The key of the verdict's word."""

    def event(self, told: Mapping[str, object], metrics: list[str], time_ns: int) -> SpanEvent:
        """Return the carrier's event of a verdict."""
        attributes: dict[str, AttributeValue] = {
            f"{self.prefix}{key}": _plain(value) for key, value in told.items()
        }
        attributes[self.several] = tuple(metrics)
        return SpanEvent(
            name=f"{self.prefix}{told.get(self.verdict)}", time_ns=time_ns, attributes=attributes
        )


_CLAIMS: Final = _Verdicts(
    key="ragtrace.claims",
    prefix=semconv.CLAIM_EVENT_PREFIX,
    several=semconv.CLAIM_METRICS,
    verdict="verdict",
)
_CHUNKS: Final = _Verdicts(
    key="ragtrace.chunks",
    prefix=semconv.CHUNK_EVENT_PREFIX,
    several=semconv.CHUNK_METRICS,
    verdict="label",
)


def _listed(value: object) -> Iterator[Mapping[str, object]]:
    for member in value if isinstance(value, list | tuple) else ():
        if isinstance(member, Mapping):
            yield member


def _plain(value: object) -> AttributeValue:
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return value if isinstance(value, str | bool | int | float) else str(value)


class LangfuseScoreSink(HttpSink):
    """Post one score per metric on the answer's observation. Spans other than carriers are ignored."""

    retryable = REPEATABLE.statuses
    """Langfuse overwrites a score of the same id."""

    async def send(self, request: bytes) -> None:
        """Post the scores of the carriers in a request; without any, only check the keys."""
        scores = scores_in(request)
        if not scores:
            await self._ask("GET", "/api/public/projects")
        for score in scores:
            await self._ask(
                "POST",
                "/api/public/scores",
                body=json.dumps(_body(score)).encode(),
                headers={"content-type": "application/json"},
            )


def _body(score: Score) -> dict[str, AttributeValue]:
    """Return the request body: a number for a score, or a word for a skipped or failed metric.

    The word has another score name, because Langfuse allows one type per name.
    """
    value: dict[str, AttributeValue] = (
        {"name": f"{score.metric}.label", "value": score.label, "dataType": "CATEGORICAL"}
        if score.value is None
        else {"name": score.metric, "value": score.value, "dataType": "NUMERIC"}
    )
    return {
        "id": f"{score.carrier_id}-{score.metric}",
        "traceId": score.trace_id,
        **({"observationId": score.span_id} if score.span_id else {}),
        **value,
        "comment": score.explanation,
        "metadata": score.metadata,
    }


_PATH: Final = "/v1/span_annotations?sync=true"
"""It responds after storing the annotations, and reports a missing span."""
_NO_SUCH_SPAN: Final = 404
_ANNOTATORS: Final = {"deterministic": "CODE", "human": "HUMAN"}
"""Phoenix's words, by the type of the evaluator; a language model's is ``LLM``."""


class PhoenixAnnotationSink(HttpSink):
    """Post one annotation per metric on the answer's span. Spans other than carriers are ignored."""

    retryable = REPEATABLE.statuses
    """Phoenix overwrites an annotation of the same identifier."""

    async def send(self, request: bytes) -> None:
        """Post the scores of the carriers in a request; without any, only check that Phoenix takes some."""
        body = json.dumps({"data": [_annotation(score) for score in scores_in(request)]})
        headers = {"content-type": "application/json"}
        reply = await self._ask(
            "POST", _PATH, body=body.encode(), headers=headers, understood={_NO_SUCH_SPAN}
        )
        if reply.status == _NO_SUCH_SPAN:
            raise SendRejected(f"{self.name} has no such span: send the traces there first")


def _annotation(score: Score) -> dict[str, AttributeValue]:
    return {
        "span_id": score.span_id,
        "name": score.metric,
        "annotator_kind": _ANNOTATORS.get(score.evaluator_type, "LLM"),
        "result": {"label": score.label, "score": score.value, "explanation": score.explanation},
        "metadata": score.metadata,
        "identifier": score.carrier_id,
    }
