"""Build the carrier of an evaluation: the span that shows the verdicts in the evaluated trace.

Schema version 2. The carrier follows OpenInference's rule for later feedback (a new span of kind EVALUATOR
with exactly one link to its target, ``evaluations.<i>.evaluation.*``) and OpenTelemetry's event
``gen_ai.evaluation.result``. Flat ``ragtrace.*`` scalars are for search.

In hold mode the answer's span gets more attributes and events, and nothing else of it changes: it is
forwarded as protobuf parsed it, with fields that this version of OTLP does not know.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final, Literal
from urllib.parse import quote

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from ragtrace import __version__, semconv
from ragtrace.errors import InputError
from ragtrace.model import AttributeValue, Evaluation, JudgedAnswer, RagRecord, Sample, SkipReason, Target
from ragtrace.traces._otlp_values import to_request
from ragtrace.traces.carrier_outcomes import (
    TimeRange,
    brief,
    evaluation_objects,
    events_of,
    explain,
    outcome_attributes,
    overall_label,
    status_of,
)
from ragtrace.traces.carrier_table import ANSWER, TEXT
from ragtrace.traces.trace import Resource, Scope, Span, SpanEvent, SpanKind, SpanLink, StatusCode

CarrierTime = Literal["target", "now", "auto"]
Mode = Literal["append", "hold", "backfill"]

MAX_ATTRIBUTES: Final = 128
"""The default limit of readers and collectors for a span."""
_SPARE_NS = 2_000
_LENGTH_NS = 1_000_000
_LAST_NS = 2**64 - 1
"""OTLP's latest time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachOptions:
    """Options for the content and the time of a carrier."""

    carrier_time: CarrierTime = "auto"
    """``target``: inside the target's interval, which suits Jaeger. ``now``: at the time of writing, which
    suits Tempo for old traces. ``auto``: ``target`` if the target is younger than ``tempo_slack_s``."""
    tempo_slack_s: float = 120
    """Tempo's ``ingestion_time_range_slack``, in seconds."""
    max_claims: int = 30
    """Maximum number of claims as events, failing ones first. At most 90. Chunks have a separate limit."""
    content: bool = True
    """``False`` writes scores, counts, chunk ids and offsets only, no text."""
    openinference: bool = False
    """Also write OpenInference's ``evaluations.<i>.evaluation.*``, for a back end that reads them."""
    page_url: str = ""
    """Where ragtrace's page is, without a slash at the end: the carrier links to the answer there."""

    def is_dated_now(self, end_ns: int, *, now_ns: int) -> bool:
        """Return whether a span about what ended then is dated now: Jaeger and Tempo differ on old traces."""
        age_s = (now_ns - end_ns) / 1e9
        return self.carrier_time == "now" or (self.carrier_time == "auto" and age_s >= self.tempo_slack_s)


def deserves_carrier(evaluation: Evaluation) -> bool:
    """Return whether the evaluation gets a carrier: not if the answer had no retrieval.

    Such a call, of an agent or a chat, is seldom a RAG call, and a carrier on each would be noise.
    """
    reasons = {result.skip_reason for result in evaluation.results}
    return bool(evaluation.failures) or reasons != {SkipReason.NO_RETRIEVAL}


def carrier_span_id(
    *,
    trace_id: str,
    span_id: str,
    evaluator_set: str,
    evaluator_version: str,
    tenant: str = "",
    revised_sha256: str = "",
) -> str:
    """Return the id of the carrier, which is deterministic for a target and an evaluator.

    A re-sent carrier is the same span. A new evaluator version gives a new one, and so does a revision, which
    has another record digest. Spans of two tenants with the same ids get different carriers; otherwise a back
    end would keep only one.
    """
    owner = (f"tenant={tenant}",) if tenant else ()
    revised = (revised_sha256,) if revised_sha256 else ()
    key = "|".join((trace_id, span_id, evaluator_set, evaluator_version, *owner, *revised))
    return hashlib.sha256(key.encode()).digest()[:8].hex()


