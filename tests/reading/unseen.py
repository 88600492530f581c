"""Traces that were written without a look at the reader: names, languages and shapes of today's tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ragtrace.traces.trace import SpanKind, SpanLink, StatusCode
from tests.reading.cases import Case, Expected
from tests.reading.kinds import (
    Node,
    chat,
    dumped,
    langfuse,
    node,
    oi,
    oi_llm,
    oi_retriever,
    parts,
    prompt_only,
    spans_of,
    tool,
)

# A table: a case is read more easily in few lines.
# fmt: off
Found: TypeAlias = tuple[str, Expected | Sequence[Expected] | None, *tuple[Node, ...]]
"""A case's name, what a person finds in it, and its spans."""

Q, A = "When does the library close on Fridays?", "It closes at 8 pm on Fridays."
P = "From Monday to Friday the library is open from 9 am to 8 pm."
P2 = "On Saturdays the library is open from 10 am to 2 pm."
Q3, A3 = "How many books may I borrow?", "You may borrow up to 12 books."
P3 = "Each card allows up to 12 books at a time for four weeks."
Q4, A4 = "Is there a fee for late books?", "Yes, 20 cents a day."
P4 = "Late books cost 20 cents per day and book."
TURNS = ((Q, P, A), (Q3, P3, A3), (Q4, P4, A4))

ONE = Expected(question=Q, chunks=(P,), answer=A)
TWO = Expected(question=Q, chunks=(P, P2), answer=A)
THREE = tuple(Expected(question=q, chunks=(p,), answer=a) for q, p, a in TURNS)

def retrieval(*documents: Mapping[str, object], query: str | None = Q, **more: object) -> Node:
    """Return a retrieval of OpenTelemetry's conventions."""
    attributes = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": dumped(documents), **({"gen_ai.retrieval.query.text": query} if query else {})}
    return node("retrieval library", attributes, **more)


def doc(text: str, key: str = "1") -> dict[str, object]:
    return {"id": key, "score": 0.5, "content": text}


def asked(*texts: str, question: str = Q) -> str:
    """Return a prompt in a form that is read for sure."""
    return "Answer from the context only.\n\nContext:\n" + "\n\n".join(texts) + f"\n\nQuestion: {question}"


def answer() -> Iterator[Found]:
    """Tell which of several generations is the answer."""
    grade = 'Is the document relevant to the question? Reply {"binary_score": "yes"} or "no".'
    draft = "It closes in the evening."
    yield (
        "corrective-loop",
        TWO,
        oi(
            "CHAIN",
            {"question": Q, "retries": 0},
            {"question": Q, "documents": [P, P2], "generation": A, "retries": 2},
            oi_retriever(Q, P),
            oi_llm(f"{grade}\nDocument: {P}\nQuestion: {Q}", '{"binary_score": "no"}'),
            oi_llm(f"Write a better search query for: {Q}", "library opening hours Friday"),
            oi_retriever("library opening hours Friday", P, P2),
            oi_llm(asked(P, P2), draft),
            oi_llm(f"Facts: {P} {P2}\nGeneration: {draft}\nDoes it answer {Q}?", '{"binary_score": "no"}'),
            oi_llm(asked(P, P2), A),
            oi_llm(f"Facts: {P} {P2}\nGeneration: {A}\nDoes it answer {Q}?", '{"binary_score": "yes"}'),
            name="LangGraph",
        ),
    )
    critique = "The draft names no time."
    yield (
        "reflection",
        ONE,
        node(
            "POST /ask",
            {},
            retrieval(doc(P)),
            chat([parts("user", asked(P))], draft),
            chat([parts("user", f"Criticise this draft.\nQuestion: {Q}\nDraft: {draft}")], critique),
            chat([parts("user", f"{asked(P)}\n\nYour draft: {draft}\nCritique: {critique}\nWrite the final answer.")], A),
        ),
    )
    spanish, cierra = "¿A qué hora cierra la biblioteca los viernes?", "Los viernes cierra a las 20 h."
    steps = (oi_llm(f"Translate to English: {spanish}", Q), oi_retriever(Q, P), oi_llm(asked(P), A), oi_llm(f"Translate into Spanish, keep the meaning:\n{A}", cierra))
    translated = Expected(question=spanish, chunks=(P,), answer=cierra)
    yield "translated", translated, oi("CHAIN", {"msg": spanish}, {"lang": "es", "text": cierra}, *steps)
    yield "translated-no-output", translated, oi("AGENT", spanish, None, *steps)
    cited = f"{A} [1]"
    yield (
        "citations-added",
        Expected(question=Q, chunks=(P,), answer=cited),
        oi(
            "CHAIN",
            {"query": Q, "top_k": 1},
            {"data": {"markdown": cited, "citations": [{"n": 1, "url": "https://a.example/hours"}]}},
            oi_retriever(Q, P),
            oi_llm(asked(P), A),
            oi_llm(f"Insert citation markers.\nSources:\n[1] {P}\nText: {A}", cited),
        ),
    )
    invented = "The library closes at 6 pm on Fridays, as most public libraries do."
    yield (
        "hyde",
        ONE,
        node(
            "POST /v1/query",
            {},
            chat([parts("user", f"Write a passage that answers the question.\nQuestion: {Q}")], invented),
            retrieval(doc(P), query=invented),
            chat([parts("system", "Answer from the context only."), parts("user", asked(P))], A),
        ),
    )
    queries = ["library friday closing time", "opening hours library", "when does the library shut"]
    yield (
        "multi-query",
        TWO,
        langfuse(
            "chain",
            {"messages": [{"role": "user", "content": Q}], "stream": True},
            A,
            langfuse("generation", [{"role": "user", "content": f"Three queries for: {Q}"}], "\n".join(queries)),
            langfuse("retriever", queries[0], [{"page_content": P, "metadata": {"page": 1}}]),
            langfuse("retriever", queries[1], [{"page_content": P}, {"page_content": P2}]),
            langfuse("retriever", queries[2], [{"page_content": P2, "metadata": {"page": 2}}]),
            langfuse("generation", [{"role": "user", "content": asked(P, P2)}], {"role": "assistant", "content": A}),
            langfuse("generation", [{"role": "user", "content": f"Q: {Q}\nA: {A}\nThree follow-up questions?"}], '["Is it open on Sundays?"]'),
        ),
    )
    yield (
        "router",
        ONE,
        node(
            "invoke_workflow helpdesk",
            {"gen_ai.operation.name": "invoke_workflow"},
            chat([parts("system", "Pick a team: hours, loans, other."), parts("user", Q)], "hours", operation="invoke_agent"),
            chat([parts("user", Q)], A, tool("kb_lookup", {"results": [{"title": "Hours", "snippet": P}]}, {"query": "hours"}), operation="invoke_agent"),
        ),
    )
    source = f'### Task:\nAnswer with the context and cite as [id].\n<context>\n<source id="1" name="h.md">{P}</source>\n</context>'
    history = f"<chat_history>\nUSER: {Q}\nASSISTANT: {A}\n</chat_history>"
    yield (
        "open-webui-tasks",
        ONE,
        node(
            "POST /api/chat/completions",
            {},
            chat([parts("user", f"### Task: search queries as JSON.\nUSER: {Q}")], '{"queries": ["library hours"]}'),
            chat([parts("system", source), parts("user", Q)], A),
            chat([parts("user", f"### Task: a title with an emoji as JSON.\n{history}")], '{"title": "📚 Hours"}'),
            chat([parts("user", f"### Task: 1-3 tags as JSON.\n{history}")], '{"tags": ["library"]}'),
            chat([parts("user", f"### Task: 3 follow-ups as JSON.\n{history}")], '{"follow_ups": ["Is it open on Sunday?"]}'),
        ),
    )

    def traced(name: str, prompt: str, said: str) -> Node:
        return node(
            name,
            {
                "llm.request.type": "chat",
                "gen_ai.system": "OpenAI",
                "gen_ai.prompt.0.role": "user",
                "gen_ai.prompt.0.content": prompt,
                "gen_ai.completion.0.role": "assistant",
                "gen_ai.completion.0.content": said,
                "gen_ai.completion.0.finish_reason": "stop",
            },
        )

    yield (
        "self-checks",
        ONE,
        node(
            "rails.workflow",
            {"traceloop.span.kind": "workflow", "traceloop.entity.name": "rails"},
            traced("openai.chat", f'Should the user message be blocked?\nUser: "{Q}"\nAnswer [Yes/No]:', "No"),
            node(
                "search.task",
                {
                    "traceloop.span.kind": "task",
                    "traceloop.entity.name": "search_retriever",
                    "traceloop.entity.input": dumped({"query": Q}),
                    "traceloop.entity.output": dumped({"documents": [{"page_content": P, "metadata": {}}]}),
                },
            ),
            traced("openai.chat", asked(P), A),
            traced("openai.chat", f'"evidence": {P}\n"hypothesis": {A}\n"entails": (yes or no)', "yes"),
        ),
    )
    yield (
        "memory-written",
        ONE,
        oi(
            "AGENT",
            Q,
            None,
            oi_retriever(Q, P),
            oi_llm(asked(P), A),
            oi_llm(f"Extract facts about the user.\nuser: {Q}\nassistant: {A}", '{"facts": ["Visits on Fridays"]}'),
            oi_llm('New facts: ["Visits on Fridays"]. Old: [].', '{"memory": [{"id": "0", "event": "ADD"}]}'),
        ),
    )
    sorry = "I am sorry, I can't answer that."
    yield ("replaced-by-a-guardrail", Expected(question=Q, chunks=(P,), answer=sorry), oi("CHAIN", Q, sorry, oi_retriever(Q, P), oi_llm(asked(P), A), oi("GUARDRAIL", A, "block", oi_llm(f"Is this on topic? {A}", "no"))))


