"""The supported conventions, by precedence: to support another producer, add a table of the same form.

A convention that gives GenAI's attributes another meaning comes before GenAI.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from ragtrace import semconv
from ragtrace.traces.extract._content import first_text
from ragtrace.traces.extract._payload import handed_on, returns_documents, texts_for_synthesis
from ragtrace.traces.extract._span_reader import Role, SpanReading, merge
from ragtrace.traces.extract.convention import CHOICES, EVENTS, Convention, Reader, SpanRule
from ragtrace.traces.trace import Span

CALL, RETRIEVAL, RERANK = Role.CALL, Role.RETRIEVAL, Role.RERANK
GENERATION, TOOL, STEP = Role.GENERATION, Role.TOOL, Role.STEP
GUARDRAIL, EVALUATOR = Role.GUARDRAIL, Role.EVALUATOR

KINDS: Final = {
    **dict.fromkeys(("chain", "agent", "workflow", "flow"), CALL),
    **dict.fromkeys(("retriever", "retrieval"), RETRIEVAL),
    **dict.fromkeys(("reranker", "reranking"), RERANK),
    **dict.fromkeys(("llm", "chat_model", "generation"), GENERATION),
    "tool": TOOL,
    "guardrail": GUARDRAIL,
    **dict.fromkeys(("evaluator", "evaluation"), EVALUATOR),
}
"""What producers call the kinds of spans, in lower case."""


def _table(
    name: str, at: str, given: str, said: str, roles: Mapping[str, Role | None] = KINDS, **parts: Any
) -> Convention:
    """Return the table of a producer that writes each span's kind, input and output to three attributes."""
    rule = SpanRule(at=at, roles={**KINDS, **roles}, other=STEP)
    return Convention(name=name, kinds=(rule,), **{"input": (given,), "output": (said,), **parts})


OWN: Final = Convention(
    name="ragtrace",
    is_additive=True,
    kinds=(
        SpanRule(at="ragtrace.kind", roles={"rag": CALL, "retrieval": RETRIEVAL, "generation": GENERATION}),
    ),
    question=("ragtrace.question",),
    documents=("ragtrace.retrieval.documents",),
    answer=("ragtrace.answer",),
    reference=("ragtrace.reference.answer",),
    reference_ids=("ragtrace.reference.context_ids",),
    verbatim=True,
)

OPENINFERENCE: Final = Convention(
    name="openinference",
    is_additive=True,
    kinds=(
        SpanRule(at="openinference.span.kind", roles=KINDS),
        # beyond 128 attributes SDKs drop the oldest: after a long list, the kind is gone but documents remain
        SpanRule(at="reranker.output_documents.*", other=RERANK),
        SpanRule(at="retrieval.documents.*", other=RETRIEVAL),
    ),
    without_input=None,
    input=("input.value",),
    output=("output.value",),
    messages=("llm.input_messages.*.message",),
    reply=("llm.output_messages.*.message", "llm.choices.0.completion.text"),
    query=("reranker.query",),
    documents=(
        "reranker.output_documents.*.document",
        "retrieval.documents.*.document",
        "output.value.documents",
    ),
    envelopes=("llm.invocation_parameters",),
    tool=("tool.name",),
    model=("llm.response.model_name", "llm.model_name", "llm.request.model_name"),
    session=("session.id",),
    prompt_version=("llm.prompt_template.version",),
    reference=(
        "metadata.reference",
        "metadata.expected",
        "metadata.ground_truth",
        "metadata.expected_output",
    ),
)

