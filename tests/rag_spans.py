"""RAG traces made by hand, as values: for tests that do not need a running application."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ragtrace import semconv
from ragtrace.traces.trace import Resource, Scope, Span, SpanKind

START_NS = 1_760_000_000_000_000_000
_MS = 1_000_000
_SCOPE = Scope(name=semconv.SCOPE_CAPTURE, version="test")


def trace_id_of(number: int) -> str:
    return f"{number + 1:032x}"


def rag_trace(
    number: int,
    *,
    question: str = "How long do refunds take?",
    chunks: Sequence[str] = ("Refunds take 14 days.",),
    answer: str = "Refunds take 14 days.",
    service: str = "shop",
    start_ns: int = START_NS,
) -> tuple[Span, Span, Span]:
    """Return the root, retrieval and generation spans of one RAG call, as ragtrace's capture writes them."""
    trace_id, resource = trace_id_of(number), Resource(attributes={semconv.SERVICE_NAME: service})
    documents = tuple(
        json.dumps({"id": f"chunk-{rank}", "score": 0.9, "content": text}) for rank, text in enumerate(chunks)
    )
    asked = json.dumps([{"role": "user", "parts": [{"type": "text", "content": question}]}])
    answered = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": answer}]}])
    root = Span(
        trace_id=trace_id,
        span_id="00000000000000a1",
        parent_span_id=None,
        name="invoke_workflow ask",
        start_ns=start_ns,
        end_ns=start_ns + 900 * _MS,
        attributes={
            semconv.OPERATION_NAME: semconv.OP_INVOKE_WORKFLOW,
            semconv.WORKFLOW_NAME: "ask",
            semconv.RAG_KIND: semconv.KIND_RAG,
            semconv.INPUT_MESSAGES: asked,
            semconv.OUTPUT_MESSAGES: answered,
        },
        resource=resource,
        scope=_SCOPE,
    )
    retrieval = Span(
        trace_id=trace_id,
        span_id="00000000000000a2",
        parent_span_id=root.span_id,
        name="retrieval faq",
        kind=SpanKind.CLIENT,
        start_ns=start_ns + 10 * _MS,
        end_ns=start_ns + 100 * _MS,
        attributes={
            semconv.OPERATION_NAME: semconv.OP_RETRIEVAL,
            semconv.RAG_KIND: semconv.KIND_RETRIEVAL,
            semconv.RETRIEVAL_QUERY: question,
            semconv.RAG_DOCUMENTS: documents,
        },
        resource=resource,
        scope=_SCOPE,
    )
    generation = chat_span(number, question=question, answer=answer, parent=root, service=service)
    return root, retrieval, generation


def chat_span(
    number: int, *, question: str, answer: str, parent: Span | None = None, service: str = "shop"
) -> Span:
    start_ns = (parent.start_ns if parent else START_NS) + 200 * _MS
    return Span(
        trace_id=trace_id_of(number),
        span_id="00000000000000a3",
        parent_span_id=parent.span_id if parent else None,
        name="chat m",
        kind=SpanKind.CLIENT,
        start_ns=start_ns,
        end_ns=start_ns + 500 * _MS,
        attributes={
            semconv.OPERATION_NAME: semconv.OP_CHAT,
            semconv.REQUEST_MODEL: "m",
            semconv.INPUT_MESSAGES: json.dumps(
                [{"role": "user", "parts": [{"type": "text", "content": question}]}]
            ),
            semconv.OUTPUT_MESSAGES: json.dumps(
                [{"role": "assistant", "parts": [{"type": "text", "content": answer}]}]
            ),
        },
        resource=Resource(attributes={semconv.SERVICE_NAME: service}),
        scope=_SCOPE,
    )
