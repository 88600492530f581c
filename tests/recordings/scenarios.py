"""What is recorded: which instrumentation, around which application, with which settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["SCENARIOS", "Scenario"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One recording."""

    instrumentation: str
    application: str
    libraries: tuple[str, ...] = ()
    """Those whose instrumentors are switched on."""
    environment: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    """Those that the environment of the frameworks does not hold; they are installed beside it."""
    is_served: bool = False
    """Whether it runs within the span of a web request, without which it sends more than one trace."""
    variant: str = ""
    kind: str = ""
    """The folder within that of all recordings, if it is not of an answer that was read whole."""
    shows: str = ""
    """What makes it hard to read, where something does."""

    @property
    def name(self) -> str:
        """The recording's file, without its ending."""
        parts = (self.instrumentation, self.application, self.variant)
        return ".".join(part for part in parts if part)


def _of(instrumentation: str, applications: str, *libraries: str, **more: Any) -> Iterator[Scenario]:
    """Make a scenario of each application."""
    for application in applications.split():
        yield Scenario(instrumentation=instrumentation, application=application, libraries=libraries, **more)


_BY_HAND = "the chunks are in the prompt only: nothing says which function is the retriever"
_TOOL_BY_HAND = "a tool retrieves, in two hops; its results are in the model's messages only"
_IDS_ONLY = "the retrieval has the chunks' ids, without their texts; the prompt has the texts"
_TWO_HOPS = "a tool retrieves, in two hops"
_TWICE = "two spans of one generation: the framework's and the SDK's"
_SERVICES = "the retriever is another process, which sends its own spans"
_OFF: Mapping[str, str] = {"variant": "off", "shows": "content is not captured"}
_UNREAD = "a stream that nobody reads to its end"
_CLOSED = "a stream that is closed before its end"
_TALK = "a conversation: nothing was retrieved"
_CHOICES = "two choices, the first of which is the answer"
_HIDDEN = {"OPENINFERENCE_HIDE_INPUTS": "true", "OPENINFERENCE_HIDE_OUTPUTS": "true"}
_GENAI = {"OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental"}
_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_SPAN_ONLY = {_CONTENT: "SPAN_ONLY"}
_MODES = {"": "SPAN_ONLY", "events": "EVENT_ONLY", "both": "SPAN_AND_EVENT"}
_OLD = ("opentelemetry-util-genai==0.4b0",)  # openai-v2 2.4b0 does not load with later ones
_NEW = tuple(
    f"opentelemetry-instrumentation-genai-{name}==1.3b0"
    for name in ("anthropic", "bedrock", "dspy", "langchain", "llama-index", "openai", "openai-agents")
)
_BOTO = ("boto3==1.44.8", "botocore==1.44.8", "jmespath==1.1.0", "s3transfer==0.19.3", "six==1.17.0")
_DSPY = (
    *("diskcache==5.6.3", "dspy==3.4.1", "fastuuid==0.14.0", "gepa==0.1.4", "importlib-metadata==8.9.0"),
    *("json-repair==0.64.6", "litellm==1.110.2", "zipp==4.1.2"),
)
_AGENTS = (
    *("mcp==2.3.0", "mcp-types==2.3.0"),
    "openai-agents==0.20.0",  # the last one for the openai of the environment
    *("pyjwt==2.15.1", "python-multipart==0.0.34", "sse-starlette==3.7.0"),
)
_HAYSTACK: Mapping[str, Any] = {"packages": ("opentelemetry-haystack==2.0.0",)}
_HAYSTACK_ON = {"environment": {"HAYSTACK_CONTENT_TRACING_ENABLED": "true"}, **_HAYSTACK}
_ENDINGS = ("whole", "left", "cancelled", "broken")


