"""User feedback on an answer as a span of its trace: at once, or later and in another process."""

from __future__ import annotations

import itertools
import math
import re
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN_ID,
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
    Tracer,
    format_span_id,
    format_trace_id,
    set_span_in_context,
)

from ragtrace import semconv
from ragtrace.capture._guard import Recorder, active, first_time, guarded, log
from ragtrace.capture._recording import Recording
from ragtrace.capture.privacy.policy import ContentFilter
from ragtrace.capture.values import identity, name
from ragtrace.errors import InputError
from ragtrace.model import Part

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue


Thumbs = Literal["up", "down"]
DEFAULT_NAME: Final = "user_feedback"
COMMENT: Final = "comment"
"""The mark for a truncated or changed comment. It is not one of the judged parts."""


def feedback(
    target: str | Span | SpanContext | Recording,
    *,
    span_id: str | None = None,
    thumbs: Thumbs | bool | None = None,
    score: float | None = None,
    comment: str | None = None,
    reference: str | None = None,
    name: str = DEFAULT_NAME,
    user_id: str | None = None,
) -> bool:
    """Record user feedback on an answer as a small span of its trace; return whether it was recorded.

    Pass the ids to the front end, and call this when the feedback arrives::

        ragtrace.feedback(trace_id, span_id=span_id, thumbs="down", comment="That is last year's price.")

    It does nothing while capture is off, and never raises. Unusable values are counted and logged once.

    Args:
        target: A trace id (32 hex digits), an OpenTelemetry span or span context, or an object from
            ``ragtrace.rag``, ``retrieval`` or ``generation``.
        span_id: The answer's span (16 hex digits), which the feedback links to. Only with a trace id.
        thumbs: ``"up"`` or ``"down"``, or ``True`` or ``False``.
        score: From 0 (bad) to 1 (good).
        comment: At most 1,800 bytes, recorded under the content policy.
        reference: The correct answer, for metrics that need a reference.
        name: The name of the rating, if you collect several.
        user_id: The user who gave the feedback.
    """
    recorder = active()
    if recorder is None:
        return False
    said = _Said(thumbs, score, comment, reference, name, user_id)
    return _record(recorder, target, span_id, said) is True


def feedback_counts() -> tuple[int, int]:
    """Return how many calls were recorded, and refused for an unusable target or value, so far."""
    return _recorded, _refused


class _Said(NamedTuple):
    """The caller's arguments."""

    thumbs: object
    score: object
    comment: object
    reference: object
    name: object
    user_id: object


class _Target(NamedTuple):
    trace_id: int
    span_id: int = INVALID_SPAN_ID
    """Invalid if only a trace id is known."""
    flags: TraceFlags | None = None
    """``None`` if it is unknown whether that span was sampled."""


_records, _refusals = itertools.count(1), itertools.count(1)
_recorded = _refused = 0


@guarded
def _record(recorder: Recorder, target: object, span_id: object, said: _Said) -> bool:
    global _recorded, _refused
    try:
        found = _target(target, span_id)
        if found is None:
            return False
        content_filter = ContentFilter(recorder.policy, found.trace_id)
        attributes = _attributes(found, said, content_filter)
        span = _start(recorder.tracer, found, attributes)
    except InputError as exc:
        _refused = next(_refusals)
        if first_time("feedback", str(exc)):
            log.warning("ragtrace: feedback was not recorded: %s", exc)
        return False
    is_recorded = span.is_recording()
    span.end()
    if is_recorded:
        _recorded = next(_records)
    return is_recorded


def _target(target: object, span_id: object) -> _Target | None:
    """Find the feedback's target; ``None`` if ragtrace did not record it."""
    if isinstance(target, str):
        parent = INVALID_SPAN_ID if span_id is None else _id(span_id, "span_id", digits=16)
        return _Target(_id(target, "target", digits=32), parent)
    if span_id is not None:
        raise InputError("`span_id` only goes with a trace id")
    if isinstance(target, Recording):
        target = target.span
        if target is None:
            return None
    context = target.get_span_context() if isinstance(target, Span) else target
    if not isinstance(context, SpanContext):
        raise InputError(
            f"`target` is a {type(target).__name__}: give a trace id, a span or an object from `rag`"
        )
    if not context.is_valid:
        raise InputError(
            "`target` is a span without ids: was there a current span, and an OpenTelemetry SDK?"
        )
    return _Target(context.trace_id, context.span_id, context.trace_flags)


def _id(text: object, argument: str, *, digits: int) -> int:
    if isinstance(text, str) and re.fullmatch(rf"[0-9a-fA-F]{{{digits}}}", text) and int(text, 16):
        return int(text, 16)
    raise InputError(f"`{argument}` is not an id: give {digits} hex digits, not all of them 0")