def record_sha256(record: RagRecord) -> str:
    """Return the digest of the record's judged parts.

    These are question, answer, citations, reference, chunks in order, and gaps. Fields copied for filtering,
    such as the session, do not count, because they change no verdict.
    """
    judged: list[object] = [
        record.question,
        record.answer,
        record.reference,
        record.reference_chunk_ids,
        [[chunk.id, chunk.text] for chunk in record.chunks],
        [[gap.part, gap.reason] for gap in record.gaps],
    ]
    if record.provider_citations:
        judged.append(
            [[each.start, each.end, each.chunk_ids, each.source] for each in record.provider_citations]
        )
    return hashlib.sha256(json.dumps(judged).encode()).hexdigest()


def carrier(
    evaluation: Evaluation,
    record: RagRecord,
    *,
    sample: Sample,
    mode: Mode = "append",
    options: AttachOptions,
    now_ns: int,
    supersedes: str | None = None,
    is_revision: bool = False,
    cost_usd: float | None = None,
) -> Span:
    """Build the carrier span of an evaluation.

    ``now_ns`` is Unix time in nanoseconds, and ``supersedes`` the span id of the replaced carrier.
    ``is_revision`` means that the replaced carrier has the same target and evaluator, but another record.
    ``cost_usd`` is the cost of the judge's tokens, if known.

    Raises:
        InputError: the record does not come from a trace, so there is nothing to attach to.
    """
    target = record.target
    if target is None:
        raise InputError(f"record {record.id!r} has no target span: only records from traces get a carrier")
    interval = _interval(target, options, now_ns)
    return Span(
        trace_id=target.trace_id,
        span_id=_id(evaluation, target, record_sha256(record) if is_revision else ""),
        parent_span_id=target.span_id,
        name=f"{semconv.CARRIER_NAME_PREFIX} {overall_label(evaluation).value}",
        kind=SpanKind.INTERNAL,
        start_ns=interval.start_ns,
        end_ns=interval.end_ns,
        attributes=_attributes(
            JudgedAnswer(
                record=record,
                evaluation=evaluation,
                sample=sample,
                supersedes=supersedes or "",
                cost_usd=cost_usd,
            ),
            mode,
            options,
        ),
        events=events_of(
            evaluation, record, max_claims=options.max_claims, content=options.content, within=interval
        ),
        links=(
            SpanLink(trace_id=target.trace_id, span_id=target.span_id, attributes=semconv.LINK_TO_PARENT),
        ),
        status_code=StatusCode.ERROR if status_of(evaluation) == "error" else StatusCode.UNSET,
        flags=target.trace_flags,
        trace_state=target.trace_state,
        resource=Resource(attributes=target.resource, schema_url=target.resource_schema_url),
        scope=Scope(name=semconv.SCOPE_EVALUATION, version=__version__),
    )


_OF_CARRIERS: Final = frozenset(
    {
        semconv.OPERATION_NAME,
        semconv.OI_KIND,
        semconv.TARGET_TRACE_ID,
        semconv.TARGET_SPAN_ID,
        semconv.TARGET_START,
        semconv.TARGET_END,
        semconv.EVAL_SUPERSEDES,
    }
)
"""Attributes that mark an evaluation and its target, or repeat the answer span's own values."""


def without_evaluation_objects(carrier: Span) -> Span:
    """Return a carrier without OpenInference's ``evaluations.<i>.*``, as most back ends get it."""
    prefix = f"{semconv.OI_EVALUATIONS}."
    attributes = {key: value for key, value in carrier.attributes.items() if not key.startswith(prefix)}
    return replace(carrier, attributes=attributes)


def addition_of(carrier: Span) -> bytes:
    """Return what is added to the answer span in hold mode, in place of its carrier, with the same names.

    The span keeps the application's status.

    Raises:
        CodecError: a value does not fit into OTLP.
    """
    attributes = {key: value for key, value in carrier.attributes.items() if key not in _OF_CARRIERS}
    if attributes.get(semconv.EVAL_SUPERSEDES) == carrier.parent_span_id:
        del attributes[semconv.EVAL_SUPERSEDES]  # judged again while held: the first scores were never sent
    return encode_addition({**attributes, semconv.EVAL_MODE: "hold"}, carrier.events)


def _id(evaluation: Evaluation, target: Target, revised_sha256: str) -> str:
    return carrier_span_id(
        trace_id=target.trace_id,
        span_id=target.span_id,
        evaluator_set=evaluation.evaluator_set,
        evaluator_version=evaluation.evaluator_version,
        tenant=tenant_of(target),
        revised_sha256=revised_sha256,
    )


