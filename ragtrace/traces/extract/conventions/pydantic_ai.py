"""pydantic-ai: GenAI's spans, with the question and the answer of an agent in attributes of its own."""

from __future__ import annotations

from typing import Final

from ragtrace import semconv
from ragtrace.traces.extract._attributes import found_text
from ragtrace.traces.extract._content import FoundValue, best
from ragtrace.traces.extract._payload import answer_in, question_in
from ragtrace.traces.extract._span_reader import Role, SpanReading
from ragtrace.traces.trace import Span

NAME: Final = "pydantic-ai"

_MESSAGES: Final = (semconv.PYDANTIC_AI_MESSAGES, semconv.PYDANTIC_AI_MESSAGES_DEPRECATED)


def read(span: Span) -> SpanReading | None:
    """Read the messages and ``final_result`` of an agent's span; its other spans are GenAI's."""
    if not any(key in span.attributes for key in _MESSAGES):
        return None
    return SpanReading(
        span=span, convention=NAME, role=Role.CALL, question=_question(span), answer=_answer(span)
    )


def _question(span: Span) -> FoundValue[str] | None:
    return best(*(question_in(span.attributes.get(key), attribute=key, convention=NAME) for key in _MESSAGES))


def _answer(span: Span) -> FoundValue[str] | None:
    """Read the result: a string, or the only string in the JSON of a structured output."""
    key = semconv.PYDANTIC_AI_RESULT
    value = span.attributes.get(key)
    plain = value if isinstance(value, str) else None
    return answer_in(value, attribute=key, convention=NAME) or found_text(
        plain, attribute=key, convention=NAME, how="the whole result", raw=value
    )
