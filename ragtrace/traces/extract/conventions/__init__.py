"""The supported conventions, by precedence. To add one, write a module and add a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ragtrace.traces.extract._content import FoundValue
from ragtrace.traces.extract._messages import Message
from ragtrace.traces.extract._span_reader import SpanReading
from ragtrace.traces.extract.conventions import (
    genai,
    haystack,
    langfuse,
    langsmith,
    llamaindex,
    mlflow,
    openinference,
    own,
    pydantic_ai,
    traceloop,
    vector_db,
    vercel,
)
from ragtrace.traces.trace import Span

CONVENTIONS: Final[tuple[Callable[[Span], SpanReading | None], ...]] = (
    own.read,
    openinference.read,
    langfuse.read,
    mlflow.read,
    langsmith.read,
    pydantic_ai.read,
    genai.read,
    traceloop.read,
    haystack.read,
    vercel.read,
    llamaindex.read,
    vector_db.read,
)
"""Each function reads a span of its convention; for other spans, it returns an empty reading or ``None``.

A convention that gives GenAI's attributes another meaning comes before GenAI.
"""

PROMPTS: Final[tuple[Callable[[Span], FoundValue[tuple[Message, ...]] | None], ...]] = (
    openinference.prompt,
    langfuse.prompt,
    mlflow.prompt,
    genai.prompt,
    traceloop.prompt,
    haystack.prompt,
    vercel.prompt,
)
"""Each function reads a model's input messages from a generation span."""
