"""The producers that users reported, and others, in further shapes."""

from __future__ import annotations

from collections.abc import Iterator

from ragtrace.model import AttributeValue
from tests.reading.cases import PAID, UNUSED, A, Expected, Q
from tests.reading.kinds import BOTH, ONE, TWO, Found, Node, chat, dumped, node, parts

STUFFED = "Answer from the context only.\n\nContext:\n" + PAID
CALLED = {"role": "model", "parts": [{"functionCall": {"name": "search_kb", "id": "1", "args": {}}}]}
RETURNED = {"name": "search_kb", "response": {"documents": [{"text": PAID}]}}


def producers() -> Iterator[Found]:
    """One case for each form of a producer that is not in the reported cases."""
    yield from _adk()
    yield from _trulens()
    yield from _genkit()
    yield from _events()
    yield from _operations()
    yield from _span_kinds()
    yield from _others()


def _adk() -> Iterator[Found]:
    asked = {"role": "user", "parts": [{"text": Q}]}
    turns = [asked, CALLED, {"role": "user", "parts": [{"functionResponse": RETURNED}]}]

    def model(*contents: object) -> Node:
        said = {
            "gen_ai.system": "gcp.vertex.agent",
            "gen_ai.request.model": "gemini",
            "gcp.vertex.agent.llm_request": dumped({"contents": contents}),
            "gcp.vertex.agent.llm_response": dumped({"content": {"parts": [{"text": A}], "role": "model"}}),
        }
        return node("call_llm", said)

    yield "adk-no-tool-span", ONE, node("invocation", {}, model(*turns))
    result = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "retrieve_policies",
        "gcp.vertex.agent.tool_call_args": dumped({"query": "refund"}),
        "gcp.vertex.agent.tool_response": dumped({"result": [PAID, UNUSED]}),
    }
    found = node("execute_tool retrieve_policies", result)
    yield "adk-list", TWO, node("invocation", {}, found, model(asked))


def _trulens() -> Iterator[Found]:
    def of(name: str, kind: str, fields: dict[str, AttributeValue], *below: Node) -> Node:
        held = {f"ai.observability.{key}": value for key, value in ({"span_type": kind} | fields).items()}
        return node(name, held, *below)

    root = {"record_root.input": Q, "record_root.output": A}
    found = {"retrieval.query_text": Q, "retrieval.retrieved_contexts": BOTH}
    steps = (
        of("r", "retrieval", found),
        of("k", "reranking", {"reranking.context_texts": (PAID,)}),
        of("g", "generation", {"call.return": A}),
    )
    yield "trulens-rerank", ONE, of("app", "record_root", root, *steps)
    returned = of("r", "retrieval", {"call.return": BOTH})
    yield "trulens-returns", TWO, of("app", "record_root", root, returned)


def _genkit() -> Iterator[Found]:
    def of(name: str, kind: str, given: object, said: object, *below: Node) -> Node:
        asked = {"genkit:input": dumped(given)} if given else {}
        return node(name, {"genkit:metadata:subtype": kind, **asked, "genkit:output": dumped(said)}, *below)

    documents = {"documents": [{"content": [{"text": text}]} for text in BOTH]}
    retriever = of("r", "retriever", {"query": Q}, documents)
    yield "genkit-object", TWO, of("rag", "flow", {"question": Q}, {"answer": A, "docs": 2}, retriever)
    ranked = {"documents": [{"content": [{"text": PAID}], "metadata": {"score": 0.5}}]}
    retriever = of("r", "retriever", {"query": {"content": [{"text": Q}]}}, documents)
    yield "genkit-reranker", ONE, of("rag", "flow", Q, A, retriever, of("k", "reranker", None, ranked))


def _events() -> Iterator[Found]:
    def azure(role: str, text: str) -> dict[str, AttributeValue]:
        return {"gen_ai.event.content": dumped({"role": role, "content": text})}

    def plain(role: str, text: str) -> dict[str, AttributeValue]:
        return {"content": text, "role": role}

    def as_json(role: str, text: str) -> dict[str, AttributeValue]:
        return {"content": dumped([{"type": "text", "text": text}])}

    choice = {"gen_ai.event.content": dumped({"message": {"content": A}, "index": 0})}
    message = {"message": dumped({"role": "assistant", "content": A}), "index": 0}
    listed = {"message": dumped([{"type": "text", "text": A}])}
    for name, body, said in (
        ("azure-events", azure, choice),
        ("plain-events", plain, message),
        ("json-events", as_json, listed),
    ):
        events = (
            ("gen_ai.system.message", body("system", STUFFED)),
            ("gen_ai.user.message", body("user", Q)),
            ("gen_ai.choice", said),
        )
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.system": "x"}
        yield name, ONE, node("chat m", attributes, events=events)
    details = {
        "gen_ai.input.messages": dumped([parts("user", Q)]),
        "gen_ai.system_instructions": dumped([{"type": "text", "content": STUFFED}]),
        "gen_ai.output.messages": dumped([parts("assistant", A)]),
    }
    event = ("gen_ai.client.inference.operation.details", details)
    yield "details-event", ONE, node("chat m", {"gen_ai.operation.name": "chat"}, events=(event,))


