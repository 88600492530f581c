"""The producers that users reported, and others, in further shapes."""

from __future__ import annotations

from collections.abc import Iterator

from tests.reading.cases import PAID, UNUSED, A, Expected, Q
from tests.reading.kinds import BOTH, ONE, TWO, Found, chat, dumped, node, parts


def producers() -> Iterator[Found]:
    """One case for each form of a producer that is not in the reported cases."""
    yield from _adk()
    yield from _trulens_and_genkit()
    yield from _events()
    yield from _operations()
    yield from _others()


def _adk() -> Iterator[Found]:
    camel = {
        "gen_ai.system": "gcp.vertex.agent",
        "gen_ai.request.model": "gemini",
        "gcp.vertex.agent.llm_request": dumped(
            {
                "contents": [
                    {"role": "user", "parts": [{"text": Q}]},
                    {
                        "role": "model",
                        "parts": [{"functionCall": {"name": "search_kb", "id": "1", "args": {}}}],
                    },
                    {
                        "role": "user",
                        "parts": [
                            {
                                "functionResponse": {
                                    "name": "search_kb",
                                    "response": {"documents": [{"text": PAID}]},
                                }
                            }
                        ],
                    },
                ]
            }
        ),
        "gcp.vertex.agent.llm_response": dumped({"content": {"parts": [{"text": A}], "role": "model"}}),
    }
    yield ("adk-no-tool-span", ONE, node("invocation", {}, node("call_llm", camel)))
    result = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "retrieve_policies",
        "gcp.vertex.agent.tool_call_args": dumped({"query": "refund"}),
        "gcp.vertex.agent.tool_response": dumped({"result": [PAID, UNUSED]}),
    }
    last = {
        **camel,
        "gcp.vertex.agent.llm_request": dumped({"contents": [{"role": "user", "parts": [{"text": Q}]}]}),
    }
    yield (
        "adk-list",
        TWO,
        node("invocation", {}, node("execute_tool retrieve_policies", result), node("call_llm", last)),
    )


def _trulens_and_genkit() -> Iterator[Found]:
    o = "ai.observability"
    yield (
        "trulens-rerank",
        ONE,
        node(
            "app",
            {f"{o}.span_type": "record_root", f"{o}.record_root.input": Q, f"{o}.record_root.output": A},
            node(
                "r",
                {
                    f"{o}.span_type": "retrieval",
                    f"{o}.retrieval.query_text": Q,
                    f"{o}.retrieval.retrieved_contexts": BOTH,
                },
            ),
            node("k", {f"{o}.span_type": "reranking", f"{o}.reranking.context_texts": (PAID,)}),
            node("g", {f"{o}.span_type": "generation", f"{o}.call.return": A}),
        ),
    )
    yield (
        "trulens-returns",
        TWO,
        node(
            "app",
            {f"{o}.span_type": "record_root", f"{o}.record_root.input": Q, f"{o}.record_root.output": A},
            node("r", {f"{o}.span_type": "retrieval", f"{o}.call.return": BOTH}),
        ),
    )
    yield (
        "genkit-object",
        TWO,
        node(
            "rag",
            {
                "genkit:metadata:subtype": "flow",
                "genkit:input": dumped({"question": Q}),
                "genkit:output": dumped({"answer": A, "docs": 2}),
            },
            node(
                "r",
                {
                    "genkit:metadata:subtype": "retriever",
                    "genkit:input": dumped({"query": Q}),
                    "genkit:output": dumped({"documents": [{"content": [{"text": t}]} for t in BOTH]}),
                },
            ),
        ),
    )
    yield (
        "genkit-reranker",
        ONE,
        node(
            "rag",
            {"genkit:metadata:subtype": "flow", "genkit:input": dumped(Q), "genkit:output": dumped(A)},
            node(
                "r",
                {
                    "genkit:metadata:subtype": "retriever",
                    "genkit:input": dumped({"query": {"content": [{"text": Q}]}}),
                    "genkit:output": dumped({"documents": [{"content": [{"text": t}]} for t in BOTH]}),
                },
            ),
            node(
                "k",
                {
                    "genkit:metadata:subtype": "reranker",
                    "genkit:output": dumped(
                        {"documents": [{"content": [{"text": PAID}], "metadata": {"score": 0.5}}]}
                    ),
                },
            ),
        ),
    )


def _events() -> Iterator[Found]:
    answer = "Answer from the context only.\n\nContext:\n" + PAID
    for name, body in (
        (
            "azure-events",
            lambda role, text: {"gen_ai.event.content": dumped({"role": role, "content": text})},
        ),
        ("plain-events", lambda role, text: {"content": text, "role": role}),
        ("json-events", lambda role, text: {"content": dumped([{"type": "text", "text": text}])}),
    ):
        said = {
            "azure-events": {"gen_ai.event.content": dumped({"message": {"content": A}, "index": 0})},
            "plain-events": {"message": dumped({"role": "assistant", "content": A}), "index": 0},
            "json-events": {"message": dumped([{"type": "text", "text": A}])},
        }[name]
        yield (
            name,
            ONE,
            node(
                "chat m",
                {"gen_ai.operation.name": "chat", "gen_ai.system": "x"},
                events=(
                    ("gen_ai.system.message", body("system", answer)),
                    ("gen_ai.user.message", body("user", Q)),
                    ("gen_ai.choice", said),
                ),
            ),
        )
    details = {
        "gen_ai.input.messages": dumped([parts("user", Q)]),
        "gen_ai.system_instructions": dumped([{"type": "text", "content": answer}]),
        "gen_ai.output.messages": dumped([parts("assistant", A)]),
    }
    yield (
        "details-event",
        ONE,
        node(
            "chat m",
            {"gen_ai.operation.name": "chat"},
            events=(("gen_ai.client.inference.operation.details", details),),
        ),
    )


