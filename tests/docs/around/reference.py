"""A call whose right answer is told in each way that there is."""

from opentelemetry import trace

import ragtrace

ragtrace.instrument(service_name="support-bot")
question = "How long do refunds take?"
with ragtrace.rag(question=question) as outer, trace.get_tracer("app").start_as_current_span("page") as span:
    trace_id, span_id = outer.trace_id, outer.span_id
    with ragtrace.retrieval() as retrieval:
        retrieval.set_chunks(["Refunds take 14 days."])
    # the block
    outer.answer = "Refunds take 14 days."
