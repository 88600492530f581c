"""The reading of one span, as a part of a RAG call, and whether its stream was read to its end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from ragtrace import semconv
from ragtrace.model import AttributeValue, Chunk, Part, SkipReason
from ragtrace.traces.extract._content import ContentDamage, FoundValue, best
from ragtrace.traces.extract._messages import Message, messages_of
from ragtrace.traces.trace import Span, StatusCode

T = TypeVar("T")


class Role(StrEnum):
    """The role of a span in a RAG call."""

    CALL = "RAG call"
    RETRIEVAL = "retrieval"
    RERANK = "rerank"
    GENERATION = "generation"
    TOOL = "tool call"
    GUARDRAIL = "guardrail"
    EVALUATOR = "evaluator"
    STEP = "step"
    """Another kind of span; it overrides another convention on the same span."""


class ToolResult(NamedTuple):
    """A tool's result for the model."""

    tool: str | None
    """The tool's name; ``None`` if the prompt does not have it."""
    documents: FoundValue[tuple[Chunk, ...]]


class SpanReading(NamedTuple):
    """The content of a span, by one convention or by all of them."""

    span: Span
    convention: str
    role: Role | None = None
    question: FoundValue[str] | None = None
    query: FoundValue[str] | None = None
    documents: FoundValue[tuple[Chunk, ...]] | None = None
    tool: str | None = None
    """The name of the called tool."""
    prompt: FoundValue[tuple[Message, ...]] | None = None
    """A model's input messages, with its instructions."""
    handed: tuple[ToolResult, ...] = ()
    """Tool results in a generation's prompt, after the last user message."""
    answer: FoundValue[str] | None = None
    told: AttributeValue = None
    """All that a call was asked, as it was recorded."""
    output: AttributeValue = None
    """All that a call returned."""
    output_at: str = ""
    reference: FoundValue[str] | None = None
    reference_chunk_ids: tuple[str, ...] = ()
    model: str | None = None
    response_id: str | None = None
    session_id: str | None = None
    conversation_id: str | None = None
    prompt_version: str | None = None

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The documents that it holds."""
        return (self.documents.value if self.documents else None) or ()

    def with_chunks(self, chunks: tuple[Chunk, ...]) -> SpanReading:
        """Return the reading with these documents instead, if it has any."""
        return self._replace(documents=self.documents._replace(value=chunks)) if self.documents else self

    @property
    def has_text(self) -> bool:
        """Whether it holds documents with text."""
        return any(chunk.text for chunk in self.chunks)

    @property
    def said(self) -> str:
        """The text of the answer."""
        return (self.answer.value if self.answer else None) or ""

    @property
    def asked(self) -> str:
        """The text of the question."""
        return (self.question.value if self.question else None) or ""

    @property
    def searched(self) -> str:
        """The text of the query."""
        return (self.query.value if self.query else None) or ""


def merge(readings: Sequence[SpanReading]) -> SpanReading | None:
    """Merge the readings of one span by several conventions; ``None`` of none.

    The first known role wins. Of each part, the first undamaged one wins, because a span in two conventions
    holds the same text twice.
    """
    if not readings or (len(readings) == 1 and semconv.RAG_TRUNCATED not in readings[0].span.attributes):
        return readings[0] if readings else None
    giver = next((reading for reading in readings if reading.role), readings[0])
    found: dict[str, Any] = {
        name: best(*each) if name in _TEXTS else next(filter(None, each), own)
        for name, own, each in zip(SpanReading._fields, giver, zip(*readings, strict=True), strict=True)
        if name not in ("span", "convention", "role")
    }
    if semconv.RAG_TRUNCATED in giver.span.attributes:
        for name, part in _MARKED.items():
            found[name] = _marked(giver.span, part, found[name])
    if giver.role is Role.STEP:
        found["model"] = None
    return giver._replace(**found)


_TEXTS: Final = ("question", "query", "documents", "answer", "reference")
_MARKED: Final = {"question": Part.QUESTION, "documents": Part.CONTEXT, "answer": Part.ANSWER}


def _marked(span: Span, part: Part, found: FoundValue[T] | None) -> FoundValue[T] | None:
    """Apply ragtrace's own mark of a truncated text."""
    marks = span.attributes.get(semconv.RAG_TRUNCATED)
    if found is None or found.damage or not isinstance(marks, tuple) or part not in marks:
        return found
    detail = f"the content policy of `ragtrace.instrument` cut the {part}: raise its limit"
    return found._replace(damage=ContentDamage(SkipReason.TRUNCATED, detail))


