"""The reading of one span, as a part of a RAG call."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from ragtrace import semconv
from ragtrace.model import AttributeValue, Chunk, Part, SkipReason
from ragtrace.traces.extract._citations import FoundCitation
from ragtrace.traces.extract._content import ContentDamage, FoundValue, best
from ragtrace.traces.extract._messages import Message
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
    citations: tuple[FoundCitation, ...] = ()
    """What the model's provider returned beside the answer."""
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
