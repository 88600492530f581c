"""What a user says about how RAG calls are read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ragtrace.traces.extract._mapping import AttributeMapping


class ContextFrom(StrEnum):
    """Where the context of a RAG call without a retrieval may come from."""

    SPANS = "spans"
    """Nowhere: without the span of a retrieval there is no context."""
    PROMPT = "prompt"
    """Whatever the model's prompt holds beside the question and instructions."""
    AUTO = "auto"
    """Passages of the prompt that are set off from the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractRules:
    """How RAG calls are read from spans."""

    mapping: AttributeMapping | None = None
    """Attributes of the user's own; they win over the conventions."""
    context: ContextFrom = ContextFrom.AUTO
