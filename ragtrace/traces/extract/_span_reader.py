"""The reading of one span, as a part of a RAG call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from ragtrace import semconv
from ragtrace.model import AttributeValue, Chunk, Part, SkipReason
from ragtrace.traces.extract._content import ContentDamage, FoundValue, best
from ragtrace.traces.trace import Span

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """A tool's result for the model."""

    tool: str | None
    """The tool's name; ``None`` if the prompt does not have it."""
    documents: FoundValue[tuple[Chunk, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanReading:
    """The content of a span, by one convention or by all of them."""

    span: Span
    convention: str
    role: Role | None = None
    question: FoundValue[str] | None = None
    query: FoundValue[str] | None = None
    documents: FoundValue[tuple[Chunk, ...]] | None = None
    tool: str | None = None
    """The name of the called tool."""
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
    def has_text(self) -> bool:
        """Whether it holds documents with text."""
        documents = self.documents.value if self.documents else None
        return any(chunk.text for chunk in documents or ())


def merge(readings: Sequence[SpanReading]) -> SpanReading:
    """Merge the readings of one span by several conventions.

    The first known role wins. Of each part, the first undamaged one wins, because a span in two conventions
    holds the same text twice.
    """
    if len(readings) == 1 and semconv.RAG_TRUNCATED not in readings[0].span.attributes:
        return readings[0]
    role_giver = next((reading for reading in readings if reading.role), readings[0])
    span = role_giver.span
    return SpanReading(
        span=span,
        convention=role_giver.convention,
        role=role_giver.role,
        question=_marked(span, Part.QUESTION, best(*(reading.question for reading in readings))),
        query=best(*(reading.query for reading in readings)),
        documents=_marked(span, Part.CONTEXT, best(*(reading.documents for reading in readings))),
        tool=_first(reading.tool for reading in readings),
        handed=next((reading.handed for reading in readings if reading.handed), ()),
        answer=_marked(span, Part.ANSWER, best(*(reading.answer for reading in readings))),
        told=next((each.told for each in readings if each.told is not None), None),
        output=next((each.output for each in readings if each.output is not None), None),
        output_at=_first(each.output_at for each in readings) or "",
        reference=best(*(reading.reference for reading in readings)),
        reference_chunk_ids=next(
            (each.reference_chunk_ids for each in readings if each.reference_chunk_ids), ()
        ),
        model=_first(reading.model for reading in readings) if role_giver.role is not Role.STEP else None,
        response_id=_first(reading.response_id for reading in readings),
        session_id=_first(reading.session_id for reading in readings),
        conversation_id=_first(reading.conversation_id for reading in readings),
        prompt_version=_first(reading.prompt_version for reading in readings),
    )


def _marked(span: Span, part: Part, found: FoundValue[T] | None) -> FoundValue[T] | None:
    """Apply ragtrace's own mark of a truncated text."""
    marks = span.attributes.get(semconv.RAG_TRUNCATED)
    if found is None or found.damage or not isinstance(marks, tuple) or part not in marks:
        return found
    detail = f"the content policy of `ragtrace.instrument` cut the {part}: raise its limit"
    return replace(found, damage=ContentDamage(reason=SkipReason.TRUNCATED, detail=detail))


def _first(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value), None)
