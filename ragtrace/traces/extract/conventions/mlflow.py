"""MLflow's tracing: a type, inputs and outputs, each as JSON."""

from __future__ import annotations

from typing import Final

from ragtrace import semconv
from ragtrace.model import Chunk
from ragtrace.traces.extract._attributes import first_text
from ragtrace.traces.extract._content import FoundValue, parse_loosely
from ragtrace.traces.extract._messages import Message
from ragtrace.traces.extract._payload import answer_in, prompt_in, question_in
from ragtrace.traces.extract._span_reader import Role, SpanReading
from ragtrace.traces.extract._tools import returned_documents
from ragtrace.traces.trace import Span

NAME: Final = "mlflow"

_ROLES: Final = {
    "RETRIEVER": Role.RETRIEVAL,
    "RERANKER": Role.RERANK,
    "LLM": Role.GENERATION,
    "CHAT_MODEL": Role.GENERATION,
    "CHAIN": Role.CALL,
    "AGENT": Role.CALL,
    "WORKFLOW": Role.CALL,
    "UNKNOWN": Role.CALL,
    "TOOL": Role.TOOL,
}
"""``@mlflow.trace`` writes ``UNKNOWN`` for a function without a type."""

_RETRIEVALS: Final = (Role.RETRIEVAL, Role.RERANK, Role.TOOL)


def read(span: Span) -> SpanReading | None:
    """Read ``mlflow.spanType``, ``mlflow.spanInputs`` and ``mlflow.spanOutputs``."""
    role = _role(span)
    if role is None:
        return None
    is_retrieval = role in _RETRIEVALS
    outputs = span.attributes.get(semconv.MLFLOW_OUTPUTS)
    asked = question_in(
        span.attributes.get(semconv.MLFLOW_INPUTS), attribute=semconv.MLFLOW_INPUTS, convention=NAME
    )
    has_answer = role in (Role.CALL, Role.GENERATION)
    return SpanReading(
        span=span,
        convention=NAME,
        role=role,
        question=asked if has_answer else None,
        query=asked if is_retrieval else None,
        documents=_documents(span, role),
        tool=span.name if role is Role.TOOL else None,
        answer=answer_in(outputs, attribute=semconv.MLFLOW_OUTPUTS, convention=NAME) if has_answer else None,
        model=_json_text(span, semconv.MLFLOW_MODEL),
        session_id=first_text(span, semconv.SESSION_ID) or _json_text(span, semconv.MLFLOW_SESSION),
    )


def prompt(span: Span) -> FoundValue[tuple[Message, ...]] | None:
    """Read the inputs of a model."""
    key = semconv.MLFLOW_INPUTS
    return prompt_in(span.attributes.get(key), attribute=key, convention=NAME)


def _role(span: Span) -> Role | None:
    kind = _json_text(span, semconv.MLFLOW_TYPE)
    if kind is None:
        return None
    role = _ROLES.get(kind, Role.STEP)
    return Role.STEP if role is Role.CALL and semconv.MLFLOW_INPUTS not in span.attributes else role


def _documents(span: Span, role: Role | None) -> FoundValue[tuple[Chunk, ...]] | None:
    key = semconv.MLFLOW_OUTPUTS
    output = span.attributes.get(key)
    return returned_documents(output, role, attribute=key, convention=NAME, span_id=span.span_id)


def _json_text(span: Span, key: str) -> str | None:
    text = first_text(span, key)
    value = parse_loosely(text) if text else None
    return value if isinstance(value, str) else None
