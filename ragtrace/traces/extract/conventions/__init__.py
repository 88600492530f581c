"""The conventions that are understood, by precedence. A further one is one module and one line here."""

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
"""Each reads what a span says in its words; of a stranger's span, nothing or ``None``.

A convention that writes GenAI's attributes in a meaning of its own stands before GenAI.
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
"""Each reads the messages that a model was given, out of the span of a generation."""