ALIBABA: Final = _table(
    *("alibaba", "gen_ai.span.kind", "input.value", "output.value"),
    {"entry": CALL},
    input=("input.value", "gen_ai.input.messages", "gen_ai.prompt"),
    output=("output.value", "gen_ai.output.messages", "gen_ai.completion"),
    messages=("gen_ai.input.messages", "gen_ai.prompts.*.prompt", "gen_ai.prompts.*", "gen_ai.prompt"),
    system=("gen_ai.system_instructions",),
    reply=(
        "gen_ai.output.messages",
        "gen_ai.completions.*.completion",
        "gen_ai.completions.*",
        "gen_ai.completion",
    ),
    query=("retrieval.query", "gen_ai.retrieval.query.text"),
    documents=(
        "gen_ai.rerank.output_document",
        "retrieval.document",
        "retrieval.documents.*.document",
        "gen_ai.retrieval.documents",
        "output.value",
    ),
    arguments=("gen_ai.tool.call.arguments", "tool.parameters"),
    result=("gen_ai.tool.call.result",),
    tool=("gen_ai.tool.name", "tool.name"),
    model=("gen_ai.response.model", "gen_ai.model_name", "gen_ai.request.model"),
    session=("gen_ai.session.id",),
)

LANGFUSE: Final = _table(
    *("langfuse", "langfuse.observation.type", "langfuse.observation.input", "langfuse.observation.output"),
    {"span": CALL},
    without_input=STEP,
    question=("langfuse.trace.input",),
    answer=("langfuse.trace.output",),
    envelopes=("langfuse.observation.model.parameters",),
    model=("langfuse.observation.model.name",),
    session=("session.id", "langfuse.session.id"),
    prompt_version=("langfuse.observation.prompt.version",),
    reference=("langfuse.experiment.item.expected_output",),
)

MLFLOW: Final = _table(
    *("mlflow", "mlflow.spanType", "mlflow.spanInputs", "mlflow.spanOutputs"),
    {"unknown": CALL},  # `@mlflow.trace` on a function without a type
    without_input=STEP,
    model=("mlflow.llm.model",),
    session=("session.id", "mlflow.trace.session"),
)

LANGSMITH: Final = _table(  # a retriever's `gen_ai.operation.name` is `embeddings`
    *("langsmith", "langsmith.span.kind", "gen_ai.prompt", "gen_ai.completion"),
    model=("gen_ai.response.model", "gen_ai.request.model"),
    session=(
        "langsmith.metadata.session_id",
        "langsmith.metadata.thread_id",
        "langsmith.metadata.conversation_id",
    ),
)

TRULENS: Final = _table(
    *(
        "trulens",
        "ai.observability.span_type",
        "ai.observability.call.kwargs",
        "ai.observability.call.return",
    ),
    {"record_root": CALL, "tool_invocation": TOOL, "eval": EVALUATOR, "eval_root": EVALUATOR},
    question=("ai.observability.record_root.input",),
    messages=("ai.observability.generation.input_messages",),
    query=("ai.observability.retrieval.query_text", "ai.observability.reranking.query_text"),
    documents=(
        "ai.observability.reranking.context_texts",
        "ai.observability.retrieval.retrieved_contexts",
        "ai.observability.call.return",
    ),
    answer=("ai.observability.record_root.output",),
    model=("ai.observability.cost.model",),
    reference=("ai.observability.record_root.ground_truth_output",),
)

GENKIT: Final = Convention(
    name="genkit",
    kinds=(
        SpanRule(
            at="genkit:metadata:subtype",
            roles={**KINDS, "model": GENERATION, "background-model": GENERATION, "tool.v2": TOOL},
            other=STEP,
        ),
        SpanRule(at="genkit:type", roles={"flow": CALL}),
    ),
    input=("genkit:input",),
    output=("genkit:output",),
    tool=("genkit:name",),
    model=("genkit:name",),
    session=("genkit:sessionId",),
)

LANGWATCH: Final = _table(
    *("langwatch", "langwatch.span.type", "langwatch.input.value", "langwatch.output.value"),
    {"rag": RETRIEVAL},
    documents=("langwatch.rag.contexts", "langwatch.rag_contexts"),
    model=("gen_ai.response.model", "gen_ai.request.model"),
    session=("langwatch.thread.id",),
)

CONFIDENT_AI: Final = _table(
    *("confident-ai", "confident.span.type", "confident.span.input", "confident.span.output"),
    question=("confident.trace.input",),
    documents=("confident.span.retrieval_context", "confident.retriever.retrieval_context"),
    answer=("confident.trace.output",),
    tool=("confident.span.name", "confident.tool.name"),
    model=("confident.llm.model",),
    session=("confident.trace.thread_id",),
)