def many() -> Iterator[Found]:
    """Many calls below one root, or one call of many steps."""
    yield (
        "voice",
        THREE[:2],
        node(
            "conversation",
            {"conversation.id": "c1", "conversation.type": "voice"},
            *(
                node(
                    "turn",
                    {"turn.number": i, "turn.was_interrupted": False},
                    node("stt", {"transcript": q, "is_final": True}),
                    tool("search_handbook", {"passages": [p]}, {"q": q}),
                    chat([parts("system", "You are on the phone. Be short."), parts("user", q)], a),
                    node("tts", {"text": a}),
                )
                for i, (q, p, a) in enumerate(TURNS[:2], 1)
            ),
        ),
    )
    history: list[object] = []
    turns: list[Node] = []
    for i, (q, p, a) in enumerate(TURNS):
        history += [parts("user", q)]
        turns += [retrieval(doc(p, str(i)), query=q), chat([parts("system", f"Answer from:\n{p}"), *history], a)]
        history += [parts("assistant", a)]
    yield "growing-history", THREE, node("websocket /chat", {}, *turns, kind=SpanKind.SERVER)
    items = tuple(
        langfuse(
            "span",
            {"args": [], "kwargs": {"item": {"question": q}}},
            a,
            langfuse("retriever", q, [p]),
            langfuse("generation", asked(p, question=q), a),
            langfuse("evaluator", {"output": a, "expected": a}, {"score": 1.0}),
            name="experiment-item-run",
        )
        for q, p, a in TURNS
    )
    yield "experiment", THREE, langfuse("span", {"dataset": "hours", "n": 3}, {"mean": 1.0}, *items)
    at = {"retriever": 1.0, "llm": 3.0}
    chains = tuple(
        oi("CHAIN", q, a, oi_retriever(q, p, at=(at["retriever"] + i / 4, 2.5 + i / 4)), oi_llm(asked(p, question=q), a, at=(at["llm"] + i / 4, 5 + i / 4)), name="RunnableSequence", at=(0.5 + i / 8, 6 + i / 8))
        for i, (q, p, a) in enumerate(TURNS[:2])
    )
    yield ("overlapping-batch", THREE[:2], oi("CHAIN", {"inputs": [Q, Q3]}, {"outputs": [A, A3]}, *chains, at=(0, 9), name="abatch"))
    notes = f"Notes: {P} {P2}"
    yield (
        "crew",
        TWO,
        oi(
            "CHAIN",
            {"inputs": {"question": Q}},
            A,
            oi("AGENT", f"Research: {Q}", notes, oi_retriever("library weekdays", P), oi_retriever("library Saturday", P2), oi_llm(f"Research: {Q}\n{P}\n{P2}", notes), name="researcher._execute_core"),
            oi("AGENT", "Write the reply", A, oi_llm(f"Write the reply.\n{notes}", A), name="writer._execute_core"),
            name="Crew.kickoff",
        ),
    )
    hops = [
        step
        for i, (query, p) in enumerate((("hours", P), ("hours friday", P), ("saturday", P2)))
        for step in (
            chat([parts("user", Q)], parts("assistant", {"type": "tool_call", "id": f"t{i}", "name": "find_docs", "arguments": {"q": query}})),
            tool("find_docs", {"documents": [{"id": p[:8], "text": p}]}, {"q": query}),
        )
    ]
    yield (
        "three-hops",
        TWO,
        node(
            "invoke_agent desk",
            {"gen_ai.operation.name": "invoke_agent", "gen_ai.input.messages": dumped([parts("user", Q)]), "gen_ai.output.messages": dumped([parts("assistant", A)])},
            *hops,
            chat([parts("user", Q)], A),
        ),
    )
    expert = chat([parts("user", "Friday closing time?")], "8 pm.", tool("vector_search", [{"text": P}]), operation="invoke_agent")
    yield ("agent-as-tool", ONE, chat([parts("user", Q)], A, replace(tool("ask_hours_expert", "8 pm."), below=(expert,)), operation="invoke_agent"))
    other = "The library shuts at 20:00 on Fridays."
    yield (
        "two-models-compared",
        (ONE, Expected(question=Q, chunks=(P,), answer=other)),
        node("compare", {}, *(oi("CHAIN", Q, said, oi_retriever(Q, P), oi_llm(asked(P), said), name=f"model-{i}") for i, said in enumerate((A, other)))),
    )
    yield (
        "map-reduce",
        TWO,
        oi(
            "CHAIN",
            {"question": Q},
            {"output_text": A},
            oi_retriever(Q, P, P2),
            oi_llm(f"Quote what is relevant to: {Q}\n{P}", "9 am to 8 pm, Monday to Friday"),
            oi_llm(f"Quote what is relevant to: {Q}\n{P2}", "Nothing."),
            oi_llm(f"Extracts: 9 am to 8 pm, Monday to Friday\nNothing.\nQuestion: {Q}", A),
            name="MapReduceDocumentsChain",
        ),
    )
    yield ("small-talk-first", ONE, node("session", {}, oi("AGENT", "Hello!", "Hi, how can I help?", oi_llm("Hello!", "Hi, how can I help?")), oi("AGENT", Q, A, oi_retriever(Q, P), oi_llm(asked(P), A))))