_ERROR: Final = "error"
_RESPONSE: Final = "gen_ai.response."
_FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"
_PYDANTIC_AI: Final = "pydantic-ai"
_EVENTS: Final = "events"
"""What older versions of pydantic-ai write at the end, the reply with it."""
_LEFT: Final = re.compile(
    r"abandon|abort|brokenpipe|cancel|client ?(closed|disconnect)|generatorexit|greenletexit"
    r"|websocketdisconnect",
    re.IGNORECASE,
)
_UPSTREAM: Final = re.compile(r"connection ?abort", re.IGNORECASE)
"""What a client says whose server hung up."""


def end_of(span: Span) -> str | None:
    """Return how the span says that it was cut short: ``READER_LEFT``, ``STREAM_FAILED``, or not at all."""
    mark = span.attributes.get(semconv.RAG_STREAM_END)
    if mark in (semconv.READER_LEFT, semconv.STREAM_FAILED):
        return str(mark)
    is_error = span.status_code is StatusCode.ERROR
    if span.attributes.get(semconv.RAG_STREAM_COMPLETE) is False and not is_error:
        return semconv.READER_LEFT
    raised = _raised(span)
    said = raised or [span.attributes.get(semconv.ERROR_TYPE), span.status_message if is_error else ""]
    if any(isinstance(each, str) and each and _LEFT.search(_UPSTREAM.sub("", each)) for each in said):
        return semconv.READER_LEFT
    return semconv.STREAM_FAILED if is_error else None


def error_of(span: Span) -> str:
    """Return the type of the error that the span ended in, as far as it is told."""
    kinds = (*_raised(span), span.attributes.get(semconv.ERROR_TYPE))
    return next((each for each in kinds if isinstance(each, str) and _TYPE.fullmatch(each)), "an error")


_TYPE: Final = re.compile(r"[A-Za-z_][\w.:]{1,100}")


def _raised(span: Span) -> Sequence[object]:
    raised = [event.attributes for event in span.events if event.name == "exception"]
    told = [each.get("exception.message") for each in raised]
    return [
        *(each for each in told if each == _CANCELED_IN_GO),
        *(each.get("exception.type") for each in raised),
    ]


_CANCELED_IN_GO: Final = "context canceled"
"""Errors of Go have no type of their own."""


def is_streamed(span: Span) -> bool:
    """Return whether the span says that its answer was streamed."""
    attributes = span.attributes
    flags = (attributes.get(semconv.REQUEST_STREAM), attributes.get(semconv.IS_STREAMING_OPENLLMETRY))
    return True in flags or semconv.RAG_STREAM_COMPLETE in attributes or _has_first_token(span)


WENT_AWAY: Final = "the answer was not finished: its reader went away before the end"
_UNKNOWN: Final = f"{WENT_AWAY}, or it broke off with an error: the instrumentation does not tell which"


def left_open(span: Span) -> str | None:
    """Return why the answer on a generation is incomplete, if its stream's end never came.

    A missing finish reason alone is no sign, because most hand-written streaming code sets none.
    """
    attributes = span.attributes
    if span.scope.name == semconv.SCOPE_CAPTURE or semconv.RAG_KIND in attributes:
        return None  # ragtrace says how a stream ended
    reasons = set(_reasons(span))
    if _ERROR in reasons:
        return _UNKNOWN
    if attributes.get(semconv.IS_STREAMING_OPENLLMETRY) is True:
        return _UNKNOWN if semconv.OUTPUT_MESSAGES in attributes and not reasons else None
    # OpenInference sets the status at the end of the stream, and has no finish reason for some APIs
    is_open = _has_first_token(span) and span.status_code is not StatusCode.OK and not is_finished(span)
    is_part = span.scope.name == _PYDANTIC_AI and _FIRST_CHUNK in attributes and not is_finished(span)
    return WENT_AWAY if is_open or is_part else None


def is_finished(span: Span) -> bool:
    """Return whether a generation says why the model stopped, and that is no error."""
    reasons = {*_reasons(span), span.attributes.get(semconv.OI_FINISH_REASON)} - {None}
    return bool(reasons) and _ERROR not in reasons


def is_unanswered(span: Span) -> bool:
    """Return whether pydantic-ai began to read a reply and wrote nothing of it: it does so at its end."""
    is_ended = span.status_code is StatusCode.ERROR or any(
        key.startswith(_RESPONSE) or key == _EVENTS for key in span.attributes
    )
    return span.scope.name == _PYDANTIC_AI and not is_ended


def _has_first_token(span: Span) -> bool:
    return any(event.name == semconv.OI_FIRST_TOKEN for event in span.events)


def _reasons(span: Span) -> Iterator[str]:
    """Yield the finish reasons of the first choice, from the span and from the message."""
    listed = span.attributes.get(semconv.RESPONSE_FINISH_REASONS)
    messages, _ = messages_of(span.attributes.get(semconv.OUTPUT_MESSAGES))
    first = listed[0] if isinstance(listed, tuple) and listed else listed
    for reason in (first, messages[0].get("finish_reason") if messages else None):
        if isinstance(reason, str) and reason:
            yield reason