def _ragtrace() -> Iterator[Scenario]:
    yield from _of("ragtrace", "anthropic chroma haystack haystack-hybrid langchain langchain-agent")
    yield from _of("ragtrace", "langchain-ensemble langchain-history langchain-streaming llamaindex")
    yield from _of("ragtrace", "llamaindex-chat llamaindex-many llamaindex-reranker openai-async openai-chat")
    yield from _of("ragtrace", "openai-responses openai-streaming pydantic-ai pydantic-ai-two-hops qdrant")
    yield from _of("ragtrace", "openai-abandoned", "openai", shows=_UNREAD)
    yield from _of("ragtrace", "openai-talk", "openai", shows=_TALK)
    yield from _of("ragtrace", "two-services", "openai", shows=_SERVICES)


def _openinference() -> Iterator[Scenario]:
    by, by_hand = "openinference", "openai-async openai-chat openai-responses openai-streaming"
    yield from _of(by, by_hand, "openai", shows=_BY_HAND)
    yield from _of(by, "anthropic", "anthropic", "openai", shows=_BY_HAND)
    yield from _of(by, "openinference-decorated", "openai")
    yield from _of(by, "langchain langchain-streaming langchain-faiss", "langchain")
    yield from _of(by, "langchain-agent", "langchain", shows=_TWO_HOPS)
    within = "retrievers within retrievers, the outermost of which reranks"
    yield from _of(by, "langchain-ensemble", "langchain", shows=within)
    yield from _of(by, "langchain-forty", "langchain", shows="forty chunks")
    rewritten = "the question is rewritten before it is searched for; a session"
    yield from _of(by, "langchain-history", "langchain", shows=rewritten)
    yield from _of(by, "langchain", "langchain", "openai", is_served=True, variant="twice", shows=_TWICE)
    hidden = {"environment": _HIDDEN, "variant": "hidden", "shows": "content is hidden"}
    yield from _of(by, "langchain", "langchain", **hidden)
    genai = {"environment": {"OPENINFERENCE_ENABLE_GENAI_SEMCONV": "true"}, "variant": "genai"}
    yield from _of(by, "langchain", "langchain", **genai, shows="every span is written in two conventions")
    yield from _of(by, "llamaindex llamaindex-chat llamaindex-fusion", "llamaindex")
    yield from _of(by, "llamaindex-reranker llamaindex-streaming", "llamaindex")
    many = "48 chunks: of so many attributes the SDK keeps the last 128"
    yield from _of(by, "llamaindex-many", "llamaindex", shows=many)
    yield from _of(by, "haystack haystack-hybrid", "haystack")
    yield from _of(by, "pydantic-ai pydantic-ai-two-hops", "pydantic-ai")
    yield from _of(by, "openai-abandoned", "openai", shows=_UNREAD)
    yield from _of(by, "openai-talk", "openai", shows=_TALK)
    yield from _of(by, "openai-choices", "openai", shows=_CHOICES)
    yield from _of(by, "two-services", "openai", shows=_SERVICES)
    judged = "a judge of the application's own in the trace; a tool retrieves"
    yield from _of(by, "openinference-evaluated", "openai", shows=judged)


def _openllmetry() -> Iterator[Scenario]:
    by, by_hand = "openllmetry", "openai-async openai-chat openai-responses openai-streaming"
    yield from _of(by, by_hand, "openai", shows=_BY_HAND)
    yield from _of(by, "anthropic", "anthropic", "openai", shows=_BY_HAND)
    yield from _of(by, "chroma", "chroma", "openai", shows="distances, not scores")
    yield from _of(by, "qdrant", "qdrant", "openai", shows="the retrieval has no results")
    yield from _of(by, "langchain langchain-agent langchain-ensemble langchain-history", "langchain")
    yield from _of(by, "langchain-streaming langchain-faiss", "langchain")
    yield from _of(by, "langchain", "langchain", "openai", variant="twice", shows=_TWICE)
    off = {"environment": {"TRACELOOP_TRACE_CONTENT": "false"}, **_OFF}
    yield from _of(by, "langchain", "langchain", **off)
    yield from _of(by, "llamaindex llamaindex-reranker llamaindex-streaming", "llamaindex", "openai")
    old = ("haystack-ai==2.20.0",)  # the instrumentor does not load with Haystack 3
    yield from _of(by, "haystack haystack-hybrid", "haystack", "openai", packages=old)
    yield from _of(by, "openai-abandoned", "openai", shows=_UNREAD)
    yield from _of(by, "openai-talk", "openai", shows=_TALK)
    yield from _of(by, "openai-choices", "openai", shows=_CHOICES)
    yield from _of(by, "two-services", "openai", shows=_SERVICES)