def stream() -> Iterator[Found]:
    """Streams that were left, failed or lost a part, and whole ones that look so."""
    left, failed = Expected(incomplete="reader"), Expected(incomplete="error")
    found = retrieval(doc(P))
    yield ("cancelled-by-error-type", left, chat([parts("user", Q)], "It closes", found, operation="invoke_agent", attributes={"error.type": "asyncio.exceptions.CancelledError"}, status=StatusCode.ERROR))
    yield ("timeout", failed, node("app", {}, found, chat([parts("user", asked(P))], "It closes at", attributes={"error.type": "httpx.ReadTimeout", "gen_ai.request.stream": True}, status=StatusCode.ERROR)))
    gone = (("exception", {"exception.type": "starlette.requests.ClientDisconnect", "exception.message": ""}),)
    yield ("client-disconnect", left, node("POST /chat", {}, oi("CHAIN", Q, "It closes at 8", oi_retriever(Q, P), oi_llm(asked(P), "It closes at 8")), events=gone, kind=SpanKind.SERVER))
    yield (
        "langfuse-cancelled",
        left,
        langfuse(
            "chain",
            Q,
            None,
            langfuse("retriever", Q, [P]),
            langfuse("generation", asked(P), "It clo", events=(("exception", {"exception.type": "asyncio.CancelledError"}),), status=StatusCode.ERROR),
            status=StatusCode.ERROR,
        ),
    )
    cut = parts("assistant", "It closes at 8 pm on")
    yield ("cut-by-max-tokens", Expected(question=Q, chunks=(P,), answer="It closes at 8 pm on"), node("app", {}, found, chat([parts("user", asked(P))], {**cut, "finish_reason": "length"})))
    yield "empty", None, oi("CHAIN", Q, "", oi_retriever(Q, P), oi_llm(asked(P), ""))
    nothing = {"mlflow.spanType": '"CHAIN"', "mlflow.spanInputs": dumped({"question": Q}), "mlflow.spanOutputs": "null"}
    rows = {"mlflow.spanType": '"RETRIEVER"', "mlflow.spanInputs": dumped({"query": Q}), "mlflow.spanOutputs": dumped([{"page_content": P, "metadata": {"doc_uri": "a"}, "id": "1"}])}
    yield "mlflow-null", None, node("predict", nothing, node("find", rows))
    yield ("generator-repr", ONE, langfuse("span", {"args": [Q], "kwargs": {}}, "<async_generator object answer at 0x7f3c2a0b1e40>", langfuse("retriever", Q, [P]), langfuse("generation", asked(P), A)))
    broken = (("exception", {"exception.type": "requests.ConnectionError", "exception.message": "refused"}),)
    yield (
        "search-failed-then-worked",
        ONE,
        chat([parts("user", Q)], A, replace(tool("search_docs", "Error: refused"), status=StatusCode.ERROR, events=broken), tool("search_docs", [{"text": P}]), operation="invoke_agent"),
    )
    yield ("rate-limited-then-worked", ONE, node("app", {}, found, chat([parts("user", asked(P))], None, attributes={"error.type": "429"}, status=StatusCode.ERROR), chat([parts("user", asked(P))], A)))
    caught = (("exception", {"exception.type": "KeyError", "exception.message": "'score'"}),)
    yield ("caught-exception-below", ONE, oi("CHAIN", Q, A, oi_retriever(Q, P), node("score_hits", {}, events=caught), oi_llm(asked(P), A)))


def wrapped() -> Iterator[Found]:
    """Answers in envelopes."""
    for name, said in (
        ("react", f"Thought: I now know the final answer.\nFinal Answer: {A}"),
        ("german-tags", f"<gedanken>Freitag ist ein Werktag.</gedanken>\n<antwort>{A}</antwort>"),
        ("harmony", f"<|channel|>analysis<|message|>Friday is a weekday.<|end|><|start|>assistant<|channel|>final<|message|>{A}"),
        ("double-json", dumped(dumped({"reply": A, "used": ["h.md"]}))),
        ("french-labels", f"**Réflexion :** Le vendredi est ouvré.\n**Réponse finale :** {A}\n**Sources :** h.md"),
        ("action-in-tokens", "<|START_THINKING|>Weekday.<|END_THINKING|><|START_RESPONSE|>```json\n" + dumped({"action": "Final Answer", "action_input": A}) + "\n```<|END_RESPONSE|>"),
    ):
        yield name, ONE, node("app", {}, retrieval(doc(P)), chat([parts("user", asked(P))], said))
    steps = (oi_retriever(Q, P), oi_llm(asked(P), A))
    completion = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": A}}],
        "usage": {"prompt_tokens": 60, "completion_tokens": 9},
    }
    yield "chat-completion", ONE, oi("CHAIN", {"q": Q}, completion, *steps)
    message = {"content": A, "additional_kwargs": {}, "response_metadata": {"model": "m"}, "type": "ai", "id": "run-1"}
    yield "ai-message", ONE, oi("CHAIN", {"input": Q}, message, *steps)
    blocks = [{"type": "thinking", "thinking": "Friday is a weekday.", "signature": "x"}, {"type": "text", "text": A}]
    yield ("content-blocks", ONE, langfuse("chain", {"question": Q}, None, langfuse("retriever", Q, [P]), langfuse("generation", asked(P), {"role": "assistant", "content": blocks})))
    thought = {"content": {"role": "model", "parts": [{"text": "Weekday.", "thought": True}, {"text": A}]}}
    result = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search_library", "gcp.vertex.agent.tool_response": dumped({"result": [P]})}
    request = {"contents": [{"role": "user", "parts": [{"text": Q}]}], "model": "gemini-2.5-flash"}
    yield (
        "adk-thought",
        ONE,
        node(
            "invocation",
            {},
            node("execute_tool search_library", result),
            node("call_llm", {"gen_ai.system": "gcp.vertex.agent", "gcp.vertex.agent.llm_request": dumped(request), "gcp.vertex.agent.llm_response": dumped(thought)}),
        ),
    )
    yield (
        "pydantic-output",
        ONE,
        node(
            "invoke_agent desk",
            {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "desk", "pydantic_ai.all_messages": dumped([parts("user", Q)]), "final_result": dumped({"answer": A, "confidence": 0.9, "sources": ["h.md"]})},
            tool("retrieve", P, {"search_query": "hours"}),
        ),
    )
    wish, hours = "Give me the opening hours as JSON.", dumped({"mon_fri": "9-20", "sat": "10-14"})
    yield ("json-was-asked-for", Expected(question=wish, chunks=(P, P2), answer=hours), oi("CHAIN", wish, hours, oi_retriever(wish, P, P2), oi_llm(asked(P, P2, question=wish), hours)))