def tenant_of(target: Target) -> str:
    """Return the tenant of the target's application; empty if there is none."""
    return str(target.resource.get(semconv.TENANT, ""))


def _interval(target: Target, options: AttachOptions, now_ns: int) -> TimeRange:
    if options.is_dated_now(target.end_ns, now_ns=now_ns):
        return TimeRange(now_ns - _LENGTH_NS, now_ns)
    return _inside(target)


def _inside(target: Target) -> TimeRange:
    """Return the last millisecond of the target, without its last two microseconds.

    Jaeger rounds start and duration down to microseconds separately, and warns if a child seems to end after
    its parent. A target too short for this gets the shortest carrier, at its start.
    """
    end_ns = target.end_ns - _SPARE_NS
    if end_ns <= target.start_ns:
        start_ns = min(target.start_ns, _LAST_NS - 1)
        return TimeRange(start_ns, start_ns + 1)
    return TimeRange(max(target.start_ns, target.end_ns - _LENGTH_NS), end_ns)


def _attributes(answer: JudgedAnswer, mode: Mode, options: AttachOptions) -> dict[str, AttributeValue]:
    record, evaluation = answer.record, answer.evaluation
    assert record.target is not None
    given: dict[str, AttributeValue] = {
        semconv.OPERATION_NAME: semconv.OP_EVALUATION,
        semconv.OI_KIND: semconv.OI_EVALUATOR,
        semconv.BRIEF: brief(evaluation),
        semconv.URL: _page_url(record.target, options.page_url),
        semconv.SCHEMA: semconv.SCHEMA_VERSION,
        semconv.EVAL_MODE: mode,
        semconv.CONTEXT_COUNT: len(record.chunks),
        semconv.CONTEXT_SOURCE: semconv.CONTEXT_SOURCE_PROMPT if record.context_from_prompt else None,
    }
    # outcomes last, so that objects beyond the limit are left out
    whole = {**ANSWER.write(answer, given), **outcome_attributes(evaluation)}
    attributes = dict(islice(whole.items(), MAX_ATTRIBUTES))
    objects = evaluation_objects(evaluation, partial(explain, content=options.content))
    for each in objects if options.openinference else ():
        if len(attributes) + len(each) > MAX_ATTRIBUTES:
            break  # OpenInference: omit an object that limits would make incomplete
        attributes |= {key: TEXT.write(it) if isinstance(it, str) else it for key, it in each.items()}
    return attributes


def _page_url(target: Target, page_url: str) -> str | None:
    if not page_url:
        return None
    tenant = tenant_of(target)
    of_tenant = f"?tenant={quote(tenant, safe='')}" if tenant else ""
    return f"{page_url}/answers/{target.trace_id}/{target.span_id}{of_tenant}"


def encode_addition(attributes: Mapping[str, AttributeValue], events: tuple[SpanEvent, ...] = ()) -> bytes:
    """Encode attributes and events for ``add_to_spans``. Keys that a span has already are skipped there.

    Raises:
        CodecError: a value does not fit into OTLP.
    """
    span = Span(
        trace_id="",
        span_id="",
        parent_span_id=None,
        name="",
        start_ns=0,
        end_ns=0,
        attributes=attributes,
        events=events,
    )
    return to_request([span]).resource_spans[0].scope_spans[0].spans[0].SerializeToString()


def add_to_spans(payload: bytes, additions: Mapping[str, bytes]) -> bytes:
    """Add encoded additions, by span id, to the spans of one trace and to all copies of them.

    ``payload`` is a serialized ``TracesData`` of that trace. It is returned unchanged if no span matches.
    """
    wanted = {bytes.fromhex(span_id): addition for span_id, addition in additions.items()}
    if not any(span_id in payload for span_id in wanted):  # skips parsing if no span can match
        return payload
    request = ExportTraceServiceRequest.FromString(payload)
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                if span.span_id in wanted:
                    _add(span, trace_pb2.Span.FromString(wanted[span.span_id]))
    return request.SerializeToString()


def _add(span: trace_pb2.Span, addition: trace_pb2.Span) -> None:
    present = {attribute.key for attribute in span.attributes}
    span.attributes.extend(each for each in addition.attributes if each.key not in present)
    span.events.extend(addition.events)