AGENTOPS: Final = _table(
    *("agentops", "agentops.span.kind", "agentops.entity.input", "agentops.entity.output"),
    {"session": CALL},
    messages=("gen_ai.prompt.*",),
    reply=("gen_ai.completion.*",),
    tool=("agentops.entity.name",),
    model=("gen_ai.response.model", "gen_ai.request.model"),
)

LAMINAR: Final = _table(
    *("laminar", "lmnr.span.type", "lmnr.span.input", "lmnr.span.output"),
    {"default": CALL},  # `@observe()` on any function
    without_input=STEP,
    messages=("gen_ai.input.messages", "gen_ai.prompt.*", "lmnr.span.input"),
    reply=("gen_ai.output.messages", "gen_ai.completion.*"),
    model=("gen_ai.response.model", "gen_ai.request.model"),
    session=("lmnr.association.properties.session_id",),
)

VOLTAGENT: Final = _table(
    *("voltagent", "span.type", "input", "output"),
    {"vector": RETRIEVAL},
    messages=("llm.messages", "input"),
    tool=("tool.name",),
    model=("llm.model", "ai.model.name"),
    session=("conversation.id",),
)

MASTRA: Final = Convention(
    name="mastra",
    kinds=(SpanRule(at="mastra.span.type", roles={"agent_run": CALL, "workflow_run": CALL}),),
    input=("mastra.agent_run.input", "mastra.workflow_run.input"),
    output=("mastra.agent_run.output", "mastra.workflow_run.output"),
)

LIVEKIT: Final = Convention(
    name="livekit",
    kinds=(
        SpanRule(at="lk.function_tool.name", other=TOOL),
        SpanRule(at="@name", roles={"agent_turn": CALL, "llm_node": GENERATION}),
    ),
    question=("lk.pii.user_input", "lk.user_input"),
    messages=("lk.pii.chat_ctx.items", "lk.chat_ctx.items"),
    answer=("lk.pii.response.text", "lk.response.text"),
    arguments=("lk.pii.function_tool.arguments", "lk.function_tool.arguments"),
    result=("lk.pii.function_tool.output", "lk.function_tool.output"),
    tool=("lk.function_tool.name",),
)

PROMPT_FLOW: Final = Convention(
    name="prompt-flow",
    kinds=(
        SpanRule(
            at="span_type",
            roles={"Flow": CALL, "Retrieval": RETRIEVAL, "LLM": GENERATION},
            other=STEP,
            when=lambda span: span.attributes.get("framework") == "promptflow",
        ),
    ),
    input=("promptflow.function.inputs/payload", "inputs"),
    output=("promptflow.function.output/payload", "output"),
    query=("promptflow.retrieval.query/payload", "retrieval.query"),
    documents=("promptflow.function.output/payload", "output"),
    model=("llm.response.model",),
)

SPRING_AI: Final = Convention(
    name="spring-ai",
    kinds=(
        SpanRule(
            at="spring.ai.kind",
            roles={"chat_client": CALL, "vector_store": RETRIEVAL, "tool_call": TOOL},
            other=STEP,
        ),
    ),
    question=("gen_ai.prompt", "spring.ai.chat.client.user.text"),
    query=("db.vector.query.content",),
    documents=("db.vector.query.response.documents",),
    answer=("gen_ai.completion",),
    arguments=("spring.ai.tool.call.arguments",),
    result=("spring.ai.tool.call.result",),
    tool=("spring.ai.tool.definition.name",),
    conversation=("spring.ai.chat.client.conversation.id",),
)

PYDANTIC_AI: Final = Convention(
    name="pydantic-ai",
    kinds=(
        SpanRule(at="pydantic_ai.all_messages", other=CALL),
        SpanRule(at="all_messages_events", other=CALL),
        SpanRule(at="tool_response", other=TOOL),
    ),
    messages=("pydantic_ai.all_messages", "all_messages_events"),
    answer=("final_result",),
    arguments=("tool_arguments",),
    result=("tool_response",),
    tool=("gen_ai.tool.name",),
)