CITES = '{\n  "id": "%s",\n  "sourceName": "h.md",\n  "content": "%s"\n}'
PROMPTS: Mapping[str, tuple[tuple[tuple[str, str], ...], Expected]] = {
    "citation-engine-example": (
        (
            (
                "user",
                "Answer from the numbered sources only and cite them. For example:\nSource 1:\nThe moon is round.\n"
                "Source 2:\nCats sleep a lot.\nQuery: What shape is the moon?\nAnswer: It is round [1].\n"
                f"Now it is your turn. These are the sources:\n------\nSource 1:\n{P}\n\nSource 2:\n{P2}\n\n------\n"
                f"Query: {Q}\nAnswer: ",
            ),
        ),
        TWO,
    ),
    "tree-nodes": (
        (
            (
                "system",
                "You are a librarian. Summarise the knowledge base to answer the question.\n"
                f"Here is the knowledge base:\n\nID: 0\n├── Title: h.md\n└── Content:\n{P}\n\n"
                f"ID: 1\n├── Title: h.md\n└── Content:\n{P2}\nThe above is the knowledge base.",
            ),
            ("user", Q),
        ),
        TWO,
    ),
    "references-after-question": (
        (("user", f"{Q}\n\nUse these references from the knowledge base if they help:\n<references>\n" + dumped([{"name": "h", "content": P}, {"name": "s", "content": P2}]) + "\n</references>"),),
        TWO,
    ),
    "second-user-message": (
        (
            ("user", Q),
            (
                "user",
                "## Additional Context\nConsider this information from source documents when you reply:\n"
                f"SourceDocName: h.md\nContents: {P}\n----\nSourceDocName: s.md\nContents: {P2}\n----\n"
                "Cite the source document by its name.",
            ),
        ),
        TWO,
    ),
    "name-value-link": (
        (
            (
                "user",
                f"Name: Hours\nValue: {P}\nLink: https://a.example/h\n-----------------\nName: Saturday\nValue: {P2}\nLink: https://a.example/s\n-----------------\n\n{Q}\n\nInclude citations where you refer to them.",
            ),
        ),
        TWO,
    ),
    "search-results-xml": (
        (
            (
                "system",
                "You answer questions from search results. If they hold no answer, say so.\n<search_results>\n"
                f"<search_result>\n<content>\n{P}\n</content>\n<source>\n1\n</source>\n</search_result>\n<search_result>\n"
                f"<content>\n{P2}\n</content>\n<source>\n2\n</source>\n</search_result>\n</search_results>",
            ),
            ("user", Q),
        ),
        TWO,
    ),
    "task-with-information": (
        (("system", "You are Librarian. Your goal: answer visitors."), ("user", f"Current Task: {Q}\n\nThis is the expected criteria for your final answer: one sentence\n\nAdditional Information: {P}\n{P2}")),
        TWO,
    ),
    "examples-and-documents": (
        (
            (
                "system",
                "<rules>\n1. Answer only from the documents below.\n2. Be polite to every visitor.\n</rules>\n"
                "<examples>\n<example>\nUser: Where is the toilet?\nAssistant: On the ground floor.\n</example>\n"
                f"</examples>\n<documents>\n<document id='1'>{P}</document>\n<document id='2'>{P2}</document>\n</documents>",
            ),
            ("user", Q),
        ),
        TWO,
    ),
    "chinese-cites": (
        (
            (
                "user",
                "## 任务描述\n你是一个知识库助手,请参考 <Cites></Cites> 中的内容回答问题。\n\n## 规则\n- 使用 [id](CITE) 标注引用。\n"
                '- 例如:"猫喜欢睡觉[5f](CITE)。"\n\n<Cites>\n'
                + CITES % ("a1", "图书馆周一至周五开放到晚上八点。")
                + "\n"
                + CITES % ("a2", "周六开放到下午两点。")
                + "\n</Cites>\n\n## 用户问题\n周五图书馆几点关门?\n\n## 回答\n",
            ),
        ),
        Expected(question="周五图书馆几点关门?", chunks=("图书馆周一至周五开放到晚上八点。", "周六开放到下午两点。"), answer="周五晚上八点关门。"),
    ),
    "chinese-developer": (
        (("developer", "角色:图书馆客服\n要求:\n1. 只根据【知识】回答\n2. 不知道就说不知道\n\n【知识】\n(1) 图书馆周一至周五开放到晚上八点。\n(2) 周六开放到下午两点。"), ("user", "周五图书馆几点关门?")),
        Expected(question="周五图书馆几点关门?", chunks=("(1) 图书馆周一至周五开放到晚上八点。\n(2) 周六开放到下午两点。",), answer="周五晚上八点关门。"),
    ),
    "german-table": (
        (
            (
                "system",
                "Beantworte die Frage nur mit den Fundstellen der Tabelle.\n\n| Nr | Quelle | Text |\n|---|---|---|\n"
                "| 1 | zeiten.pdf | Montag bis Freitag ist bis 20 Uhr geöffnet. |\n"
                "| 2 | zeiten.pdf | Samstags ist bis 14 Uhr geöffnet. |",
            ),
            ("user", "Wann schließt die Bücherei am Freitag?"),
        ),
        Expected(question="Wann schließt die Bücherei am Freitag?", chunks=("Montag bis Freitag ist bis 20 Uhr geöffnet.", "Samstags ist bis 14 Uhr geöffnet."), answer="Am Freitag schließt sie um 20 Uhr."),
    ),
    "german-rules-and-extracts": (
        (
            (
                "system",
                "Du bist die Auskunft der Stadtbücherei.\n\nRegeln:\n1. Antworte in höchstens zwei Sätzen.\n"
                "2. Nutze ausschließlich die Auszüge.\n\nAuszüge:\n• Montag bis Freitag ist bis 20 Uhr geöffnet.\n"
                "• Samstags ist bis 14 Uhr geöffnet.",
            ),
            ("user", "Wann schließt die Bücherei am Freitag?"),
        ),
        Expected(question="Wann schließt die Bücherei am Freitag?", chunks=("Montag bis Freitag ist bis 20 Uhr geöffnet.", "Samstags ist bis 14 Uhr geöffnet."), answer="Am Freitag schließt sie um 20 Uhr."),
    ),
    "french-json-fence": (
        (
            ("system", "Tu réponds aux usagers uniquement à partir des extraits fournis en JSON."),
            (
                "user",
                "Extraits :\n```json\n"
                + dumped([{"source": "horaires.pdf", "extrait": "La bibliothèque ferme à 20 h en semaine."}, {"source": "horaires.pdf", "extrait": "Le samedi, elle ferme à 14 h."}])
                + "\n```\n\nQuestion : À quelle heure ferme-t-elle le vendredi ?",
            ),
        ),
        Expected(question="À quelle heure ferme-t-elle le vendredi ?", chunks=("La bibliothèque ferme à 20 h en semaine.", "Le samedi, elle ferme à 14 h."), answer="Elle ferme à 20 h le vendredi."),
    ),
    "spanish-few-shot": (
        (
            (
                "system",
                "Responde con los fragmentos.\n\nEjemplo:\nPregunta: ¿Dónde está el baño?\nRespuesta: En la planta baja.\n\n"
                "Fragmentos:\n- La biblioteca cierra a las 20 h de lunes a viernes.\n- Los sábados cierra a las 14 h.\n",
            ),
            ("user", "¿A qué hora cierra los viernes?"),
        ),
        Expected(question="¿A qué hora cierra los viernes?", chunks=("La biblioteca cierra a las 20 h de lunes a viernes.", "Los sábados cierra a las 14 h."), answer="Los viernes cierra a las 20 h."),
    ),
    "portuguese-hashes": (
        (
            (
                "user",
                "Responda apenas com base nos documentos abaixo.\n\n### Documento 1\nA biblioteca fecha às 20h de segunda a "
                "sexta.\n\n### Documento 2\nAos sábados fecha às 14h.\n\n### Regras\n- Seja breve.\n- Não invente nada.\n\n"
                "### Pergunta\nA que horas fecha na sexta?",
            ),
        ),
        Expected(question="A que horas fecha na sexta?", chunks=("A biblioteca fecha às 20h de segunda a sexta.", "Aos sábados fecha às 14h."), answer="Na sexta fecha às 20h."),
    ),
    "italian-xml": (
        (
            (
                "system",
                "Rispondi usando solo i documenti.\n<documenti>\n<documento fonte='orari.pdf'>La biblioteca chiude alle 20 "
                "dal lunedì al venerdì.</documento>\n<documento fonte='orari.pdf'>Il sabato chiude alle 14.</documento>\n"
                "</documenti>",
            ),
            ("user", "A che ora chiude il venerdì?"),
        ),
        Expected(question="A che ora chiude il venerdì?", chunks=("La biblioteca chiude alle 20 dal lunedì al venerdì.", "Il sabato chiude alle 14."), answer="Il venerdì chiude alle 20."),
    ),
    "japanese-constraints": (
        (
            ("system", "あなたは図書館の案内係です。\n# 制約条件\n- 参考文書だけを根拠に答えること\n- 敬語を使うこと\n\n# 参考文書\n【文書1】\n平日は20時まで開館しています。\n【文書2】\n土曜日は14時までです。"),
            ("user", "金曜日は何時に閉まりますか?"),
        ),
        Expected(question="金曜日は何時に閉まりますか?", chunks=("平日は20時まで開館しています。", "土曜日は14時までです。"), answer="金曜日は20時に閉まります。"),
    ),
    "korean-numbered": (
        (("user", "아래 문서를 참고하여 질문에 답하세요. 문서에 없으면 모른다고 하세요.\n\n[문서 1] 평일은 저녁 8시까지 운영합니다.\n[문서 2] 토요일은 오후 2시까지입니다.\n\n질문: 금요일에는 몇 시에 닫나요?\n답변:"),),
        Expected(question="금요일에는 몇 시에 닫나요?", chunks=("평일은 저녁 8시까지 운영합니다.", "토요일은 오후 2시까지입니다."), answer="금요일에는 저녁 8시에 닫습니다."),
    ),
    "german-few-shot": (
        (
            (
                "user",
                "Beantworte die Frage nur mit den Quellen.\n\nBeispiel:\nQuelle 1: Der Mond ist rund.\nQuelle 2: Katzen schlafen viel.\n"
                "Frage: Welche Form hat der Mond?\nAntwort: Er ist rund [1].\n\nJetzt du:\nQuelle 1: Montag bis Freitag ist bis 20 Uhr geöffnet.\n"
                "Quelle 2: Samstags ist bis 14 Uhr geöffnet.\nFrage: Wann schließt die Bücherei am Freitag?\nAntwort:",
            ),
        ),
        Expected(question="Wann schließt die Bücherei am Freitag?", chunks=("Montag bis Freitag ist bis 20 Uhr geöffnet.", "Samstags ist bis 14 Uhr geöffnet."), answer="Am Freitag schließt sie um 20 Uhr."),
    ),
    "japanese-json-in-tags": (
        (
            (
                "user",
                "次の文書を使って質問に答えてください。\n<文書>\n"
                + dumped([{"題名": "時間", "本文": "平日は20時まで開館しています。"}, {"題名": "土曜", "本文": "土曜日は14時までです。"}])
                + "\n</文書>\n\n# 質問\n金曜日は何時に閉まりますか?\n\n# 出力\n",
            ),
        ),
        Expected(question="金曜日は何時に閉まりますか?", chunks=("平日は20時まで開館しています。", "土曜日は14時までです。"), answer="金曜日は20時に閉まります。"),
    ),
    "context-after-the-question": ((("user", f"Current Task: {Q}\n\nThis is the context you're working with:\n- {P}\n- {P2}\n\nBegin! This is VERY important to you."),), TWO),
    "records-in-a-message": ((("user", Q), ("user", f"- file: h.md\n  text: {P}\n- file: s.md\n  text: {P2}")), TWO),
}


