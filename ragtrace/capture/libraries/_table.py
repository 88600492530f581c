"""The libraries that ``instrument()`` knows, with one instrumentor for each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class InstrumentorKind(StrEnum):
    """The author of a library's spans."""

    OPENINFERENCE = "OpenInference"
    BUILT_IN = "the library itself"
    RAGTRACE = "ragtrace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A library and its instrumentation. ``docs/instrument.md`` says how they were chosen."""

    name: str
    """The name in ``only`` and ``exclude``."""
    module: str
    """The module whose import turns the instrumentor on."""
    kind: InstrumentorKind
    instrumentor: str
    """``module:name`` of the class or function that instruments it."""
    package: str | None = None
    """The instrumentor's distribution, if it is neither the library's nor ragtrace's."""
    others: tuple[str, ...] = ()
    """Other instrumentors of the library, as ``module:Class`` or ``module``; ragtrace yields to them."""
    marked: tuple[str, ...] = ()
    """``module:attribute`` of objects that other instrumentors replace or extend."""
    called_by: tuple[str, ...] = ()
    """Module prefixes of frameworks that call the library: their own spans show those calls."""
    variable: str | None = None
    """An environment variable that makes the library send spans itself."""


_FRAMEWORKS = ("langchain", "langgraph", "llama_index", "haystack", "pydantic_ai")

LIBRARIES = (
    Library(
        name="openai",
        module="openai",
        kind=InstrumentorKind.OPENINFERENCE,
        instrumentor="openinference.instrumentation.openai:OpenAIInstrumentor",
        package="openinference-instrumentation-openai",
        called_by=_FRAMEWORKS,
        others=(
            "opentelemetry.instrumentation.openai:OpenAIInstrumentor",
            "opentelemetry.instrumentation.openai.v1:OpenAIV1Instrumentor",
            "opentelemetry.instrumentation.openai_v2:OpenAIInstrumentor",
            "opentelemetry.instrumentation.genai.openai:OpenAIInstrumentor",
            "langfuse.openai",
            "traceloop.sdk",
        ),
        marked=(
            "openai:OpenAI.request",
            "openai.resources.chat.completions:Completions.create",
            "openai.resources.responses:Responses.create",
        ),
    ),
    Library(
        name="anthropic",
        module="anthropic",
        kind=InstrumentorKind.OPENINFERENCE,
        instrumentor="openinference.instrumentation.anthropic:AnthropicInstrumentor",
        package="openinference-instrumentation-anthropic",
        called_by=_FRAMEWORKS,
        others=(
            "opentelemetry.instrumentation.anthropic:AnthropicInstrumentor",
            "opentelemetry.instrumentation.genai.anthropic:AnthropicInstrumentor",
            "traceloop.sdk",
        ),
        marked=("anthropic.resources.messages:Messages.create",),
    ),
    Library(
        name="langchain",
        module="langchain_core",
        kind=InstrumentorKind.OPENINFERENCE,
        instrumentor="openinference.instrumentation.langchain:LangChainInstrumentor",
        package="openinference-instrumentation-langchain",
        others=(
            "opentelemetry.instrumentation.langchain:LangchainInstrumentor",
            "opentelemetry.instrumentation.genai.langchain:LangChainInstrumentor",
            "traceloop.sdk",
        ),
        marked=("langchain_core.callbacks:BaseCallbackManager.__init__",),
        variable="LANGSMITH_OTEL_ENABLED",
    ),
    Library(
        name="llama-index",
        module="llama_index.core",
        kind=InstrumentorKind.OPENINFERENCE,
        instrumentor="openinference.instrumentation.llama_index:LlamaIndexInstrumentor",
        package="openinference-instrumentation-llama-index",
        others=(
            "opentelemetry.instrumentation.llamaindex:LlamaIndexInstrumentor",
            "opentelemetry.instrumentation.genai.llama_index:LlamaIndexInstrumentor",
            "llama_index.observability.otel",
            "traceloop.sdk",
        ),
        marked=("llama_index.core.instrumentation:root_dispatcher.span_handlers",),
    ),
    Library(
        name="haystack",
        module="haystack",
        kind=InstrumentorKind.OPENINFERENCE,
        instrumentor="openinference.instrumentation.haystack:HaystackInstrumentor",
        package="openinference-instrumentation-haystack",
        others=("opentelemetry.instrumentation.haystack:HaystackInstrumentor", "traceloop.sdk"),
        marked=(
            "haystack:Pipeline.run",
            "haystack.tracing:tracer.actual_tracer",
        ),
    ),
    Library(
        name="pydantic-ai",
        module="pydantic_ai",
        kind=InstrumentorKind.BUILT_IN,
        instrumentor="pydantic_ai:Agent",
    ),
    Library(
        name="chromadb",
        module="chromadb",
        kind=InstrumentorKind.RAGTRACE,
        instrumentor="ragtrace.capture.libraries.vector_stores:instrument_chroma",
        others=("opentelemetry.instrumentation.chromadb:ChromaInstrumentor", "traceloop.sdk"),
        marked=("chromadb:Collection.query",),
    ),
    Library(
        name="qdrant",
        module="qdrant_client",
        kind=InstrumentorKind.RAGTRACE,
        instrumentor="ragtrace.capture.libraries.vector_stores:instrument_qdrant",
    ),
    Library(
        name="weaviate",
        module="weaviate",
        kind=InstrumentorKind.RAGTRACE,
        instrumentor="ragtrace.capture.libraries.vector_stores:instrument_weaviate",
    ),
)
"""OpenLLMetry's spans of Qdrant and Weaviate hold no results, so ragtrace adds its own retrieval spans."""