def _attributes(target: _Target, said: _Said, content_filter: ContentFilter) -> dict[str, AttributeValue]:
    limit = min(content_filter.policy.max_question_bytes, semconv.SAFE_STRING_BYTES)
    label, score = _label(said.thumbs), _score(said.score)
    comment = content_filter.text(said.comment, Part.QUESTION, limit, COMMENT)
    reference = content_filter.text(said.reference, Part.REFERENCE, content_filter.policy.max_reference_bytes)
    if all(each is None for each in said[:4]):
        raise InputError("the feedback is empty: give `thumbs`, `score`, `comment` or `reference`")
    asked = content_filter.policy.identifier(name(said.name, "name") or DEFAULT_NAME) or DEFAULT_NAME
    found: dict[str, AttributeValue | None] = {
        semconv.OI_KIND: semconv.OI_EVALUATOR,
        semconv.FEEDBACK_NAME: asked,
        semconv.FEEDBACK_LABEL: label,
        semconv.FEEDBACK_SCORE: score,
        semconv.FEEDBACK_COMMENT: comment,
        semconv.REFERENCE_ANSWER: reference,
        semconv.USER_ID: identity(said.user_id, "user id"),
        semconv.TARGET_TRACE_ID: format_trace_id(target.trace_id),
        **(_annotation(asked, label, score, comment) if target.span_id != INVALID_SPAN_ID else {}),
        **content_filter.marks(),
    }
    return content_filter.policy.written({key: value for key, value in found.items() if value is not None})


def _label(thumbs: object) -> Thumbs | None:
    if thumbs is None:
        return None
    if thumbs is True or thumbs == "up":
        return "up"
    if thumbs is False or thumbs == "down":
        return "down"
    raise InputError('`thumbs` must be "up", "down", True or False')


def _score(score: object) -> float | None:
    if score is None:
        return None
    number = _number(score)
    if not 0 <= number <= 1:  # nor NaN
        raise InputError("`score` must be a number from 0 to 1: map your scale to it")
    return number


def _number(value: Any) -> float:
    try:
        # a mock converts to any number
        return math.nan if isinstance(value, bool | str) or callable(value) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _annotation(
    asked: str, label: str | None, score: float | None, comment: str | None
) -> dict[str, AttributeValue | None]:
    """Return the feedback as OpenInference annotations (``spec/annotations.md``), if there is any."""
    if label is None and score is None and comment is None:
        return {}
    prefix = f"{semconv.OI_ANNOTATIONS}.0.annotation."
    return {
        f"{prefix}name": asked,
        f"{prefix}annotator_kind": semconv.OI_HUMAN,
        f"{prefix}label": label,
        f"{prefix}score": score,
        f"{prefix}explanation": comment,
    }


def _start(tracer: Tracer, target: _Target, attributes: dict[str, AttributeValue]) -> Span:
    label = attributes.get(semconv.FEEDBACK_LABEL)
    name = semconv.FEEDBACK_SPAN if label is None else f"{semconv.FEEDBACK_SPAN} {label}"
    if target.span_id == INVALID_SPAN_ID:
        return _in_trace(tracer, target.trace_id).start_span(
            name, Context(), kind=SpanKind.INTERNAL, attributes=attributes
        )
    flags = _flags(tracer, target.trace_id, name) if target.flags is None else target.flags
    about = SpanContext(target.trace_id, target.span_id, is_remote=True, trace_flags=flags)
    return tracer.start_span(
        name,
        set_span_in_context(NonRecordingSpan(about), Context()),
        kind=SpanKind.INTERNAL,
        attributes={**attributes, semconv.TARGET_SPAN_ID: format_span_id(target.span_id)},
        links=[Link(about, semconv.LINK_TO_PARENT)],
    )


def _flags(tracer: Tracer, trace_id: int, name: str) -> TraceFlags:
    """Repeat the decision of the application's sampler: feedback on an unsampled trace would be an orphan."""
    sampler = getattr(tracer, "sampler", None)
    if sampler is not None and not sampler.should_sample(Context(), trace_id, name).decision.is_sampled():
        return TraceFlags(TraceFlags.DEFAULT)
    return TraceFlags(TraceFlags.SAMPLED)


def _in_trace(tracer: Tracer, trace_id: int) -> Tracer:
    """Return a tracer whose root spans join this trace: the parent span is unknown."""
    ids = getattr(tracer, "id_generator", None)
    if ids is None:
        raise InputError("a trace id alone needs the tracer of OpenTelemetry's SDK: give `span_id` too")
    joining: Any = copy(tracer)
    joining.id_generator = _IdsOfTrace(trace_id, ids)
    return joining  # type: ignore[no-any-return]


class _IdsOfTrace:
    """An id generator with a fixed trace id and another generator's span ids."""

    def __init__(self, trace_id: int, ids: object) -> None:
        self._trace_id = trace_id
        self._ids = ids

    def generate_trace_id(self) -> int:
        return self._trace_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ids, name)
