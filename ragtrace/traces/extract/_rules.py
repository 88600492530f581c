"""The user's rules for extraction."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ragtrace.traces.extract._mapping import AttributeMapping


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
