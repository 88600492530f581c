"""What is recorded: which instrumentation, around which application, with which settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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


_RAGTRACE = tuple(
    Scenario(instrumentation="ragtrace", application=name)
    for name in (
        *("anthropic", "chroma", "haystack", "haystack-hybrid", "langchain", "langchain-agent"),
        *("langchain-ensemble", "langchain-history", "langchain-streaming", "llamaindex"),
        *("llamaindex-chat", "llamaindex-many", "llamaindex-reranker", "openai-async", "openai-chat"),
        *("openai-responses", "openai-streaming", "pydantic-ai", "pydantic-ai-two-hops", "qdrant"),
    )
)

_BY_HAND = "the chunks are in the prompt only: nothing says which function is the retriever"
_TOOL_BY_HAND = "a tool retrieves, in two hops; its results are in the model's messages only"
_IDS_ONLY = "the retrieval has the chunks' ids, without their texts; the prompt has the texts"
_UNREAD = "a stream that nobody reads to its end"
_CLOSED = "a stream that is closed before its end"
_TALK = "a conversation: nothing was retrieved"
_PITFALLS = (
    Scenario(
        instrumentation="openinference",
        application="llamaindex-many",
        libraries=("llamaindex",),
        shows="48 chunks: of so many attributes the SDK keeps the last 128",
    ),
    *(
        Scenario(
            instrumentation=name,
            application="openai-abandoned",
            libraries=("openai",),
            shows=_UNREAD,
        )
        for name in ("ragtrace", "openinference", "openllmetry")
    ),
    *(
        Scenario(
            instrumentation=name,
            application="openai-talk",
            libraries=("openai",),
            shows=_TALK,
        )
        for name in ("ragtrace", "openinference", "openllmetry")
    ),
    *(
        Scenario(
            instrumentation=name,
            application="openai-choices",
            libraries=("openai",),
            shows="two choices, the first of which is the answer",
        )
        for name in ("openinference", "openllmetry")
    ),
    *(
        Scenario(instrumentation=name, application="langchain-faiss", libraries=("langchain",))
        for name in ("openinference", "openllmetry")
    ),
    *(
        Scenario(
            instrumentation=name,
            application="two-services",
            libraries=("openai",),
            shows="the retriever is another process, which sends its own spans",
        )
        for name in ("ragtrace", "openinference", "openllmetry")
    ),
    Scenario(
        instrumentation="openinference",
        application="openinference-evaluated",
        libraries=("openai",),
        shows="a judge of the application's own in the trace; a tool retrieves",
    ),
)

_OPENINFERENCE = (
    *(
        Scenario(instrumentation="openinference", application=name, libraries=("openai",), shows=_BY_HAND)
        for name in ("openai-async", "openai-chat", "openai-responses", "openai-streaming")
    ),
    Scenario(
        instrumentation="openinference",
        application="anthropic",
        libraries=("anthropic", "openai"),
        shows=_BY_HAND,
    ),
    Scenario(instrumentation="openinference", application="openinference-decorated", libraries=("openai",)),
    *(
        Scenario(instrumentation="openinference", application=name, libraries=("langchain",))
        for name in ("langchain", "langchain-streaming")
    ),
    Scenario(
        instrumentation="openinference",
        application="langchain-agent",
        libraries=("langchain",),
        shows="a tool retrieves, in two hops",
    ),
    Scenario(
        instrumentation="openinference",
        application="langchain-ensemble",
        libraries=("langchain",),
        shows="retrievers within retrievers, the outermost of which reranks",
    ),
    Scenario(
        instrumentation="openinference",
        application="langchain-forty",
        libraries=("langchain",),
        shows="forty chunks",
    ),
    Scenario(
        instrumentation="openinference",
        application="langchain-history",
        libraries=("langchain",),
        shows="the question is rewritten before it is searched for; a session",
    ),
    Scenario(
        instrumentation="openinference",
        application="langchain",
        libraries=("langchain", "openai"),
        is_served=True,
        variant="twice",
        shows="two spans of one generation: the framework's and the SDK's",
    ),
    Scenario(
        instrumentation="openinference",
        application="langchain",
        libraries=("langchain",),
        environment={"OPENINFERENCE_HIDE_INPUTS": "true", "OPENINFERENCE_HIDE_OUTPUTS": "true"},
        variant="hidden",
        shows="content is hidden",
    ),
    Scenario(
        instrumentation="openinference",
        application="langchain",
        libraries=("langchain",),
        environment={"OPENINFERENCE_ENABLE_GENAI_SEMCONV": "true"},
        variant="genai",
        shows="every span is written in two conventions",
    ),
    *(
        Scenario(instrumentation="openinference", application=name, libraries=("llamaindex",))
        for name in (
            "llamaindex",
            "llamaindex-chat",
            "llamaindex-fusion",
            "llamaindex-reranker",
            "llamaindex-streaming",
        )
    ),
    *(
        Scenario(instrumentation="openinference", application=name, libraries=("haystack",))
        for name in ("haystack", "haystack-hybrid")
    ),
    *(
        Scenario(instrumentation="openinference", application=name, libraries=("pydantic-ai",))
        for name in ("pydantic-ai", "pydantic-ai-two-hops")
    ),
)

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
    "mcp==2.3.0",
    "mcp-types==2.3.0",
    "openai-agents==0.20.0",  # the last one for the openai of the environment
    "pyjwt==2.15.1",
    "python-multipart==0.0.34",
    "sse-starlette==3.7.0",
)
_GENAI = {"OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental"}
_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_OPENAI_V2 = (
    *(
        Scenario(
            instrumentation="openai-v2",
            application=name,
            packages=_OLD,
            environment=_GENAI | {_CONTENT: "SPAN_ONLY"},
            shows=shows,
        )
        for name, shows in (
            ("openai-async", _BY_HAND),
            ("openai-chat", _BY_HAND),
            ("openai-streaming", _BY_HAND),
            ("openai-closed", _CLOSED),
            ("openai-talk", _TALK),
        )
    ),
    Scenario(
        instrumentation="openai-v2",
        application="openai-chat",
        packages=_OLD,
        variant="off",
        shows="content is not captured",
    ),
    Scenario(
        instrumentation="openai-v2",
        application="openai-chat",
        packages=_OLD,
        environment=_GENAI | {_CONTENT: "EVENT_ONLY"},
        variant="events",
        shows="content is in log records, which this recording leaves out",
    ),
)

_MODES = {"": "SPAN_ONLY", "events": "EVENT_ONLY", "both": "SPAN_AND_EVENT"}
_OTEL_GENAI = (
    *(
        Scenario(
            instrumentation="otel-genai",
            application=name,
            libraries=libraries,
            packages=(*_NEW, *packages),
            environment={_CONTENT: mode},
            is_served="llamaindex" in libraries,
            variant=variant,
            shows=shows,
        )
        for name, libraries, shows, packages in (
            ("anthropic", ("anthropic",), _BY_HAND, ()),
            ("anthropic-async", ("anthropic",), _BY_HAND, ()),
            ("anthropic-streaming", ("anthropic",), _BY_HAND, ()),
            ("anthropic-tools", ("anthropic",), _TOOL_BY_HAND, ()),
            ("bedrock", ("bedrock",), _BY_HAND, _BOTO),
            ("dspy", ("dspy",), "the chunks are a field of the prompt", (*_BOTO, *_DSPY)),
            ("langchain", ("langchain",), _IDS_ONLY, ()),
            ("langchain-agent", ("langchain",), "a tool retrieves, in two hops", ()),
            ("langchain-async", ("langchain",), _IDS_ONLY, ()),
            ("langchain-streaming", ("langchain",), _IDS_ONLY, ()),
            ("llamaindex", ("llamaindex", "openai"), _IDS_ONLY, ()),
            ("llamaindex-agent", ("llamaindex", "openai"), "a tool retrieves, in two hops", ()),
            ("llamaindex-async", ("llamaindex", "openai"), _IDS_ONLY, ()),
            ("llamaindex-streaming", ("llamaindex", "openai"), _IDS_ONLY, ()),
            ("openai-agents", ("openai-agents", "openai"), "a tool retrieves, in two hops", _AGENTS),
            (
                "openai-agents-streaming",
                ("openai-agents", "openai"),
                "a tool retrieves, in two hops",
                _AGENTS,
            ),
            ("openai-async", ("openai",), _BY_HAND, ()),
            ("openai-chat", ("openai",), _BY_HAND, ()),
            ("openai-responses", ("openai",), _BY_HAND, ()),
            ("openai-streaming", ("openai",), _BY_HAND, ()),
            ("openai-tools", ("openai",), _TOOL_BY_HAND, ()),
        )
        for variant, mode in _MODES.items()
    ),
    *(
        Scenario(
            instrumentation="otel-genai",
            application=name,
            libraries=("openai",),
            packages=_NEW,
            environment={_CONTENT: "SPAN_ONLY"},
            shows=shows,
        )
        for name, shows in (
            ("openai-abandoned", _UNREAD),
            ("openai-closed", _CLOSED),
            ("openai-talk", _TALK),
        )
    ),
    Scenario(
        instrumentation="otel-genai",
        application="langchain",
        libraries=("langchain",),
        packages=_NEW,
        variant="off",
        shows="content is not captured",
    ),
)

_OPENLLMETRY = (
    *(
        Scenario(instrumentation="openllmetry", application=name, libraries=("openai",), shows=_BY_HAND)
        for name in ("openai-async", "openai-chat", "openai-responses", "openai-streaming")
    ),
    Scenario(
        instrumentation="openllmetry",
        application="anthropic",
        libraries=("anthropic", "openai"),
        shows=_BY_HAND,
    ),
    Scenario(
        instrumentation="openllmetry",
        application="chroma",
        libraries=("chroma", "openai"),
        shows="distances, not scores",
    ),
    Scenario(
        instrumentation="openllmetry",
        application="qdrant",
        libraries=("qdrant", "openai"),
        shows="the retrieval has no results",
    ),
    *(
        Scenario(instrumentation="openllmetry", application=name, libraries=("langchain",))
        for name in (
            "langchain",
            "langchain-agent",
            "langchain-ensemble",
            "langchain-history",
            "langchain-streaming",
        )
    ),
    Scenario(
        instrumentation="openllmetry",
        application="langchain",
        libraries=("langchain", "openai"),
        variant="twice",
        shows="two spans of one generation: the framework's and the SDK's",
    ),
    Scenario(
        instrumentation="openllmetry",
        application="langchain",
        libraries=("langchain",),
        environment={"TRACELOOP_TRACE_CONTENT": "false"},
        variant="off",
        shows="content is not captured",
    ),
    *(
        Scenario(instrumentation="openllmetry", application=name, libraries=("llamaindex", "openai"))
        for name in ("llamaindex", "llamaindex-reranker", "llamaindex-streaming")
    ),
    *(
        Scenario(
            instrumentation="openllmetry",
            application=name,
            libraries=("haystack", "openai"),
            packages=("haystack-ai==2.20.0",),  # the instrumentor does not load with Haystack 3
        )
        for name in ("haystack", "haystack-hybrid")
    ),
)

_OTHERS = (
    Scenario(instrumentation="traceloop", application="traceloop-decorated", libraries=("openai",)),
    Scenario(instrumentation="langfuse", application="langfuse-decorated"),
    Scenario(instrumentation="langfuse", application="langfuse-langchain"),
    Scenario(instrumentation="mlflow", application="mlflow-decorated", libraries=("openai",)),
    Scenario(instrumentation="mlflow", application="langchain", libraries=("langchain",)),
    Scenario(instrumentation="logfire", application="openai-chat", libraries=("openai",), shows=_BY_HAND),
    *(
        Scenario(instrumentation="logfire", application=name, libraries=("pydantic-ai",))
        for name in ("pydantic-ai", "pydantic-ai-two-hops")
    ),
    *(
        Scenario(instrumentation="pydantic-ai", application=name, shows="a tool retrieves")
        for name in ("pydantic-ai", "pydantic-ai-streaming", "pydantic-ai-two-hops")
    ),
    *(
        Scenario(
            instrumentation="haystack",
            application=name,
            packages=("opentelemetry-haystack==2.0.0",),
            environment={"HAYSTACK_CONTENT_TRACING_ENABLED": "true"},
        )
        for name in ("haystack", "haystack-hybrid")
    ),
    Scenario(
        instrumentation="haystack",
        application="haystack",
        packages=("opentelemetry-haystack==2.0.0",),
        variant="off",
        shows="content is not captured",
    ),
    *(
        Scenario(
            instrumentation="llamaindex",
            application=name,
            is_served=name == "llamaindex-streaming",
            shows="all that is told is in events of spans",
        )
        for name in ("llamaindex", "llamaindex-reranker", "llamaindex-streaming")
    ),
    *(
        Scenario(instrumentation="langsmith", application=name)
        for name in ("langchain", "langchain-agent", "langchain-history")
    ),
)

_NEGATIVES = tuple(
    Scenario(
        instrumentation=instrumentation,
        application=name,
        libraries=libraries,
        environment=environment,
        packages=packages,
        kind="negatives",
    )
    for instrumentation, libraries, environment, packages, names in (
        ("openinference", ("openai",), {}, (), ("openai-title", "openai-guardrail", "openai-grading")),
        (
            "openinference",
            ("langchain",),
            {},
            (),
            ("langchain-talk", "langchain-calculator", "langchain-ingestion", "langchain-grading"),
        ),
        ("openinference", ("llamaindex",), {}, (), ("llamaindex-talk", "llamaindex-ingestion")),
        ("openinference", ("haystack",), {}, (), ("haystack-talk", "haystack-ingestion")),
        ("openinference", ("pydantic-ai",), {}, (), ("pydantic-ai-calculator",)),
        ("openllmetry", ("openai",), {}, (), ("openai-rewrite", "openai-summary", "openai-grading")),
        (
            "openllmetry",
            ("langchain",),
            {},
            (),
            ("langchain-talk", "langchain-calculator", "langchain-ingestion", "langchain-grading"),
        ),
        ("openllmetry", ("llamaindex", "openai"), {}, (), ("llamaindex-talk", "llamaindex-ingestion")),
        (
            "otel-genai",
            ("openai",),
            {_CONTENT: "SPAN_ONLY"},
            _NEW,
            ("openai-title", "openai-rewrite", "openai-grading"),
        ),
        (
            "otel-genai",
            ("langchain",),
            {_CONTENT: "SPAN_ONLY"},
            _NEW,
            ("langchain-talk", "langchain-calculator", "langchain-ingestion", "langchain-grading"),
        ),
        ("otel-genai", ("llamaindex", "openai"), {_CONTENT: "SPAN_ONLY"}, _NEW, ("llamaindex-calculator",)),
        ("langfuse", (), {}, (), ("langfuse-talk", "langfuse-grading")),
        ("langsmith", (), {}, (), ("langchain-talk", "langchain-calculator", "langchain-grading")),
        ("llamaindex", (), {}, (), ("llamaindex-talk", "llamaindex-ingestion")),
        ("logfire", ("openai",), {}, (), ("openai-title",)),
        ("logfire", ("pydantic-ai",), {}, (), ("pydantic-ai-talk", "pydantic-ai-calculator")),
        ("mlflow", ("openai",), {}, (), ("mlflow-summary", "mlflow-calculator")),
        ("pydantic-ai", (), {}, (), ("pydantic-ai-talk", "pydantic-ai-calculator")),
        (
            "haystack",
            (),
            {"HAYSTACK_CONTENT_TRACING_ENABLED": "true"},
            ("opentelemetry-haystack==2.0.0",),
            ("haystack-talk", "haystack-ingestion"),
        ),
    )
    for name in names
)

_STREAMS = tuple(
    Scenario(
        instrumentation=instrumentation,
        application=f"{name}-{ending}",
        libraries=libraries,
        environment=environment,
        packages=packages,
        is_served=is_served,
        kind="streams",
    )
    for instrumentation, name, libraries, environment, packages, is_served in (
        *(
            ("ragtrace", name, (), {}, (), False)
            for name in ("openai-chat", "openai-responses", "langchain", "llamaindex", "pydantic-ai")
        ),
        ("openinference", "openai-chat", ("openai",), {}, (), True),
        ("openinference", "openai-responses", ("openai",), {}, (), True),
        ("openinference", "langchain", ("langchain",), {}, (), False),
        ("openinference", "llamaindex", ("llamaindex",), {}, (), False),
        ("openinference", "pydantic-ai", ("pydantic-ai",), {}, (), False),
        ("openllmetry", "openai-chat", ("openai",), {}, (), True),
        ("openllmetry", "openai-responses", ("openai",), {}, (), True),
        ("openllmetry", "langchain", ("langchain",), {}, (), False),
        ("openllmetry", "llamaindex", ("llamaindex", "openai"), {}, (), True),
        ("otel-genai", "openai-chat", ("openai",), {_CONTENT: "SPAN_ONLY"}, _NEW, True),
        ("otel-genai", "openai-responses", ("openai",), {_CONTENT: "SPAN_ONLY"}, _NEW, True),
        ("otel-genai", "langchain", ("langchain",), {_CONTENT: "SPAN_ONLY"}, _NEW, False),
        ("otel-genai", "llamaindex", ("llamaindex", "openai"), {_CONTENT: "SPAN_ONLY"}, _NEW, True),
        ("pydantic-ai", "pydantic-ai", (), {}, (), False),
    )
    for ending in ("whole", "left", "cancelled", "broken")
)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        *_RAGTRACE,
        *_OPENINFERENCE,
        *_OPENAI_V2,
        *_OTEL_GENAI,
        *_OPENLLMETRY,
        *_OTHERS,
        *_PITFALLS,
        *_NEGATIVES,
        *_STREAMS,
    )
}