def prompt() -> Iterator[Found]:
    """Passages that only the prompt has."""
    for name, (messages, expected) in PROMPTS.items():
        yield name, expected, chat([parts(role, text) for role, text in messages], expected.answer)


def ids() -> Iterator[Found]:
    """Retrievals that tell ids only, or more than the model was shown."""
    bare = [{"id": "kb-7", "score": 0.75}, {"id": "kb-9", "score": 0.5}, {"id": "kb-3", "score": 0.25}]
    for name, shown in (("tags-by-id", f'<doc id="kb-9">{P2}</doc>\n<doc id="kb-7">{P}</doc>'), ("brackets-by-id", f"[kb-9] {P2}\n[kb-7] {P}")):
        yield (name, Expected(question=Q, chunks=(P2, P), ids=("kb-9", "kb-7"), answer=A), node("app", {}, retrieval(*bare), chat([parts("system", f"Answer only from these documents.\n{shown}"), parts("user", Q)], A)))
    # a passage that the model was not shown stays what was retrieved: `explain` and the cause of a fault say so
    yield ("top-k-cut", Expected(question=Q, chunks=(P, P2, P3, P4), answer=A), oi("CHAIN", Q, A, oi_retriever(Q, P, P2, P3, P4), oi_llm(asked(P, P2), A)))
    hits = [{"text": each} for each in (P3, P2, P)]
    yield (
        "reranked-by-a-plain-span",
        Expected(question=Q, chunks=(P3, P2, P), answer=A),
        langfuse("chain", Q, A, langfuse("retriever", Q, hits), langfuse("span", {"query": Q, "docs": hits}, [{"text": P, "rerank_score": 0.9}], name="rerank"), langfuse("generation", asked(P), A)),
    )
    sql = {"db.system.name": "postgresql", "db.query.text": "SELECT id, body FROM chunks ORDER BY embedding <=> $1 LIMIT 2", "db.response.returned_rows": 2}
    yield ("pgvector", TWO, node("POST /ask", {}, node("SELECT", sql, kind=SpanKind.CLIENT), prompt_only(None, asked(P, P2), A)))
    yield ("bedrock-metadata-only", TWO, oi("CHAIN", Q, A, node("bedrock.retrieve", {"openinference.span.kind": "RETRIEVER", "input.value": Q}), oi_llm(asked(P, P2), A)))


