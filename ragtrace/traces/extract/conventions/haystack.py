"""Haystack's own tracing: one span per pipeline and per component, with input and output as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ragtrace import semconv
from ragtrace.model import AttributeValue
from ragtrace.traces.extract._attributes import first_text
from ragtrace.traces.extract._content import FoundValue, best, parse_loosely
from ragtrace.traces.extract._messages import Message
from ragtrace.traces.extract._payload import answer_in, documents_in, prompt_in, question_in
from ragtrace.traces.extract._span_reader import Role, SpanReading
from ragtrace.traces.extract._tools import tool_documents
from ragtrace.traces.trace import Span

NAME: Final = "haystack"

_ROLES: Final = {
    "Retriever": Role.RETRIEVAL,
    "Ranker": Role.RERANK,
    "DocumentJoiner": Role.RERANK,
    "Generator": Role.GENERATION,
}
"""By suffix of the component's type; the output of a joiner replaces its inputs."""
_SPANS: Final = {
    semconv.HAYSTACK_PIPELINE: Role.CALL,
    semconv.HAYSTACK_AGENT: Role.CALL,
    semconv.HAYSTACK_LLM: Role.GENERATION,
    semconv.HAYSTACK_TOOL: Role.TOOL,
}
_QUESTION_KEYS: Final = ("question", "query", "user_input", "text", "messages")
_ANSWER_KEYS: Final = ("answers", "replies", "last_message")


def read(span: Span) -> SpanReading | None:
    """Read ``haystack.pipeline.run``, ``haystack.component.run`` and the steps of an agent."""
    role = _role(span)
    if role is None:
        return None
    if role is Role.STEP:
        return SpanReading(span=span, convention=NAME, role=role)
    if role is Role.CALL:
        return _of_pipeline(span)
    return _of_generator(span) if role is Role.GENERATION else _of_retriever(span, role)


def prompt(span: Span) -> FoundValue[tuple[Message, ...]] | None:
    """Read a generator's input."""
    if _role(span) is not Role.GENERATION:
        return None
    key, _ = _keys(span)
    return prompt_in(span.attributes.get(key), attribute=key, convention=NAME)


def _role(span: Span) -> Role | None:
    if span.name in _SPANS:
        return _SPANS[span.name]
    kind = first_text(span, semconv.HAYSTACK_COMPONENT_TYPE)
    if kind is None:
        return None
    return next((role for end, role in _ROLES.items() if kind.endswith(end)), Role.STEP)


def _of_generator(span: Span) -> SpanReading:
    input_key, output_key = _keys(span)
    return SpanReading(
        span=span,
        convention=NAME,
        role=Role.GENERATION,
        question=question_in(span.attributes.get(input_key), attribute=input_key, convention=NAME),
        answer=_answered(span, output_key),
        model=_model(span, output_key),
    )


def _of_retriever(span: Span, role: Role) -> SpanReading:
    input_key, output_key = _keys(span)
    read_output = tool_documents if role is Role.TOOL else documents_in
    return SpanReading(
        span=span,
        convention=NAME,
        role=role,
        query=question_in(span.attributes.get(input_key), attribute=input_key, convention=NAME),
        documents=read_output(
            span.attributes.get(output_key), attribute=output_key, convention=NAME, span_id=span.span_id
        ),
        tool=first_text(span, semconv.HAYSTACK_TOOL_NAME),
    )


def _keys(span: Span) -> tuple[str, str]:
    """Return the input and output attributes: an agent's steps have their own."""
    step = (
        span.name
        if span.name in (semconv.HAYSTACK_LLM, semconv.HAYSTACK_TOOL)
        else semconv.HAYSTACK_COMPONENT
    )
    return f"{step}.input", f"{step}.output"


def _of_pipeline(span: Span) -> SpanReading:
    return SpanReading(
        span=span,
        convention=NAME,
        role=Role.CALL,
        question=_question(span),
        answer=best(
            _answered(span, semconv.HAYSTACK_OUTPUT_DATA), _answered(span, semconv.HAYSTACK_AGENT_OUTPUT)
        ),
    )


def _question(span: Span) -> FoundValue[str] | None:
    """Read the first usual input of any component, or of an agent."""
    for key in (semconv.HAYSTACK_INPUT_DATA, semconv.HAYSTACK_AGENT_INPUT):
        value = _of_any_component(span, key, _QUESTION_KEYS)
        if value is not None:
            return question_in(value, attribute=key, convention=NAME)
    return None


def _answered(span: Span, key: str) -> FoundValue[str] | None:
    value = _of_any_component(span, key, _ANSWER_KEYS)
    return answer_in(span.attributes.get(key) if value is None else value, attribute=key, convention=NAME)


def _of_any_component(span: Span, key: str, names: tuple[str, ...]) -> AttributeValue:
    """Return the first of these inputs or outputs of a component or of the pipeline."""
    data = _json(span, key)
    given = [each for each in (data, *data.values()) if isinstance(each, Mapping)]
    return next((each[name] for name in names for each in given if each.get(name)), None)


def _model(span: Span, output_key: str) -> str | None:
    """Read the model from the ``meta`` of a chat reply, else from the ``meta`` next to the replies."""
    output = _json(span, output_key)
    for value in (output.get("replies"), output.get("meta")):
        first = value[0] if isinstance(value, tuple) and value else None
        meta = first.get("meta", first) if isinstance(first, Mapping) else None
        model = meta.get("model") if isinstance(meta, Mapping) else None
        if isinstance(model, str):
            return model
    return None


def _json(span: Span, key: str) -> Mapping[str, AttributeValue]:
    text = first_text(span, key)
    value = parse_loosely(text) if text else None
    return value if isinstance(value, Mapping) else {}