def _openai_v2() -> Iterator[Scenario]:
    on = {"packages": _OLD, "environment": _GENAI | _SPAN_ONLY}
    yield from _of("openai-v2", "openai-async openai-chat openai-streaming", **on, shows=_BY_HAND)
    yield from _of("openai-v2", "openai-closed", **on, shows=_CLOSED)
    yield from _of("openai-v2", "openai-talk", **on, shows=_TALK)
    yield from _of("openai-v2", "openai-chat", packages=_OLD, **_OFF)
    events = {"environment": _GENAI | {_CONTENT: "EVENT_ONLY"}, "variant": "events"}
    left_out = "content is in log records, which this recording leaves out"
    yield from _of("openai-v2", "openai-chat", packages=_OLD, **events, shows=left_out)


def _otel_genai() -> Iterator[Scenario]:
    by, llamaindex, agents = "otel-genai", ("llamaindex", "openai"), ("openai-agents", "openai")
    for variant, mode in _MODES.items():
        mode_of: dict[str, Any] = {"variant": variant, "environment": {_CONTENT: mode}}
        on = {"packages": _NEW, **mode_of}
        claude = "anthropic anthropic-async anthropic-streaming"
        yield from _of(by, claude, "anthropic", **on, shows=_BY_HAND)
        yield from _of(by, "anthropic-tools", "anthropic", **on, shows=_TOOL_BY_HAND)
        yield from _of(by, "bedrock", "bedrock", packages=(*_NEW, *_BOTO), **mode_of, shows=_BY_HAND)
        field_of = "the chunks are a field of the prompt"
        yield from _of(by, "dspy", "dspy", packages=(*_NEW, *_BOTO, *_DSPY), **mode_of, shows=field_of)
        yield from _of(
            by, "langchain langchain-async langchain-streaming", "langchain", **on, shows=_IDS_ONLY
        )
        yield from _of(by, "langchain-agent", "langchain", **on, shows=_TWO_HOPS)
        served = {"is_served": True, **on}
        engines = "llamaindex llamaindex-async llamaindex-streaming"
        yield from _of(by, engines, *llamaindex, **served, shows=_IDS_ONLY)
        yield from _of(by, "llamaindex-agent", *llamaindex, **served, shows=_TWO_HOPS)
        with_agents = {"packages": (*_NEW, *_AGENTS), **mode_of}
        yield from _of(by, "openai-agents openai-agents-streaming", *agents, **with_agents, shows=_TWO_HOPS)
        by_hand = "openai-async openai-chat openai-responses openai-streaming"
        yield from _of(by, by_hand, "openai", **on, shows=_BY_HAND)
        yield from _of(by, "openai-tools", "openai", **on, shows=_TOOL_BY_HAND)
    plain = {"packages": _NEW, "environment": _SPAN_ONLY}
    yield from _of(by, "openai-abandoned", "openai", **plain, shows=_UNREAD)
    yield from _of(by, "openai-closed", "openai", **plain, shows=_CLOSED)
    yield from _of(by, "openai-talk", "openai", **plain, shows=_TALK)
    yield from _of(by, "langchain", "langchain", packages=_NEW, **_OFF)


