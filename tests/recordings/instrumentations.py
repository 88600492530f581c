"""The ways in which others, and ragtrace, put spans around an application, each as its own manual says."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any

from opentelemetry import trace

__all__ = ["INSTRUMENTATIONS", "SERVICE", "Instrumentation"]

SERVICE = os.environ.get("RECORDING_SERVICE_NAME", "handbook")

Instrumentation = Callable[[str, Sequence[str]], AbstractContextManager[None]]
"""Called with the OTLP endpoint (without a path) and the libraries to instrument; leaving it sends all."""

_OPENINFERENCE = {
    "anthropic": "openinference.instrumentation.anthropic:AnthropicInstrumentor",
    "haystack": "openinference.instrumentation.haystack:HaystackInstrumentor",
    "langchain": "openinference.instrumentation.langchain:LangChainInstrumentor",
    "llamaindex": "openinference.instrumentation.llama_index:LlamaIndexInstrumentor",
    "openai": "openinference.instrumentation.openai:OpenAIInstrumentor",
}
_OPENLLMETRY = {
    "anthropic": "opentelemetry.instrumentation.anthropic:AnthropicInstrumentor",
    "chroma": "opentelemetry.instrumentation.chromadb:ChromaInstrumentor",
    "haystack": "opentelemetry.instrumentation.haystack:HaystackInstrumentor",
    "langchain": "opentelemetry.instrumentation.langchain:LangchainInstrumentor",
    "llamaindex": "opentelemetry.instrumentation.llamaindex:LlamaIndexInstrumentor",
    "openai": "opentelemetry.instrumentation.openai:OpenAIInstrumentor",
    "qdrant": "opentelemetry.instrumentation.qdrant:QdrantInstrumentor",
}
_OTEL_GENAI = {
    "anthropic": "opentelemetry.instrumentation.genai.anthropic:AnthropicInstrumentor",
    "bedrock": "opentelemetry.instrumentation.genai.bedrock:BedrockInstrumentor",
    "dspy": "opentelemetry.instrumentation.genai.dspy:DSPyInstrumentor",
    "langchain": "opentelemetry.instrumentation.genai.langchain:LangChainInstrumentor",
    "llamaindex": "opentelemetry.instrumentation.genai.llama_index:LlamaIndexInstrumentor",
    "openai": "opentelemetry.instrumentation.genai.openai:OpenAIInstrumentor",
    "openai-agents": "opentelemetry.instrumentation.genai.openai_agents:OpenAIAgentsInstrumentor",
}


@contextmanager
def ragtrace(url: str, libraries: Sequence[str]) -> Iterator[None]:
    import ragtrace

    ragtrace.instrument(service_name=SERVICE, endpoint=url, protocol="http/protobuf")
    yield
    ragtrace.uninstrument()


@contextmanager
def openinference(url: str, libraries: Sequence[str]) -> Iterator[None]:
    if "pydantic-ai" in libraries:
        from openinference.instrumentation.pydantic_ai import OpenInferenceSpanProcessor

        with _sdk(url, OpenInferenceSpanProcessor()):
            _instrument_agents()
            yield
    else:
        with _sdk(url):
            _instrument(_OPENINFERENCE, libraries)
            yield


@contextmanager
def openllmetry(url: str, libraries: Sequence[str]) -> Iterator[None]:
    with _sdk(url):
        _instrument(_OPENLLMETRY, libraries)
        yield


@contextmanager
def openai_v2(url: str, libraries: Sequence[str]) -> Iterator[None]:
    with _sdk(url):
        _instrument({"openai": "opentelemetry.instrumentation.openai_v2:OpenAIInstrumentor"}, ["openai"])
        yield


@contextmanager
def otel_genai(url: str, libraries: Sequence[str]) -> Iterator[None]:
    with _sdk(url):
        _instrument(_OTEL_GENAI, libraries, disable_openai_trace_export=True)  # of openai-agents, to OpenAI
        yield


@contextmanager
def pydantic_ai(url: str, libraries: Sequence[str]) -> Iterator[None]:
    with _sdk(url):
        _instrument_agents()
        yield


@contextmanager
def logfire(url: str, libraries: Sequence[str]) -> Iterator[None]:
    import logfire
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    exporter = SimpleSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces"))
    logfire.configure(
        send_to_logfire=False,
        console=False,
        service_name=SERVICE,
        additional_span_processors=[exporter],
        inspect_arguments=False,
    )
    for library in libraries:
        getattr(logfire, f"instrument_{library.replace('-', '_')}")()
    yield
    logfire.shutdown()


@contextmanager
def haystack(url: str, libraries: Sequence[str]) -> Iterator[None]:
    import haystack.tracing
    from haystack_integrations.tracing.opentelemetry import OpenTelemetryTracer

    with _sdk(url):
        haystack.tracing.enable_tracing(OpenTelemetryTracer(trace.get_tracer("haystack")))
        yield


@contextmanager
def llamaindex(url: str, libraries: Sequence[str]) -> Iterator[None]:
    from llama_index.observability.otel import LlamaIndexOpenTelemetry
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    LlamaIndexOpenTelemetry(
        service_name_or_resource=SERVICE,
        span_exporter=OTLPSpanExporter(f"{url}/v1/traces"),
        span_processor="simple",
    ).start_registering()
    yield


@contextmanager
def langsmith(url: str, libraries: Sequence[str]) -> Iterator[None]:
    from langchain_core.tracers.langchain import wait_for_all_tracers

    os.environ |= {
        "LANGSMITH_TRACING": "true",
        "LANGSMITH_OTEL_ENABLED": "true",
        "LANGSMITH_OTEL_ONLY": "true",
        "LANGSMITH_API_KEY": "not-a-key",
        "LANGSMITH_REVISION_ID": "1",
        "LANGSMITH_ENDPOINT": url,
    }
    with _sdk(url):
        yield
        wait_for_all_tracers()


@contextmanager
def traceloop(url: str, libraries: Sequence[str]) -> Iterator[None]:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from traceloop.sdk import Traceloop
    from traceloop.sdk.instruments import Instruments

    Traceloop.init(
        app_name=SERVICE,
        exporter=OTLPSpanExporter(f"{url}/v1/traces"),
        disable_batch=True,
        telemetry_enabled=False,
        instruments={Instruments(name) for name in libraries},
    )
    yield


@contextmanager
def langfuse(url: str, libraries: Sequence[str]) -> Iterator[None]:
    from langfuse import Langfuse

    os.environ["OTEL_SERVICE_NAME"] = SERVICE
    client = Langfuse(public_key="pk-lf-not-a-key", secret_key="sk-lf-not-a-key", base_url=url)
    yield
    client.shutdown()


@contextmanager
def mlflow(url: str, libraries: Sequence[str]) -> Iterator[None]:
    os.environ |= {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{url}/v1/traces",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        "OTEL_SERVICE_NAME": SERVICE,
    }
    import mlflow

    mlflow.set_tracking_uri(url)  # its default is a database, for which mlflow-tracing brings no driver
    for library in libraries:
        import_module(f"mlflow.{library}").autolog()
    yield
    mlflow.tracing.provider.provider.get().force_flush()


@contextmanager
def _sdk(url: str, *processors: Any) -> Iterator[None]:
    """Set the SDK up as an application does, for spans and log records, with nothing that makes them yet."""
    from opentelemetry import _logs
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    resource = Resource.create({"service.name": SERVICE})
    provider = TracerProvider(resource=resource)
    trace.set_tracer_provider(provider)
    for processor in (*processors, SimpleSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces"))):
        provider.add_span_processor(processor)
    logs = LoggerProvider(resource=resource)
    _logs.set_logger_provider(logs)
    logs.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(f"{url}/v1/logs")))
    yield
    provider.shutdown()
    logs.shutdown()


def _instrument(table: dict[str, str], libraries: Sequence[str], **options: bool) -> None:
    for library in libraries:
        module, _, name = table[library].partition(":")
        getattr(import_module(module), name)().instrument(**options)


def _instrument_agents() -> None:
    from pydantic_ai import Agent

    Agent.instrument_all()


INSTRUMENTATIONS: dict[str, Instrumentation] = {
    "haystack": haystack,
    "langfuse": langfuse,
    "langsmith": langsmith,
    "llamaindex": llamaindex,
    "logfire": logfire,
    "mlflow": mlflow,
    "openai-v2": openai_v2,
    "openinference": openinference,
    "openllmetry": openllmetry,
    "otel-genai": otel_genai,
    "pydantic-ai": pydantic_ai,
    "ragtrace": ragtrace,
    "traceloop": traceloop,
}
