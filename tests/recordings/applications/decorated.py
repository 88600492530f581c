"""Functions under the decorators of others."""

from __future__ import annotations

from typing import Any

from tests.recordings.applications.application import (
    SESSION,
    Application,
    complete,
    plain,
    plain_search,
)


def traceloop_decorated() -> Application:
    """Functions under the Traceloop SDK's own decorators."""
    from traceloop.sdk.decorators import task, workflow

    search = task(name="search")(plain_search)

    @workflow(name="ask_handbook")
    def ask(question: str) -> str:
        from traceloop.sdk import Traceloop

        Traceloop.set_association_properties({"session_id": SESSION, "user_id": "user-3"})
        return complete(question, search(question))

    return plain(ask, session_id=SESSION)


def langfuse_decorated() -> Application:
    """Functions under Langfuse's ``@observe``, and its own OpenAI client."""
    from langfuse import observe, propagate_attributes
    from langfuse.openai import OpenAI

    search = observe(as_type="retriever", name="search")(plain_search)

    @observe(name="ask_handbook")
    def ask(question: str) -> str:
        with propagate_attributes(session_id=SESSION, user_id="user-3"):
            return complete(question, search(question), client=OpenAI())

    return plain(ask, session_id=SESSION)


def mlflow_decorated() -> Application:
    """Functions under MLflow's ``@trace``, and its autologging of OpenAI."""
    import mlflow
    from mlflow.entities import Document

    @mlflow.trace(span_type="RETRIEVER")
    def search(query: str) -> list[Any]:
        return [
            Document(id=found["id"], page_content=found["text"], metadata={"chunk_id": found["id"]})
            for found in plain_search(query)
        ]

    @mlflow.trace(name="ask_handbook")
    def ask(question: str) -> str:
        mlflow.update_current_trace(session_id=SESSION, user="user-3")
        return complete(question, [{"id": each.id, "text": each.page_content} for each in search(question)])

    return plain(ask, session_id=SESSION)


def openinference_decorated() -> Application:
    """Functions under OpenInference's decorators and its session."""
    import json

    from openinference.instrumentation import OITracer, TraceConfig, using_session
    from openinference.semconv.trace import SpanAttributes
    from opentelemetry import trace

    def ask(question: str) -> str:
        tracer = OITracer(trace.get_tracer("handbook"), TraceConfig())
        with (
            using_session(SESSION),
            tracer.start_as_current_span("ask_handbook", openinference_span_kind="chain") as span,
        ):
            span.set_input(question)
            with tracer.start_as_current_span("search", openinference_span_kind="retriever") as found:
                found.set_input(question)
                chunks = plain_search(question)
                for index, chunk in enumerate(chunks):
                    prefix = f"{SpanAttributes.RETRIEVAL_DOCUMENTS}.{index}.document"
                    found.set_attribute(f"{prefix}.id", chunk["id"])
                    found.set_attribute(f"{prefix}.content", chunk["text"])
                    found.set_attribute(f"{prefix}.score", chunk["score"])
                    found.set_attribute(f"{prefix}.metadata", json.dumps({"source": "handbook"}))
            answer = complete(question, chunks)
            span.set_output(answer)
            return answer

    return plain(ask, session_id=SESSION)


def openinference_evaluated() -> Application:
    """A judge of the application's own, which asks a model about the answer in the same trace."""
    from openinference.instrumentation import OITracer, TraceConfig
    from opentelemetry import trace

    tracer = OITracer(trace.get_tracer("handbook"), TraceConfig())
    search = tracer.tool(name="search")(plain_search)

    @tracer.chain(name="ask_handbook")
    def ask(question: str) -> str:
        chunks = search(question)
        answer = complete(question, chunks)
        with tracer.start_as_current_span("judge", openinference_span_kind="evaluator") as span:
            span.set_input(answer)
            span.set_output(complete(f"Is it said that {answer.lower()}?", chunks))
        return answer

    return plain(ask)