def _others() -> Iterator[Scenario]:
    yield from _of("traceloop", "traceloop-decorated", "openai")
    yield from _of("langfuse", "langfuse-decorated langfuse-langchain")
    yield from _of("mlflow", "mlflow-decorated", "openai")
    yield from _of("mlflow", "langchain", "langchain")
    yield from _of("logfire", "openai-chat", "openai", shows=_BY_HAND)
    yield from _of("logfire", "pydantic-ai pydantic-ai-two-hops", "pydantic-ai")
    agents = "pydantic-ai pydantic-ai-streaming pydantic-ai-two-hops"
    yield from _of("pydantic-ai", agents, shows="a tool retrieves")
    yield from _of("haystack", "haystack haystack-hybrid", **_HAYSTACK_ON)
    yield from _of("haystack", "haystack", **_HAYSTACK, **_OFF)
    events = "all that is told is in events of spans"
    yield from _of("llamaindex", "llamaindex llamaindex-reranker", shows=events)
    yield from _of("llamaindex", "llamaindex-streaming", is_served=True, shows=events)
    yield from _of("langsmith", "langchain langchain-agent langchain-history")


def _negatives() -> Iterator[Scenario]:
    no: dict[str, Any] = {"kind": "negatives"}
    genai = {"environment": _SPAN_ONLY, "packages": _NEW, **no}
    chains = "langchain-talk langchain-calculator langchain-ingestion langchain-grading"
    engines, pipelines = "llamaindex-talk llamaindex-ingestion", "haystack-talk haystack-ingestion"
    agents = "pydantic-ai-talk pydantic-ai-calculator"
    yield from _of("openinference", "openai-title openai-guardrail openai-grading", "openai", **no)
    yield from _of("openinference", chains, "langchain", **no)
    yield from _of("openinference", engines, "llamaindex", **no)
    yield from _of("openinference", pipelines, "haystack", **no)
    yield from _of("openinference", "pydantic-ai-calculator", "pydantic-ai", **no)
    yield from _of("openllmetry", "openai-rewrite openai-summary openai-grading", "openai", **no)
    yield from _of("openllmetry", chains, "langchain", **no)
    yield from _of("openllmetry", engines, "llamaindex", "openai", **no)
    yield from _of("otel-genai", "openai-title openai-rewrite openai-grading", "openai", **genai)
    yield from _of("otel-genai", chains, "langchain", **genai)
    yield from _of("otel-genai", "llamaindex-calculator", "llamaindex", "openai", **genai)
    yield from _of("langfuse", "langfuse-talk langfuse-grading", **no)
    yield from _of("langsmith", "langchain-talk langchain-calculator langchain-grading", **no)
    yield from _of("llamaindex", engines, **no)
    yield from _of("logfire", "openai-title", "openai", **no)
    yield from _of("logfire", agents, "pydantic-ai", **no)
    yield from _of("mlflow", "mlflow-summary mlflow-calculator", "openai", **no)
    yield from _of("pydantic-ai", agents, **no)
    yield from _of("haystack", pipelines, **_HAYSTACK_ON, **no)


def _streams() -> Iterator[Scenario]:
    def of(by: str, names: str, *libraries: str, **more: Any) -> Iterator[Scenario]:
        endings = " ".join(f"{name}-{ending}" for name in names.split() for ending in _ENDINGS)
        yield from _of(by, endings, *libraries, **more, kind="streams")

    genai = {"environment": _SPAN_ONLY, "packages": _NEW}
    yield from of("ragtrace", "openai-chat openai-responses langchain llamaindex pydantic-ai")
    yield from of("openinference", "openai-chat openai-responses", "openai", is_served=True)
    for name in ("langchain", "llamaindex", "pydantic-ai"):
        yield from of("openinference", name, name)
    yield from of("openllmetry", "openai-chat openai-responses", "openai", is_served=True)
    yield from of("openllmetry", "langchain", "langchain")
    yield from of("openllmetry", "llamaindex", "llamaindex", "openai", is_served=True)
    yield from of("otel-genai", "openai-chat openai-responses", "openai", is_served=True, **genai)
    yield from of("otel-genai", "langchain", "langchain", **genai)
    yield from of("otel-genai", "llamaindex", "llamaindex", "openai", is_served=True, **genai)
    yield from of("pydantic-ai", "pydantic-ai")


_GROUPS = (_ragtrace, _openinference, _openllmetry, _openai_v2, _otel_genai, _others, _negatives, _streams)
SCENARIOS = {scenario.name: scenario for group in _GROUPS for scenario in group()}