def hosted() -> Iterator[Found]:
    """Search inside the model's call."""
    both = {f"retrieval.documents.{i}.document.content": text for i, text in enumerate((P, P2))}
    rag = oi("RETRIEVER", Q, A, name="bedrock.retrieve_and_generate")
    yield ("retrieve-and-generate", TWO, replace(rag, attributes={**rag.attributes, **both, "llm.model_name": "m"}))
    cohere = {"model": "command-a", "messages": [{"role": "user", "content": Q}], "documents": [{"data": {"text": P}}]}
    llm = oi_llm(Q, A)
    yield ("cohere-parameters", ONE, replace(llm, attributes={**llm.attributes, "input.value": dumped(cohere), "llm.invocation_parameters": dumped({"documents": cohere["documents"]})}))
    searched = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "library hours"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result", "title": "Hours", "url": "u", "encrypted_content": "EqgfCi"}]},
        {"type": "text", "text": A},
    ]
    turn = [{"role": "user", "content": Q}]
    yield ("encrypted-web-search", None, langfuse("generation", turn, {"role": "assistant", "content": searched}))
    grounding = {"groundingChunks": [{"retrievedContext": {"title": "h.md", "uri": "gs://h.md", "text": P}}]}
    candidate = {"content": {"role": "model", "parts": [{"text": A}]}, "groundingMetadata": grounding}
    contents = {"contents": [{"role": "user", "parts": [{"text": Q}]}], "tools": [{"fileSearch": {}}]}
    yield "gemini-grounding", ONE, langfuse("generation", contents, {"candidates": [candidate]})
    snake = {"grounding_chunks": [{"retrieved_context": {"title": "h.md", "text": P}}]}
    yield (
        "adk-grounding",
        ONE,
        node(
            "invocation",
            {},
            node(
                "call_llm",
                {
                    "gen_ai.system": "gcp.vertex.agent",
                    "gcp.vertex.agent.llm_request": dumped({"contents": contents["contents"]}),
                    "gcp.vertex.agent.llm_response": dumped({"content": candidate["content"], "grounding_metadata": snake}),
                },
            ),
        ),
    )
    output = [
        {"type": "file_search_call", "id": "fs", "queries": ["hours"], "results": [{"filename": "h.md", "score": 0.9, "text": P}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": A, "annotations": []}]},
    ]
    response = oi_llm(Q, A)
    yield (
        "responses-in-output-value",
        ONE,
        replace(
            response,
            attributes={**response.attributes, "input.value": dumped({"model": "m", "input": Q, "tools": [{"type": "file_search"}]}), "output.value": dumped({"id": "resp_1", "object": "response", "output": output})},
        ),
    )
    own = {"role": "assistant", "content": A, "context": {"citations": [{"content": P, "title": "h", "filepath": "h.md"}]}}
    yield "azure-on-your-data", ONE, langfuse("generation", turn, {"choices": [{"message": own}]})
    served = (
        {"type": "server_tool_call", "id": "m", "name": "mcp_search_docs", "server_tool_call": {"type": "mcp"}},
        {"type": "server_tool_call_response", "id": "m", "server_tool_call_response": {"output": dumped({"results": [{"text": P}]})}},
    )
    yield "hosted-mcp", ONE, chat([parts("user", Q)], parts("assistant", *served, A))
    cited = {"type": "search_result", "source": "h.md", "title": "Hours", "content": [{"type": "text", "text": P}]}
    yield (
        "search-result-of-a-tool",
        ONE,
        chat([parts("user", Q), parts("assistant", {"type": "tool_call", "id": "1", "name": "kb", "arguments": {"q": "hours"}}), parts("tool", {"type": "tool_call_response", "id": "1", "response": [cited]})], A),
    )


def producer() -> Iterator[Found]:
    """Producers as their current versions write."""

    def mastra(kind: str, operation: str, given: object, said: object, *below: Node) -> Node:
        values = {"input": given, "output": said}
        written = {f"mastra.{kind}.{key}": value if isinstance(value, str) else dumped(value) for key, value in values.items()}
        return node(f"{operation} desk", {"gen_ai.operation.name": operation, "mastra.span.type": kind, **written}, *below)

    step = mastra("model_step", "model_step", "", {"text": A, "toolCalls": []}, mastra("model_chunk", "model_chunk", "", {"text": A}))
    generation = chat([parts("user", Q)], A, step, attributes={"mastra.span.type": "model_generation"})
    call = tool("vectorQueryTool", {"relevantContext": [{"text": P, "id": "a"}], "sources": []}, {"queryText": "hours"})
    turn = [{"role": "user", "content": Q}]
    yield "mastra", ONE, mastra("agent_run", "invoke_agent", turn, {"text": A, "files": []}, call, generation)
    yield (
        "ag2",
        Expected(question=Q, chunks=(f"1. {P}",), answer=A),
        node(
            "conversation user",
            {"ag2.span.type": "conversation", "gen_ai.operation.name": "conversation", "gen_ai.input.messages": dumped([parts("user", Q)]), "gen_ai.output.messages": dumped([parts("user", Q), parts("assistant", A)])},
            chat([parts("user", Q)], A, tool("search_library_docs", f"1. {P}", {"query": "hours"}), chat([parts("user", Q)], A), operation="invoke_agent", attributes={"ag2.span.type": "agent"}),
        ),
    )
    dify = {"gen_ai.framework": "dify"}
    yield (
        "dify-prompt-text",
        ONE,
        node(
            "workflow",
            {**dify, "gen_ai.span.kind": "CHAIN", "gen_ai.operation.name": "WORKFLOW", "input.value": dumped({"sys.query": Q, "sys.user_id": "u-1", "sys.files": []}), "output.value": dumped({"text": A})},
            node("Knowledge Retrieval", {**dify, "gen_ai.span.kind": "RETRIEVER", "retrieval.query": Q, "retrieval.document": dumped([{"content": P, "metadata": {"document_id": "d", "score": 0.5}}])}),
            node("LLM", {**dify, "gen_ai.span.kind": "LLM", "gen_ai.prompt": asked(P), "gen_ai.completion": A}),
        ),
    )
    call = chat([parts("system", f"Answer from the context only.\n\nContext:\n{P}"), parts("user", Q)], A, operation="acompletion")
    yield ("litellm-twice", ONE, replace(call, name="Received Proxy Server Request", kind=SpanKind.SERVER, below=(node("router", {}, call),)))
    text = f"system: Answer from the context only.\n\nContext:\n{P}\nuser: {Q}"
    yield (
        "openlit-joined-roles",
        ONE,
        node("openai.chat.completions", {"gen_ai.operation.name": "chat", "gen_ai.system": "openai"}, events=(("gen_ai.content.prompt", {"gen_ai.prompt": text}), ("gen_ai.content.completion", {"gen_ai.completion": A}))),
    )
    yield (
        "langfuse-observe",
        TWO,
        langfuse(
            "span",
            {"args": [Q], "kwargs": {"user_id": "u1"}},
            A,
            langfuse("retriever", {"args": ["library hours"], "kwargs": {"k": 2}}, [P, P2]),
            langfuse("generation", {"args": [], "kwargs": {"prompt": asked(P, P2)}}, A),
        ),
    )
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": A}]}
    yield (
        "mlflow-responses-agent",
        ONE,
        node(
            "predict",
            {"mlflow.spanType": '"AGENT"', "mlflow.spanInputs": dumped({"request": {"input": turn, "custom_inputs": {"thread": "t-1"}}}), "mlflow.spanOutputs": dumped({"output": [item], "custom_outputs": None})},
            node("search", {"mlflow.spanType": '"RETRIEVER"', "mlflow.spanInputs": dumped({"query": "hours"}), "mlflow.spanOutputs": dumped([{"page_content": P, "metadata": {"doc_uri": "h.md"}, "id": "1"}])}),
        ),
    )
    yield (
        "ai-sdk-get-information",
        TWO,
        node(
            "ai.streamText",
            {"ai.operationId": "ai.streamText", "ai.prompt": dumped({"system": "Only answer from tool calls.", "messages": turn}), "ai.response.text": A, "ai.response.finishReason": "stop"},
            node(
                "ai.toolCall",
                {
                    "ai.operationId": "ai.toolCall",
                    "ai.toolCall.name": "getInformation",
                    "ai.toolCall.args": dumped({"question": "hours"}),
                    "ai.toolCall.result": dumped([{"name": P, "similarity": 0.9}, {"name": P2, "similarity": 0.8}]),
                },
            ),
        ),
    )
    names = [{"Name": "h", "Link": "https://a.example", "Value": P}, {"Name": "s", "Link": "", "Value": P2}]
    search = tool("SearchPlugin-GetTextSearchResults", names, {"query": "hours"})
    yield "sk-search-plugin", TWO, chat([parts("user", Q)], A, search, operation="invoke_agent")
    hits = {"hits": {"total": 1, "hits": [{"_id": "1", "_score": 7.3, "_source": {"text": P, "title": "h"}}]}}
    yield "hits-of-a-tool", ONE, chat([parts("user", Q)], A, tool("handbook", hits, {"q": "hours"}), operation="invoke_agent")
    listed = f"\nRetrieved documents:\n\n\n===== Document 0 =====\n{P}\n\n===== Document 1 =====\n{P2}"

    def oi_tool(name: str, result: object) -> Node:
        found = oi("TOOL", {"query": "hours"}, result, name=name)
        return replace(found, attributes={**found.attributes, "tool.name": name})

    yield (
        "smolagents",
        Expected(question=Q, chunks=(listed,), answer=A),
        oi(
            "AGENT",
            {"task": Q, "stream": False, "reset": True, "images": None, "max_steps": None},
            A,
            oi("CHAIN", {"memory_step": "1"}, None, oi_llm(Q, "Code: retriever(query='hours')"), oi_tool("retriever", listed), name="Step 1"),
            oi("CHAIN", {"memory_step": "2"}, A, oi_llm(Q, f"final_answer({A!r})"), oi_tool("final_answer", A), name="Step 2"),
            name="CodeAgent.run",
        ),
    )
    contents = dumped([{"content": P, "meta_data": {"page": 1}, "name": "hours"}])
    yield ("agno", ONE, oi("AGENT", Q, A, oi_tool("search_knowledge_base", contents), oi_llm(Q, A), name="Desk.run"))
    details = {"gen_ai.input.messages": dumped([parts("user", Q)]), "gen_ai.output.messages": dumped([{**parts("assistant", A), "finish_reason": "end_turn"}])}
    found = {"gen_ai.output.messages": dumped([parts("tool", {"type": "tool_call_response", "id": "t", "response": [{"text": P}]})])}
    event = "gen_ai.client.inference.operation.details"
    yield (
        "strands-details",
        ONE,
        node(
            "invoke_agent Desk",
            {"gen_ai.operation.name": "invoke_agent", "gen_ai.provider.name": "strands-agents"},
            node("execute_tool retrieve", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "retrieve"}, events=((event, found),)),
            events=((event, details),),
        ),
    )
    same = oi("LLM", Q, A, name="ChatOpenAI")
    yield (
        "two-instrumentations",
        ONE,
        oi(
            "CHAIN",
            Q,
            A,
            replace(oi_retriever(Q, P), below=(node("chroma.query", {"db.system": "chroma"}, events=(("db.query.result", {"db.query.result.id": "1", "db.query.result.document": P}),)),)),
            replace(same, below=(chat([parts("user", asked(P))], A),)),
        ),
    )


def negative() -> Iterator[Found]:
    """What is no RAG call."""
    yield (
        "code-review",
        None,
        prompt_only(
            "You review code.\n<rules>\n1. Only use facts from the diff.\n2. Be brief.\n</rules>", "Please review:\n```python\ndef close(day):\n    return 20 if day < 5 else 14\n```", "The function has no docstring."
        ),
    )
    order = tool("get_order_status", {"status": "shipped", "carrier": "DHL"}, {"order": 7})
    ticket = tool("create_ticket", {"ticket_id": 12}, {"text": "late"})
    yield ("order-agent", None, chat([parts("user", "Where is order 7?")], "It is on its way.", order, ticket, operation="invoke_agent"))
    situate = f"<document>\n{P} {P2} {P3}\n</document>\nThe chunk to situate within the document:\n<chunk>\n{P2}\n</chunk>\nGive a short context for search."
    upsert = node("chroma.upsert", {"db.system": "chroma", "db.operation": "upsert"})
    embed = node("embeddings m", {"gen_ai.operation.name": "embeddings"})
    yield ("contextual-ingestion", None, node("ingest", {}, prompt_only(None, situate, "From the library's opening hours."), embed, upsert))
    graph = f"-Goal-\nFind all entities and relations in the text.\n-Examples-\nText: Ann met Bo.\nOutput: (Ann|met|Bo)\n-Real Data-\nText: {P} {P3}\nOutput:"
    yield ("graph-extraction", None, oi("CHAIN", {"doc": "h.md"}, {"entities": 2}, oi_llm(graph, "(library|open|weekdays)")))
    pairs = f"Context information is below.\n---------------------\n{P}\n---------------------\nGiven the context information and no prior knowledge, write only 2 questions for a quiz."
    yield ("question-generation", None, prompt_only(None, pairs, "1. When does the library open?\n2. When does it close?"))
    data = f"[BEGIN DATA]\n[Query]: {Q}\n[Reference text]: {P}\n[Answer]: {A}\n[END DATA]\nIs the answer factual or hallucinated? One word."
    yield "phoenix-eval", None, oi_llm(data, "factual")
    rubric = f"<Output>\n{A}\n</Output>\n<Rubric>\nNames a time\n</Rubric>"
    yield ("rubric", None, prompt_only("You grade output by a rubric. Reply with JSON.", rubric, '{"pass": true, "score": 1}'))
    talk = f"Input:\nuser: {Q}\nassistant: {A}"
    yield "memory-extraction", None, prompt_only("Collect facts on the user as JSON.", talk, '{"facts": []}')
    choices = f"Some choices are given below as a list (1 to 2).\n---------------------\n(1) Opening hours and addresses\n\n(2) Loans and late fees\n---------------------\nUsing only the choices above, pick the best for: '{Q}'"
    yield "selector", None, prompt_only(None, choices, '[{"choice": 1, "reason": "hours"}]')
    invoice = "<document>\nInvoice 7 of May 2, total 12.50 euros, for the public library.\n</document>\nExtract number, date and total."
    yield ("invoice", None, prompt_only("You read invoices and write JSON.", invoice, '{"number": 7}'))
    ticket = {"number": 7, "title": "Lamp", "body": "The lamp in the hall is broken since May.", "url": "https://a.example/7", "state": "open"}
    yield "tickets-with-links", None, chat([parts("user", Q)], A, tool("issues", [ticket]), operation="invoke_agent")
    title = f"Provide a concise title of 5 words for this conversation, in its language.\n||>User:\n{Q}\n||>Response:\n{A}\n||>Title:"
    yield "title", None, node("POST /api/ask", {}, chat([parts("user", title)], "Library closing time"))
    blocked = '{"blocked": false, "categories": []}'
    yield ("guardrail", None, node("check", {}, chat([parts("system", "Classify the text by our policy.\nPolicy:\n1. No insults.\n2. No spam."), parts("user", Q)], blocked)))


def clock() -> Iterator[Found]:
    """Clocks, orphans, links, duplicates: the spans are changed by `_CHANGED`."""
    plain = oi("CHAIN", Q, A, oi_retriever(Q, P), oi_llm(asked(P), A))
    for name in ("root-missing", "each-span-twice", "reversed", "no-durations"):
        yield name, ONE, plain
    model = node("POST /generate", {}, oi_llm(asked(P), A, at=(-3597, -3596), service="llm"), at=(-3598, -3595), kind=SpanKind.SERVER, service="llm")
    client = node("POST", {}, model, at=(3, 6), kind=SpanKind.CLIENT)
    yield "model-an-hour-behind", ONE, oi("CHAIN", Q, A, oi_retriever(Q, P, at=(1, 2)), client, at=(0, 7))
    yield ("linked-prefetch", ONE, oi_retriever(Q, P, service="prefetch", at=(20, 21)), node("POST /chat", {}, oi_llm(asked(P), A, at=(2, 4)), at=(1, 5)))
    pending = {"logfire.span_type": "pending_span", "gen_ai.operation.name": "chat"}
    yield ("pending-spans", ONE, node("app", {}, retrieval(doc(P)), node("chat m", pending), chat([parts("user", asked(P))], A)))
    yield ("retrieval-after-the-answer", ONE, node("POST /chat", {}, oi_retriever(Q, P, at=(1, 2)), oi_llm(asked(P), A, at=(2, 4)), oi_retriever("related questions", P3, P4, at=(5, 6)), at=(0, 7)))


def _changed(case: Case) -> Case:
    spans = case.spans
    if case.name == "root-missing":
        spans = spans[1:]
    elif case.name == "each-span-twice":
        spans = (*spans, *spans)
    elif case.name == "reversed":
        spans = spans[::-1]
    elif case.name == "no-durations":
        spans = tuple(replace(each, start_ns=spans[0].start_ns, end_ns=spans[0].start_ns) for each in spans)
    elif case.name == "linked-prefetch":
        link = SpanLink(trace_id=spans[0].trace_id, span_id=spans[0].span_id)
        spans = (*spans[:-1], replace(spans[-1], links=(link,)))
    return replace(case, spans=spans)


def unseen() -> tuple[Case, ...]:
    """Return all cases, by area."""
    return tuple(
        _changed(
            Case(name=name, kind=f"unseen-{area.__name__}", spans=spans_of(f"{area.__name__}-{name}", *roots), expected=() if expected is None else (expected,) if isinstance(expected, Expected) else tuple(expected))
        )
        for area in (answer, many, stream, wrapped, prompt, ids, hosted, producer, negative, clock)
        for name, expected, *roots in area()
    )