LOGFIRE: Final = Convention(
    name="logfire",
    kinds=(
        SpanRule(
            at="request_data", other=GENERATION, when=lambda span: "gen_ai.request.model" in span.attributes
        ),
    ),
    messages=("request_data",),
    envelopes=("response_data",),
    reply=("response_data.message", "response_data.combined_chunk_content", "response_data"),
    model=("gen_ai.response.model", "gen_ai.request.model"),
)

GOOGLE_ADK: Final = Convention(
    name="google-adk",
    kinds=(
        SpanRule(at="gcp.vertex.agent.tool_response", other=TOOL),
        SpanRule(at="gcp.vertex.agent.llm_response", other=GENERATION),
    ),
    messages=("gcp.vertex.agent.llm_request.contents",),
    system=("gcp.vertex.agent.llm_request.config.system_instruction",),
    reply=("gcp.vertex.agent.llm_response.content",),
    envelopes=("gcp.vertex.agent.llm_response",),
    arguments=("gcp.vertex.agent.tool_call_args",),
    result=("gcp.vertex.agent.tool_response",),
    tool=("gen_ai.tool.name",),
    model=("gen_ai.request.model",),
    session=("gcp.vertex.agent.session_id",),
)

_TALK: Final = frozenset(
    {"gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.prompt", "gen_ai.completion", "events"}
)


def _has_messages(span: Span) -> bool:
    """Return whether the span holds what was said: then an unknown operation is that of a model."""
    return (
        not _TALK.isdisjoint(span.attributes)
        or "gen_ai.prompt.0.content" in span.attributes
        or any(each.name == "gen_ai.choice" or not _TALK.isdisjoint(each.attributes) for each in span.events)
    )


GENAI: Final = Convention(
    name="otel-genai",
    is_additive=True,
    kinds=(
        SpanRule(
            at="gen_ai.tool.type",
            roles={"datastore": RETRIEVAL},
            when=lambda span: (
                span.attributes.get("gen_ai.operation.name") == "execute_tool"
                or "mcp.method.name" in span.attributes
            ),
        ),
        SpanRule(
            at="gen_ai.operation.name",
            roles={
                "invoke_workflow": CALL,
                "invoke_agent": CALL,
                "process_thread_run": CALL,
                "chat": GENERATION,
                "generate_content": GENERATION,
                "text_completion": GENERATION,
                "retrieval": RETRIEVAL,
                "search_memory": RETRIEVAL,
                "execute_tool": TOOL,
                "rerank": RERANK,
                "vector_db_retrieve": None,
                "evaluation": EVALUATOR,
                "embeddings": None,
                "create_agent": None,
            },
        ),
        SpanRule(at="gen_ai.operation.name", other=GENERATION, when=_has_messages),
        SpanRule(at="gen_ai.content.prompt", other=GENERATION),  # of Quarkus
        SpanRule(at="mcp.method.name", roles={"tools/call": TOOL}),
        # SDKs drop the oldest attributes first: the operation may be gone while the documents are present
        SpanRule(
            at="gen_ai.retrieval.documents",
            other=RETRIEVAL,
            when=lambda span: "gen_ai.operation.name" not in span.attributes,
        ),
    ),
    messages=(
        *("gen_ai.input.messages", "events", "gen_ai.prompt", "gen_ai.content.prompt", EVENTS),
        "gen_ai.request.messages",
    ),
    system=("gen_ai.system_instructions",),
    reply=(
        *("gen_ai.output.messages", "events", "gen_ai.completion", "gen_ai.content.completion", CHOICES),
        "gen_ai.response.text",
    ),
    query=("gen_ai.retrieval.query.text",),
    documents=("gen_ai.retrieval.documents",),
    arguments=("gen_ai.tool.call.arguments", "gen_ai.tool.message/content", "gen_ai.tool.input"),
    result=(
        "gen_ai.tool.call.result",
        "gen_ai.tool.output",
        "gen_ai.tool.message/gen_ai.event.content",
        "gen_ai.choice/message",
        "gen_ai.output.messages",
    ),
    hosted=("gen_ai.response.documents", "gen_ai.request.documents"),
    tool=("gen_ai.tool.name",),
    model=("gen_ai.response.model", "gen_ai.request.model"),
    response_id=("gen_ai.response.id",),
    session=("session.id",),
    conversation=("gen_ai.conversation.id",),
    prompt_version=("gen_ai.prompt.version",),
)

