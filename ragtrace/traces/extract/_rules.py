"""The user's rules for extraction, with a mapping of custom attributes that overrides every convention."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

from ragtrace.traces.extract._content import FoundValue
from ragtrace.traces.extract._span_reader import Role, SpanReading, T
from ragtrace.traces.extract.convention import AttributePath, Convention, Reader
from ragtrace.traces.trace import Span

NAME: Final = "mapping"


@dataclass(frozen=True, kw_only=True)
class AttributeMapping:
    """The user's attributes for the parts of a RAG call; they override every convention."""

    question: tuple[AttributePath, ...] = ()
    answer: tuple[AttributePath, ...] = ()
    context: tuple[AttributePath, ...] = ()
    reference: tuple[AttributePath, ...] = ()
    session: tuple[AttributePath, ...] = ()
    tools: re.Pattern[str] | None = None
    """Name pattern of tools that return context; ``None`` uses ragtrace's own."""

    @cached_property
    def convention(self) -> Convention:
        """The same as a table."""
        return Convention(
            name=NAME,
            question=tuple(each.text for each in self.question),
            answer=tuple(each.text for each in self.answer),
            documents=tuple(each.text for each in self.context),
            reference=tuple(each.text for each in self.reference),
            verbatim=True,
            of_any_role=True,
        )

    def session_of(self, span: Span) -> str | None:
        """Return the span's session, or ``None``."""
        value = next((found for path in self.session if (found := path.find_on(span)) is not None), None)
        return str(value) if isinstance(value, str | int) and value != "" else None

    def read(self, span: Span) -> SpanReading:
        """Read the mapped attributes. Without a convention, the parts imply the role."""
        found = Reader(self.convention, span).read(None)
        if found.question or found.answer:
            return found._replace(role=Role.CALL)
        if found.documents:
            return found._replace(role=Role.RETRIEVAL)
        return found._replace(role=Role.STEP) if found.reference else found


def is_mapped(found: FoundValue[T] | None) -> bool:
    """Return whether the value comes from the mapping."""
    return found is not None and found.at.convention == NAME


class ContextFrom(StrEnum):
    """The source of the context of a RAG call without a retrieval."""

    SPANS = "spans"
    """No source: without a retrieval span there is no context."""
    PROMPT = "prompt"
    """All of the model's prompt except the question and instructions."""
    AUTO = "auto"
    """Marked passages of the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractRules:
    """Rules for reading RAG calls from spans."""

    mapping: AttributeMapping | None = None
    """The user's own attributes; they override the conventions."""
    context: ContextFrom = ContextFrom.AUTO
    earlier_turns: int = 3
    """How many earlier turns of the conversation in a prompt are read; 0 for none."""