def _operations() -> Iterator[Found]:
    for operation in (
        *("aresponses", "completion", "text.completions", "chat.streaming_completions", "responses"),
        "llm_call",
    ):
        call = chat([parts("system", STUFFED), parts("user", Q)], A, operation=operation)
        yield f"operation-{operation}", ONE, node("POST", {}, call)
    flat = {
        "gen_ai.operation.name": "acompletion",
        "gen_ai.prompt.0.role": "system",
        "gen_ai.prompt.0.content": STUFFED,
        "gen_ai.prompt.1.role": "user",
        "gen_ai.prompt.1.content": Q,
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": A,
    }
    yield "litellm-flat", ONE, node("litellm_request", flat)


def _span_kinds() -> Iterator[Found]:
    def of(name: str, kind: str, fields: dict[str, AttributeValue], *below: Node) -> Node:
        return node(name, {"gen_ai.span.kind": kind, **fields}, *below)

    said = {"input.value": Q, "output.value": A}
    listed = {f"retrieval.documents.{i}.document.content": text for i, text in enumerate(BOTH)}
    steps = (of("r", "RETRIEVER", {"input.value": Q, **listed}), of("l", "LLM", said))
    yield "alibaba-flat", TWO, of("chain", "CHAIN", said, *steps)
    found = {
        "retrieval.query": Q,
        "retrieval.document": dumped([{"content": PAID, "metadata": {"document_id": "d"}}]),
    }
    messages = {
        "gen_ai.input.messages": dumped([parts("user", Q)]),
        "gen_ai.output.messages": dumped([parts("assistant", A)]),
    }
    asked = {"input.value": dumped({"sys.query": Q}), "output.value": dumped({"answer": A})}
    steps = (of("kr", "RETRIEVER", found), of("llm", "LLM", messages))
    yield "dify-messages", ONE, of("workflow", "CHAIN", asked, *steps)


def _others() -> Iterator[Found]:
    def logfire(name: str, request: object, response: object) -> Node:
        data = {"request_data": dumped(request), "response_data": dumped(response)}
        return node(name, {"gen_ai.request.model": "m", **data})

    asked = {"role": "user", "content": Q}
    said = {"message": {"role": "assistant", "content": A}}
    claude = {"system": STUFFED, "messages": [asked]}
    yield "logfire-anthropic", ONE, logfire("Message with m", claude, said)
    request = {"messages": [{"role": "system", "content": STUFFED}, asked]}
    streamed = {"combined_chunk_content": A, "chunk_count": 3}
    yield "logfire-stream", ONE, logfire("streaming response from m took 1s", request, streamed)
    items = [{"type": "message", "role": "system", "content": ["You are on the phone."]}]
    items += [{"type": "message", "role": "user", "content": [Q]}]
    turn = (
        node("llm_node", {"lk.pii.chat_ctx": dumped({"items": items})}),
        node("function_tool", {"lk.function_tool.name": "search_faq", "lk.pii.function_tool.output": PAID}),
        node("llm_node", {"lk.pii.chat_ctx": dumped({"items": items}), "lk.pii.response.text": A}),
    )
    agent = node("agent_turn", {"lk.pii.user_input": Q, "lk.pii.response.text": A}, *turn)
    yield "livekit", ONE, node("agent_session", {}, agent)
    sentry = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.messages": dumped([{"role": "system", "content": STUFFED}, asked]),
        "gen_ai.response.text": A,
    }
    yield "sentry", ONE, node("chat m", sentry)
    call = {"id": "1", "type": "function", "function": {"name": "retrieve", "arguments": "{}"}}
    events = [
        {"event.name": "gen_ai.user.message", "role": "user", "content": Q},
        {"event.name": "gen_ai.assistant.message", "role": "assistant", "tool_calls": [call]},
        {"event.name": "gen_ai.tool.message", "role": "tool", "id": "1", "content": PAID},
        {"event.name": "gen_ai.choice", "index": 0, "message": {"role": "assistant", "content": A}},
    ]
    chatted = {"gen_ai.operation.name": "chat", "events": dumped(events)}
    yield "pydantic-chat-events", ONE, node("chat m", chatted, scope="pydantic-ai")
    client = {
        "spring.ai.kind": "chat_client",
        "gen_ai.operation.name": "framework",
        "gen_ai.prompt": dumped({"user": Q}),
    }
    response = {"db.vector.query.response.documents": dumped(list(BOTH))}
    store = node(
        "query",
        {"spring.ai.kind": "vector_store", "db.vector.query.content": Q},
        events=(("db.vector.content.query.response", response),),
    )
    told = (
        ("gen_ai.content.prompt", {"gen_ai.prompt": dumped([Q])}),
        ("gen_ai.content.completion", {"gen_ai.completion": dumped([A])}),
    )
    model = node("chat m", {"gen_ai.operation.name": "chat"}, events=told)
    yield "spring-event", TWO, node("chat_client", client, store, model)
    relevant = [{"id": 1, "text": PAID}, {"id": 2, "text": UNUSED}]
    graph = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "graphQueryTool",
        "gen_ai.tool.call.result": dumped({"relevantContext": relevant, "sources": []}),
    }
    agent = chat([parts("user", Q)], A, node("tool", graph), operation="invoke_agent")
    yield "mastra-graph", Expected(chunks=BOTH, ids=("1", "2")), agent