_NO_CALL: Final = ("Embedding", "Splitter", "Parser")
"""LlamaIndex's instrumentation calls every root span a workflow."""


def _is_of_interest(span: Span) -> bool:
    name = first_text(span, semconv.TRACELOOP_ENTITY_NAME) or ""
    return not name.removesuffix(".workflow").endswith(_NO_CALL)


def _named(pattern: str) -> Callable[[Span], bool]:
    named = re.compile(pattern, re.IGNORECASE)
    return lambda span: bool(named.search(first_text(span, semconv.TRACELOOP_ENTITY_NAME) or span.name))


TRACELOOP: Final = Convention(
    name="openllmetry",
    is_additive=True,
    kinds=(
        SpanRule(at="gen_ai.operation.name", roles={"vector_db_retrieve": RETRIEVAL, "rerank": RERANK}),
        SpanRule(at="traceloop.span.kind", roles={"workflow": CALL, "agent": CALL}, when=_is_of_interest),
        SpanRule(at="traceloop.span.kind", roles={"tool": TOOL}),
        SpanRule(
            at="traceloop.span.kind",
            roles={"task": RETRIEVAL},
            when=_named(r"retriever(\.task)?$|\bretrieve(\.task)?$"),
        ),
        # LlamaIndex's retriever spans are empty, but the synthesizer's input lists its chunks
        SpanRule(at="traceloop.span.kind", roles={"task": RERANK}, when=_named(r"re-?rank(er)?(\.task)?$")),
        SpanRule(
            at="traceloop.span.kind",
            roles={"task": RERANK},
            when=lambda span: bool(texts_for_synthesis(span, "traceloop.entity.input")),
        ),
        SpanRule(
            at="traceloop.span.kind",
            roles={"task": TOOL},
            when=lambda span: returns_documents(span, "traceloop.entity.output"),
        ),
        SpanRule(
            at="traceloop.span.kind",
            roles={"task": STEP},
            when=lambda span: bool(handed_on(span, "traceloop.entity.input")),
        ),
        SpanRule(at="traceloop.span.kind", roles={"task": None}),
        SpanRule(
            at="llm.request.type", roles={"chat": GENERATION, "completion": GENERATION, "rerank": RERANK}
        ),
    ),
    input=("traceloop.entity.input",),
    output=("traceloop.entity.output",),
    messages=("gen_ai.prompt.*",),
    reply=("gen_ai.completion.*",),
    handed_on=("traceloop.entity.input",),
    hosted=("gen_ai.completion.0.documents.*", "gen_ai.prompt.0.documents.*", "llm.request.documents.*"),
    tool=("gen_ai.tool.name", "traceloop.entity.name"),
    model=("gen_ai.response.model", "gen_ai.request.model"),
    session=(
        "traceloop.association.properties.session_id",
        "traceloop.association.properties.conversation_id",
        "traceloop.association.properties.thread_id",
        "traceloop.association.properties.chat_id",
    ),
    prompt_version=("traceloop.prompt.version",),
)

HAYSTACK: Final = Convention(
    name="haystack",
    kinds=(
        SpanRule(
            at="@name",
            roles={
                "haystack.pipeline.run": CALL,
                "haystack.agent.run": CALL,
                "haystack.agent.step.llm": GENERATION,
                "haystack.agent.step.tool": TOOL,
            },
        ),
        # the output of a joiner replaces its inputs
        SpanRule(
            at="haystack.component.type",
            roles={
                "Retriever": RETRIEVAL,
                "Ranker": RERANK,
                "DocumentJoiner": RERANK,
                "Generator": GENERATION,
            },
            ends=True,
            other=STEP,
        ),
    ),
    input=(
        "haystack.pipeline.input_data",
        "haystack.agent.input",
        "haystack.agent.step.tool.input",
        "haystack.component.input",
    ),
    output=(
        "haystack.pipeline.output_data",
        "haystack.agent.output",
        "haystack.agent.step.tool.output",
        "haystack.component.output",
    ),
    messages=("haystack.agent.step.llm.input", "haystack.component.input"),
    answer=("haystack.agent.step.llm.output",),
    tool=("haystack.tool.name",),
    model=(
        "haystack.component.output.replies[0].meta.model",
        "haystack.component.output.meta[0].model",
        "haystack.agent.step.llm.output.replies[0].meta.model",
    ),
)