def _operations() -> Iterator[Found]:
    answer = "Answer from the context only.\n\nContext:\n" + PAID
    for operation in (
        "aresponses",
        "completion",
        "text.completions",
        "chat.streaming_completions",
        "responses",
        "llm_call",
    ):
        yield (
            f"operation-{operation}",
            ONE,
            node("POST", {}, chat([parts("system", answer), parts("user", Q)], A, operation=operation)),
        )
    yield (
        "litellm-flat",
        ONE,
        node(
            "litellm_request",
            {
                "gen_ai.operation.name": "acompletion",
                "gen_ai.prompt.0.role": "system",
                "gen_ai.prompt.0.content": answer,
                "gen_ai.prompt.1.role": "user",
                "gen_ai.prompt.1.content": Q,
                "gen_ai.completion.0.role": "assistant",
                "gen_ai.completion.0.content": A,
            },
        ),
    )


def _others() -> Iterator[Found]:
    yield (
        "alibaba-flat",
        TWO,
        node(
            "chain",
            {"gen_ai.span.kind": "CHAIN", "input.value": Q, "output.value": A},
            node(
                "r",
                {
                    "gen_ai.span.kind": "RETRIEVER",
                    "input.value": Q,
                    "retrieval.documents.0.document.content": PAID,
                    "retrieval.documents.1.document.content": UNUSED,
                },
            ),
            node("l", {"gen_ai.span.kind": "LLM", "input.value": Q, "output.value": A}),
        ),
    )
    yield (
        "dify-messages",
        ONE,
        node(
            "workflow",
            {
                "gen_ai.span.kind": "CHAIN",
                "input.value": dumped({"sys.query": Q}),
                "output.value": dumped({"answer": A}),
            },
            node(
                "kr",
                {
                    "gen_ai.span.kind": "RETRIEVER",
                    "retrieval.query": Q,
                    "retrieval.document": dumped([{"content": PAID, "metadata": {"document_id": "d"}}]),
                },
            ),
            node(
                "llm",
                {
                    "gen_ai.span.kind": "LLM",
                    "gen_ai.input.messages": dumped([parts("user", Q)]),
                    "gen_ai.output.messages": dumped([parts("assistant", A)]),
                },
            ),
        ),
    )
    yield (
        "logfire-anthropic",
        ONE,
        node(
            "Message with m",
            {
                "gen_ai.request.model": "m",
                "request_data": dumped(
                    {
                        "system": "Answer from the context only.\n\nContext:\n" + PAID,
                        "messages": [{"role": "user", "content": Q}],
                    }
                ),
                "response_data": dumped({"message": {"role": "assistant", "content": A}}),
            },
        ),
    )
    yield (
        "logfire-stream",
        ONE,
        node(
            "streaming response from m took 1s",
            {
                "gen_ai.request.model": "m",
                "request_data": dumped(
                    {
                        "messages": [
                            {
                                "role": "system",
                                "content": "Answer from the context only.\n\nContext:\n" + PAID,
                            },
                            {"role": "user", "content": Q},
                        ]
                    }
                ),
                "response_data": dumped({"combined_chunk_content": A, "chunk_count": 3}),
            },
        ),
    )
    events = [
        {"event.name": "gen_ai.user.message", "role": "user", "content": Q},
        {
            "event.name": "gen_ai.assistant.message",
            "role": "assistant",
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "retrieve", "arguments": "{}"}}
            ],
        },
        {"event.name": "gen_ai.tool.message", "role": "tool", "id": "1", "content": PAID},
        {"event.name": "gen_ai.choice", "index": 0, "message": {"role": "assistant", "content": A}},
    ]
    yield (
        "pydantic-chat-events",
        ONE,
        node("chat m", {"gen_ai.operation.name": "chat", "events": dumped(events)}, scope="pydantic-ai"),
    )
    yield (
        "spring-event",
        TWO,
        node(
            "chat_client",
            {
                "spring.ai.kind": "chat_client",
                "gen_ai.operation.name": "framework",
                "gen_ai.prompt": dumped({"user": Q}),
            },
            node(
                "query",
                {"spring.ai.kind": "vector_store", "db.vector.query.content": Q},
                events=(
                    (
                        "db.vector.content.query.response",
                        {"db.vector.query.response.documents": dumped(list(BOTH))},
                    ),
                ),
            ),
            node(
                "chat m",
                {"gen_ai.operation.name": "chat"},
                events=(
                    ("gen_ai.content.prompt", {"gen_ai.prompt": dumped([Q])}),
                    ("gen_ai.content.completion", {"gen_ai.completion": dumped([A])}),
                ),
            ),
        ),
    )
    yield (
        "mastra-graph",
        Expected(chunks=BOTH, ids=("1", "2")),
        chat(
            [parts("user", Q)],
            A,
            node(
                "tool",
                {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": "graphQueryTool",
                    "gen_ai.tool.call.result": dumped(
                        {
                            "relevantContext": [{"id": 1, "text": PAID}, {"id": 2, "text": UNUSED}],
                            "sources": [],
                        }
                    ),
                },
            ),
            operation="invoke_agent",
        ),
    )
