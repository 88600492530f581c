"""The example applications, as others trace them who do not have ragtrace: each tracer by its own manual.

    python tests/acceptance/traced_by_others.py openinference langchain "How long does the warranty last?"

``openinference+ragtrace`` calls `ragtrace.instrument()` beside the other tracer. Runs in the environment of
the frameworks. Spans go to OTEL_EXPORTER_OTLP_ENDPOINT, over HTTP.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

Ask = Callable[[str], str]
Hits = list[dict[str, Any]]


def openinference(application: str) -> Ask:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    if application == "langchain":
        from openinference.instrumentation.langchain import LangChainInstrumentor

        LangChainInstrumentor().instrument()
        return example("langchain_app")
    if application == "llamaindex":
        return llamaindex_by_openinference()
    return openai_by_openinference(provider)


def openai_by_openinference(provider: TracerProvider) -> Ask:
    from openinference.instrumentation import OITracer, TraceConfig
    from openinference.instrumentation.openai import OpenAIInstrumentor

    OpenAIInstrumentor().instrument()
    tracer = OITracer(provider.get_tracer("application"), config=TraceConfig())

    def search(question: str) -> Hits:
        with tracer.start_as_current_span("search", openinference_span_kind="retriever") as span:
            span.set_input(question)
            hits = search_by_hand(question)
            for rank, hit in enumerate(hits):
                for key, value in hit.items():
                    span.set_attribute(f"retrieval.documents.{rank}.document.{key}", value)
        return hits

    from openai import OpenAI

    ask: Ask = tracer.chain(lambda question: complete(OpenAI(), question, search(question)), name="ask")
    return ask


def llamaindex_by_openinference() -> Ask:
    from openinference.instrumentation.llama_index import LlamaIndexInstrumentor

    LlamaIndexInstrumentor().instrument()
    return example("llamaindex_app")


def openllmetry(application: str) -> Ask:
    from traceloop.sdk import Traceloop
    from traceloop.sdk.decorators import task, workflow
    from traceloop.sdk.instruments import Instruments

    Traceloop.init(
        app_name=os.environ["OTEL_SERVICE_NAME"],
        exporter=OTLPSpanExporter(),
        instruments={Instruments.LANGCHAIN, Instruments.OPENAI},
        telemetry_enabled=False,
    )
    if application == "llamaindex":
        from opentelemetry.instrumentation.llamaindex import LlamaIndexInstrumentor

        LlamaIndexInstrumentor().instrument()  # left out by the SDK where its core is installed alone
    if application != "openai":
        return example(f"{application}_app")
    from openai import OpenAI

    search = task(name="retriever")(search_by_hand)

    @workflow(name="ask")
    def ask(question: str) -> str:
        return complete(OpenAI(), question, search(question))

    return ask  # type: ignore[no-any-return]


def langfuse(application: str) -> Ask:
    from langfuse import Langfuse, observe

    # A key of no account: the spans go to our endpoint instead of Langfuse's.
    Langfuse(public_key="pk-lf-none", secret_key="sk-lf-none", span_exporter=OTLPSpanExporter())
    if application == "langchain":
        return langchain_by_langfuse()
    if application == "llamaindex":
        return observe(name="ask")(llamaindex_by_openinference())  # Langfuse's manual has no other way
    from langfuse.openai import OpenAI

    search = observe(name="search", as_type="retriever")(search_by_hand)

    @observe(name="ask")
    def ask(question: str) -> str:
        return complete(OpenAI(), question, search(question))

    return ask


def langchain_by_langfuse() -> Ask:
    import langchain_app
    from langfuse.langchain import CallbackHandler

    chain = langchain_app.chain().with_config(callbacks=[CallbackHandler()])
    return chain.invoke  # type: ignore[no-any-return]


def example(name: str) -> Ask:
    ask: Ask = __import__(name).ask
    return ask


def search_by_hand(question: str) -> Hits:
    import handbook

    return [{"id": hit.id, "content": hit.text, "score": hit.score} for hit in handbook.search(question)]


def complete(client: Any, question: str, hits: Hits) -> str:
    passages = "\n".join(f"[{hit['id']}] {hit['content']}" for hit in hits)
    system = f"Answer from these passages of our handbook only.\n\n{passages}"
    completion = client.chat.completions.create(
        model="gpt-4.1-mini",
        messages=[{"role": "system", "content": system}, {"role": "user", "content": question}],
    )
    return str(completion.choices[0].message.content)


TRACERS = {"langfuse": langfuse, "openinference": openinference, "openllmetry": openllmetry}

if __name__ == "__main__":
    tracers, application, question = sys.argv[1:]
    tracer, _, beside = tracers.partition("+")
    ask = TRACERS[tracer](application)
    if beside:
        import ragtrace

        ragtrace.instrument()
    print(ask(question))
    provider: Any = trace.get_tracer_provider()
    provider.force_flush()