VERCEL: Final = Convention(
    name="vercel",
    kinds=(
        SpanRule(
            at="ai.operationId",
            roles={
                "ai.generateText": CALL,
                "ai.streamText": CALL,
                "ai.generateObject": CALL,
                "ai.streamObject": CALL,
                "ai.rerank": RERANK,
                "ai.toolCall": TOOL,
            },
        ),
        SpanRule(
            at="ai.operationId",
            roles={".doGenerate": GENERATION, ".doStream": GENERATION},
            ends=True,
            other=STEP,
        ),
    ),
    messages=("ai.prompt.messages", "ai.prompt"),
    answer=("ai.response.text", "ai.response.object", "ai.result.text"),
    ranking=(("ai.documents", "ai.ranking"),),
    arguments=("ai.toolCall.args",),
    result=("ai.toolCall.result",),
    envelopes=("ai.response.providerMetadata",),
    tool=("ai.toolCall.name",),
    model=("ai.response.model", "ai.model.id"),
    response_id=("ai.response.id",),
    session=(
        "ai.telemetry.metadata.sessionId",
        "ai.telemetry.metadata.session_id",
        "ai.telemetry.metadata.chatId",
        "ai.telemetry.metadata.threadId",
    ),
)

LLAMAINDEX: Final = Convention(
    name="llamaindex",
    # by the first of these events; a synthesis takes the nodes that postprocessors kept
    kinds=tuple(
        SpanRule(at="@event", roles={event: role})
        for event, role in {
            "QueryStartEvent": CALL,
            "RetrievalStartEvent": RETRIEVAL,
            "ReRankStartEvent": RERANK,
            "SynthesizeEndEvent": RERANK,
            "LLMPredictEndEvent": GENERATION,
            "LLMChatEndEvent": GENERATION,
            "LLMCompletionEndEvent": GENERATION,
            "LLMPredictStartEvent": STEP,
            "LLMChatStartEvent": STEP,
        }.items()
    ),
    question=(
        "QueryStartEvent/query",
        "QueryStartEvent/query.query_str",
        "LLMPredictStartEvent/template.kwargs.query_str",
        "LLMChatStartEvent/messages",
    ),
    query=(
        "RetrievalStartEvent/str_or_query_bundle",
        "RetrievalStartEvent/str_or_query_bundle.query_str",
        "ReRankStartEvent/query",
        "ReRankStartEvent/query.query_str",
    ),
    answer=(
        *("QueryEndEvent/response.response", "QueryEndEvent/response", "LLMPredictEndEvent/output"),
        *("LLMChatEndEvent/response.message.blocks", "LLMChatEndEvent/response.message.content"),
        *("LLMCompletionEndEvent/response.text", "QueryEndEvent/response.response_gen"),
    ),
    documents=("ReRankEndEvent/nodes", "RetrievalEndEvent/nodes", "SynthesizeEndEvent/response.source_nodes"),
    model=("response.raw.model", "model_dict.model_name", "model_dict.model"),
    response_id=("response.raw.id",),
)

_VECTOR_STORES: Final = frozenset(
    {"chroma", "lancedb", "marqo", "milvus", "pinecone", "qdrant", "turbopuffer", "weaviate"}
)
_READS: Final = re.compile(r"quer(y|ies)|search|retrieve|near_|hybrid|bm25|recommend|discover", re.IGNORECASE)
_WRITES: Final = re.compile(r"upsert|insert|(^|[._])(add|put|create|index|import)", re.IGNORECASE)
_INNER: Final = re.compile(r"segment|embed|count", re.IGNORECASE)
"""Internal operations of a client for a query: their spans are not retrievals."""


def _is_query(span: Span) -> bool:
    """Return whether a client of a vector database searches it, even if it does not say what it found."""
    return _operates(span, _READS) and not _INNER.search(span.name)


def stores_vectors(span: Span) -> bool:
    """Return whether a client of a vector database writes to it: the trace ingests documents."""
    return _operates(span, _WRITES)


def _operates(span: Span, operations: re.Pattern[str]) -> bool:
    system = first_text(span, semconv.DB_SYSTEM, semconv.DB_SYSTEM_NAME) or ""
    if system.lower() not in _VECTOR_STORES:
        return False
    operation = first_text(span, semconv.DB_OPERATION, semconv.DB_OPERATION_NAME) or span.name
    return bool(operations.search(operation))


VECTOR_DB: Final = Convention(
    name="vector-db",
    kinds=(
        SpanRule(at="@event", roles={"db.query.result": RETRIEVAL, "db.search.result": RETRIEVAL}),
        SpanRule(at="db.vector.query.content", other=RETRIEVAL),
        SpanRule(at="db.vector.query.response.documents", other=RETRIEVAL),
        SpanRule(at="db.system", other=RETRIEVAL, when=_is_query),
        SpanRule(at="db.system.name", other=RETRIEVAL, when=_is_query),
    ),
    query=("db.vector.query.content",),
    documents=("db.query.result/*", "db.search.result/*", "db.vector.query.response.documents"),
)

CONVENTIONS: Final = (
    OWN,
    OPENINFERENCE,
    LANGFUSE,
    MLFLOW,
    LANGSMITH,
    LANGWATCH,
    CONFIDENT_AI,
    AGENTOPS,
    LAMINAR,
    VOLTAGENT,
    MASTRA,
    LIVEKIT,
    PROMPT_FLOW,
    SPRING_AI,
    PYDANTIC_AI,
    ALIBABA,
    GENAI,
    GOOGLE_ADK,
    LOGFIRE,
    TRACELOOP,
    HAYSTACK,
    VERCEL,
    TRULENS,
    GENKIT,
    LLAMAINDEX,
    VECTOR_DB,
)

_NAMES: Final = frozenset[str]().union(*(each.tells | each.attributes() for each in CONVENTIONS))
_INDEX: Final = re.compile(r"\.\d")
_FLAT: Final = tuple((each[:-1], each) for each in _NAMES if each.endswith(".*"))
_OF_ANY_SPAN: Final = {
    each.name: each.attributes("model", "tool", "response_id", "conversation") if each.is_additive else set()
    for each in CONVENTIONS
}
"""The attributes that count on spans of other conventions, too."""


def read_span(span: Span) -> SpanReading | None:
    """Read a span by every convention that it follows; ``None`` if it follows none."""
    every = "\n".join(span.attributes)
    flat = [name for prefix, name in _FLAT if prefix in every] if _INDEX.search(every) else ()
    names = _NAMES.intersection(span.attributes).union(flat, ["@name"])
    if span.events:
        names = names.union(["@event"], *(_NAMES.intersection(each.attributes) for each in span.events))
    role: Role | None = None
    following = []
    for convention, holds in _candidates(names):
        told, found = convention.role(span)
        if told or holds:
            following.append(Reader(convention, span))
        role = role or found
    answered = [each.answered() for each in following] if role is Role.RETRIEVAL else []
    found_both = [each for each in answered if each is not None]
    return merge(found_both or [each.read(role) for each in following])


@lru_cache(maxsize=1_024)
def _candidates(names: frozenset[str]) -> tuple[tuple[Convention, bool], ...]:
    """Return what counts of each convention on such spans, and whether they hold its texts."""
    return tuple(
        (each.on(names), holds)
        for each in CONVENTIONS
        if (holds := each.is_additive and bool("@event" in names or _OF_ANY_SPAN[each.name] & names))
        or each.tells & names
    )
