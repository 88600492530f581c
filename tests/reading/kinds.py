"""More traces of the kinds that users reported, in other shapes: names, languages, nesting, producers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ragtrace.model import AttributeValue
from ragtrace.traces.trace import Resource, Scope, Span, SpanEvent, SpanKind, StatusCode
from tests.reading.cases import PAID, UNUSED, A, Case, Expected, Q

S = 1_000_000_000
START = 1_790_000_000 * S

WHO = "Who pays return shipping?"
SHOP = "The shop pays for returns."
BUYER = "Customers pay for return shipping."
WRAP, WRAPS = "Is gift wrap free?", "Gift wrap costs 3 euros."


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A span and those below it. Times are seconds."""

    name: str
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    below: tuple[Node, ...] = ()
    events: tuple[tuple[str, Mapping[str, AttributeValue]], ...] = ()
    at: tuple[float, float] | None = None
    kind: SpanKind = SpanKind.INTERNAL
    scope: str = "app"
    service: str = "app"
    status: StatusCode = StatusCode.UNSET
    dropped: int = 0


def node(
    name: str, attributes: Mapping[str, AttributeValue] | None = None, *below: Node, **more: object
) -> Node:
    return Node(name=name, attributes=attributes or {}, below=below, **more)  # type: ignore[arg-type]


def spans_of(name: str, *roots: Node) -> tuple[Span, ...]:
    """Lay out spans one after the other."""
    trace_id = hashlib.sha256(name.encode()).hexdigest()[:32]
    clock = iter(range(1, 100_000))
    found: list[Span] = []

    def add(each: Node, parent: str | None) -> None:
        number = next(clock)
        start = number * S
        span_id = f"{number:016x}"
        place = len(found)
        found.append(None)  # type: ignore[arg-type]
        for child in each.below:
            add(child, span_id)
        end = next(clock) * S
        if each.at is not None:
            start, end = (int(second * S) for second in each.at)
        found[place] = Span(
            trace_id=trace_id,
            span_id=span_id,
            parent_span_id=parent,
            name=each.name,
            kind=each.kind,
            start_ns=START + start,
            end_ns=START + end,
            attributes=each.attributes,
            events=tuple(
                SpanEvent(name=event, time_ns=START + end, attributes=fields) for event, fields in each.events
            ),
            status_code=each.status,
            dropped_attributes_count=each.dropped,
            resource=Resource(attributes={"service.name": each.service}),
            scope=Scope(name=each.scope),
        )

    for root in roots:
        add(root, None)
    return tuple(found)


# -- how producers write


def dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def oi(
    kind: str, given: object = None, said: object = None, *below: Node, name: str = "", **more: object
) -> Node:
    """Return a span of OpenInference."""
    attributes: dict[str, AttributeValue] = {"openinference.span.kind": kind}
    for key, value in (("input", given), ("output", said)):
        if value is not None:
            attributes[f"{key}.value"] = value if isinstance(value, str) else dumped(value)
            attributes[f"{key}.mime_type"] = "text/plain" if isinstance(value, str) else "application/json"
    return node(name or kind.lower(), attributes, *below, **more)


def langfuse(kind: str, given: object, said: object, *below: Node, name: str = "", **more: object) -> Node:
    """Return an observation of Langfuse's SDK."""
    values = {"type": kind, "input": given, "output": said}
    attributes = {
        f"langfuse.observation.{key}": value if isinstance(value, str) else dumped(value)
        for key, value in values.items()
        if value is not None
    }
    return node(name or kind, attributes, *below, **more)


def mlflow(kind: str, given: object, said: object, *below: Node, name: str) -> Node:
    values = {"Type": kind, "Inputs": given, "Outputs": said}
    return node(name, {f"mlflow.span{key}": dumped(value) for key, value in values.items()}, *below)


def oi_retriever(query: str, *texts: str, **more: object) -> Node:
    found = oi("RETRIEVER", query, None, **more)
    listed = {f"retrieval.documents.{i}.document.content": text for i, text in enumerate(texts)}
    return replace(found, attributes={**found.attributes, **listed})


def oi_llm(prompt: str | Sequence[tuple[str, str]], said: str, **more: object) -> Node:
    turns = [("user", prompt)] if isinstance(prompt, str) else prompt
    attributes: dict[str, AttributeValue] = {"openinference.span.kind": "LLM", "llm.model_name": "m"}
    for i, (role, text) in enumerate(turns):
        attributes[f"llm.input_messages.{i}.message.role"] = role
        attributes[f"llm.input_messages.{i}.message.content"] = text
    attributes["llm.output_messages.0.message.role"] = "assistant"
    attributes["llm.output_messages.0.message.content"] = said
    return node("llm", attributes, **more)


def parts(role: str, *texts: object) -> dict[str, object]:
    return {
        "role": role,
        "parts": [{"type": "text", "content": each} if isinstance(each, str) else each for each in texts],
    }


def chat(
    messages: Sequence[object], said: object, *below: Node, operation: str = "chat", **more: object
) -> Node:
    """Return a span of OpenTelemetry's GenAI conventions."""
    extra = more.pop("attributes", {})
    assert isinstance(extra, Mapping)
    output = [said if isinstance(said, Mapping) else parts("assistant", said)] if said is not None else None
    attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.request.model": "m",
        "gen_ai.input.messages": dumped(messages),
        **({"gen_ai.output.messages": dumped(output)} if output else {}),
        **extra,
    }
    return node(f"{operation} m", attributes, *below, **more)


def prompt_only(system: str | None, user: str, said: str = A) -> Node:
    """Return a lone model call."""
    return chat([*([parts("system", system)] if system else []), parts("user", user)], said)


def tool(name: str, result: object, arguments: object = None, **more: object) -> Node:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.result": result if isinstance(result, str) else dumped(result),
        **({"gen_ai.tool.call.arguments": dumped(arguments)} if arguments else {}),
    }
    return node(f"execute_tool {name}", attributes, **more)


CONTEXT = f"Context:\n{PAID}\n\nAnswer the question from the context: {Q}"
BOTH = (PAID, UNUSED)


Found: TypeAlias = tuple[str, Expected | Sequence[Expected] | None, *tuple[Node, ...]]
"""A case's name, what a person finds in it, and its spans."""


def cases_of(kind: str, found: Iterable[Found]) -> Iterator[Case]:
    """Make the cases of a kind."""
    for name, expected, *roots in found:
        wanted = () if expected is None else (expected,) if isinstance(expected, Expected) else expected
        yield Case(name=name, kind=kind, spans=spans_of(name, *roots), expected=tuple(wanted))


ONE = Expected()
TWO = Expected(chunks=BOTH)
SECOND = Expected(question=WHO, chunks=(BUYER,), answer=SHOP)
THIRD = Expected(question=WRAP, chunks=(WRAPS,), answer=WRAPS)


def answers() -> Iterator[Found]:
    """What left the application is under any key, and helpers follow the answer."""
    steps = (oi_retriever(Q, PAID), oi_llm(f"{PAID}\n\n{Q}", A))
    grade = oi_llm(f"Facts: {PAID}\nAnswer: {A}\nIs it grounded?", "yes")
    for key in ("final", "reply_text", "agentOutcome", "llm_out", "respuesta", "bot_msg"):
        state = {"question": Q, "documents": [PAID], key: A, "steps": 4}
        yield (f"state-{key}", ONE, oi("CHAIN", {"question": Q}, state, *steps, grade))
    nested = {"state": {"turn": {"question": Q, "draft": {"value": A}}}, "ok": True}
    yield ("state-nested", ONE, oi("CHAIN", {"question": Q}, nested, *steps, grade))
    listed = [{"type": "human", "content": Q}, {"type": "ai", "content": A}]
    follow = oi_llm(f"The user asked: {Q}\nWe said: {A}\nSuggest three questions.", '["How?", "When?"]')
    yield (
        "state-history",
        ONE,
        oi("CHAIN", {"text": Q, "user_id": "u1"}, {"history": listed}, *steps, follow),
    )
    yield ("status-only", ONE, oi("CHAIN", Q, "ok", *steps, grade))
    for name, prompt, said in (
        ("title", f"USER: {Q}\nASSISTANT: {A}\nWrite a title.", "Refund times"),
        ("tags", f"<chat>{Q} {A}</chat> Give tags.", '{"tags": ["refund"]}'),
        ("memory", f"Previous summary: none. New lines: {Q} {A}", "The user asked how long refunds take."),
        ("moderation", f'Classify: "{A}"', "safe"),
        ("french", f"Résume l'échange. Question : {Q} Réponse : {A}", "Le client demande un délai."),
    ):
        for producer in ("openinference", "otel"):
            helper = (
                oi_llm(prompt, said) if producer == "openinference" else chat([parts("user", prompt)], said)
            )
            main = (
                steps
                if producer == "openinference"
                else (
                    node(
                        "retrieval",
                        {
                            "gen_ai.operation.name": "retrieval",
                            "gen_ai.retrieval.query.text": Q,
                            "gen_ai.retrieval.documents": dumped(
                                [{"id": "a", "score": 0.5, "content": PAID}]
                            ),
                        },
                    ),
                    chat([parts("system", PAID), parts("user", Q)], A),
                )
            )
            yield (f"helper-{name}-{producer}", ONE, node("POST /chat", {}, *main, helper))
    grading = node("check", {"langfuse.observation.type": "guardrail"}, oi_llm(f"Block? {A}", "No"))
    yield ("langfuse-guardrail", ONE, node("root", {}, *steps, grading))
    rewrite = oi_llm(f"Rewrite for search: {Q}", "refund duration")
    yield ("rewrite-first", ONE, node("root", {}, rewrite, oi_retriever("refund duration", PAID), steps[1]))
    hyde = oi_retriever(Q, PAID)
    inner = oi_llm(f"Extract what matters to {Q}: {PAID}", PAID)
    yield ("compressor", ONE, node("root", {}, replace(hyde, below=(inner,)), oi_llm(f"{PAID}\n\n{Q}", A)))
    half = oi_llm(f"{PAID}\n{Q}", "Refunds take some time.")
    refine = oi_llm(f"Existing answer: Refunds take some time. More context: {UNUSED}. Question: {Q}", A)
    yield ("refine", TWO, node("root", {}, oi_retriever(Q, PAID, UNUSED), half, refine))
    found = mlflow("RETRIEVER", {"query": "refund"}, [{"page_content": PAID, "metadata": {}}], name="r")

    def model(prompt: str, said: str) -> Node:
        messages = {"messages": [{"role": "user", "content": prompt}]}
        choices = {"choices": [{"message": {"role": "assistant", "content": said}}]}
        return mlflow("CHAT_MODEL", messages, choices, name="model")

    state = {"context": [PAID], "generation": A, "grade": "yes"}
    calls = (found, model(f"{PAID}\n{Q}", A), model(f"{PAID}\n{A}\nGrounded?", "yes"))
    yield "mlflow-state", ONE, mlflow("CHAIN", {"msg": Q}, state, *calls, name="app")


def many() -> Iterator[Found]:
    """Many calls below one root, and one call of many retrievals."""

    def turn(question: str, text: str, answer: str, kind: str = "CHAIN") -> Node:
        return oi(
            kind, question, answer, oi_retriever(question, text), oi_llm(f"{text}\n\n{question}", answer)
        )

    turns = (turn(Q, PAID, A), turn(WHO, BUYER, SHOP), turn(WRAP, WRAPS, WRAPS))
    three = (ONE, SECOND, THIRD)
    yield ("batch-results", three, oi("CHAIN", {"n": 3}, {"results": [A, SHOP, WRAPS]}, *turns))
    yield ("session-first-last", (ONE, SECOND), oi("AGENT", Q, SHOP, *turns[:2]))
    yield ("http-batch", three, node("POST /batch", {}, *turns, kind=SpanKind.SERVER))
    yield ("loop-in-loop", three, oi("CHAIN", "run", None, oi("CHAIN", "rows", None, *turns)))
    yield ("one-turn", ONE, oi("AGENT", "voice session", None, turns[0]))
    flat = [each for one in turns for each in one.below]
    yield ("flat", three, node("script", {}, *flat))
    plain = tuple(node(f"row {i}", {}, *each.below) for i, each in enumerate(turns))
    yield ("plain-rows", three, node("script", {}, *plain))
    yield (
        "otel-agents",
        (ONE, SECOND),
        node(
            "conversation",
            {
                "gen_ai.operation.name": "invoke_workflow",
                "gen_ai.input.messages": dumped([parts("user", "hello")]),
            },
            *(
                chat([parts("user", q)], a, tool("search_docs", [t]), operation="invoke_agent")
                for q, t, a in ((Q, PAID, A), (WHO, BUYER, SHOP))
            ),
        ),
    )
    sessions = (
        langfuse(
            "span",
            {"question": q},
            {"answer": a},
            langfuse("retriever", q, [{"text": text}], name="find"),
            name="turn",
        )
        for q, text, a in ((Q, PAID, A), (WHO, BUYER, SHOP))
    )
    yield "langfuse-turns", (ONE, SECOND), node("session", {}, *sessions)
    # one answer
    sub = (turn("How long?", PAID, "14 days."), turn("In what state?", UNUSED, "Unused."))
    final = oi_llm(f"Question: {Q}\n14 days.\nUnused.", A)
    yield ("sub-questions", TWO, oi("CHAIN", Q, A, *sub, final))
    agent = oi(
        "AGENT", Q, A, oi_retriever("refund", PAID), oi_retriever("state of goods", UNUSED), oi_llm(Q, A)
    )
    yield ("two-retrievals", TWO, agent)
    supervisor = oi("AGENT", Q, A, turn(Q, PAID, A, "AGENT"), oi_llm(f"{Q}", A))
    yield ("supervisor", ONE, supervisor)
    hop = (
        oi_retriever(Q, PAID),
        oi_llm(f"{PAID} Question: {Q} What is missing?", "state of goods"),
        oi_retriever("state of goods", UNUSED),
        oi_llm(f"{PAID} {UNUSED} Question: {Q}", A),
    )
    yield ("two-hops", TWO, node("root", {}, *hop))


PROMPTS: Mapping[str, tuple[str | None, str]] = {
    "german-headings": (
        "Beantworte die Frage nur mit dem Kontext.",
        f"Kontext:\n{PAID}\n\n{UNUSED}\n\nFrage: {Q}\nAntwort:",
    ),
    "german-numbered": (
        "Du beantwortest Fragen anhand der folgenden Dokumente.",
        f"Dokument 1: {PAID}\nDokument 2: {UNUSED}\n\nFrage: {Q}",
    ),
    "german-fences": (f"Antworte nur aus diesen Quellen.\n```\n{PAID}\n```\n```\n{UNUSED}\n```", Q),
    "french": (
        (
            "Réponds à la question en utilisant uniquement le contexte suivant.\n\n"
            f"Contexte :\n{PAID}\n\n{UNUSED}\n\nSi tu ne sais pas, dis-le."
        ),
        Q,
    ),
    "french-tags": (None, f"Réponds d'après ces extraits.\n<extraits>\n{PAID}\n{UNUSED}\n</extraits>\n\n{Q}"),
    "spanish": (
        "Responde usando solo el contexto.",
        f"Contexto:\n---\n{PAID}\n---\n{UNUSED}\n---\nPregunta: {Q}\nRespuesta:",
    ),
    "portuguese": (
        None,
        f"Use os trechos abaixo para responder à pergunta.\n\nTrecho 1: {PAID}\nTrecho 2: {UNUSED}"
        f"\n\nPergunta: {Q}",
    ),
    "japanese": (
        "以下の参考情報だけを使って質問に答えてください。",
        f"【参考情報】\n[1] {PAID}\n[2] {UNUSED}\n\n【質問】\n{Q}",
    ),
    "japanese-colon": (
        None,
        f"次の文脈をもとに回答してください。\n\n文脈:\n{PAID}\n{UNUSED}\n\n質問: {Q}\n回答:",
    ),
    "chinese": (f"请根据已知信息回答问题。\n\n已知信息:\n{PAID}\n{UNUSED}", Q),
    "chinese-tags": (
        None,
        "使用 <Data></Data> 标记中的内容作为你的知识回答问题:\n\n"
        f'<Data>\n{PAID}\n\n{UNUSED}\n</Data>\n\n问题:"{Q}"',
    ),
    "chinese-numbered": ("你是客服。请依据以下资料回答用户。\n资料1: " + PAID + "\n资料2: " + UNUSED, Q),
    "ragflow": (
        (
            "You are an intelligent assistant. Please summarize the content of the knowledge base to answer the "
            "question. Please list the data in the knowledge base and answer in detail.\n"
            f"Here is the knowledge base:\n{PAID}\n\n{UNUSED}\nThe above is the knowledge base."
        ),
        Q,
    ),
    "semantic-kernel": (
        None,
        f"{PAID}\n-----------------\n{UNUSED}\n-----------------\n\n{Q}\n\nInclude citations to the relevant information where it is referenced in the response.",
    ),
    "developer": (None, ""),
    "second-system": (None, ""),
    "json-lines": (
        "Answer only from the documents.\n"
        + dumped({"id": 1, "text": PAID})
        + "\n"
        + dumped({"id": 2, "text": UNUSED}),
        Q,
    ),
    "python-documents": (
        (
            "Answer the question from the context: "
            f"[Document(metadata={{'source': 'a'}}, page_content={PAID!r}), Document(metadata={{}}, page_content={UNUSED!r})]"
        ),
        Q,
    ),
    "equals": (f"Use the context below to answer.\n==========\n{PAID}\n==========\n{UNUSED}\n==========", Q),
    "stuff": (
        (
            "Use the following context to answer the user's question. If unsure, say so.\n"
            f"----------------\n{PAID}\n\n{UNUSED}"
        ),
        Q,
    ),
    "llamaindex-chat": (
        (
            "The following is a friendly conversation. Here are the relevant documents for the context:\n\n"
            f"{PAID}\n\n{UNUSED}\n\nInstruction: Based on the above documents, answer the user question below."
        ),
        Q,
    ),
}


def prompts() -> Iterator[Found]:
    """Passages in prompts of other shapes and languages."""
    for name, (system, user) in PROMPTS.items():
        if user:
            yield (name, TWO, prompt_only(system, user))
    answer = "Answer from the context only."
    held = f"Context:\n{PAID}\n\n{UNUSED}"
    yield ("developer", TWO, chat([parts("developer", f"{answer}\n\n{held}"), parts("user", Q)], A))
    yield ("second-system", TWO, chat([parts("system", answer), parts("system", held), parts("user", Q)], A))
    ids = {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.retrieval.query.text": Q,
        "gen_ai.retrieval.documents": dumped([{"id": "a", "score": 0.5}, {"id": "b", "score": 0.25}]),
    }
    named = Expected(chunks=BOTH, ids=("a", "b"))
    for name, prompt in (
        ("ids-numbered", f"Answer from these passages.\n[1] {PAID}\n[2] {UNUSED}"),
        (
            "ids-json",
            "Use these documents: " + dumped([{"id": "b", "text": UNUSED}, {"id": "a", "text": PAID}]),
        ),
        ("ids-paragraphs", f"Be polite.\n\nWhat we know:\n\n{PAID}\n\n{UNUSED}"),
    ):
        wanted = replace(named, chunks=(UNUSED, PAID), ids=("b", "a")) if name == "ids-json" else named
        yield (
            name,
            wanted,
            node("app", {}, node("retrieval", ids), chat([parts("system", prompt), parts("user", Q)], A)),
        )
    hidden = node("Qdrant.search", {"db.system": "qdrant", "db.operation": "search"})
    yield (
        "no-results",
        ONE,
        node(
            "app",
            {},
            hidden,
            chat([parts("system", f"Answer from the context.\nContext: {PAID}"), parts("user", Q)], A),
        ),
    )


def hosted() -> Iterator[Found]:
    """Retrieval inside the model's call."""
    asked = [parts("user", Q)]
    searched = {"type": "file_search_call", "id": "f", "results": [{"text": PAID, "file_id": "a"}]}
    response = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": dumped(asked),
        "gen_ai.output.messages": dumped([searched, parts("assistant", A)]),
    }
    yield "responses-items", ONE, node("response", response)
    pages = {"content": [{"title": "p", "url": "u", "content": PAID}]}
    web = {"type": "server_tool_call_response", "id": "w", "response": pages}
    yield "web-search", ONE, chat(asked, parts("assistant", web, A))
    text = [{"type": "text", "text": PAID}]
    result = {"type": "search_result", "source": "s", "title": "t", "content": text}
    yield "search-result", ONE, chat([parts("user", result, Q)], A)
    document = {"type": "document", "source": {"type": "text", "data": PAID}, "title": "Policy"}
    content = [{"role": "user", "content": [document, {"type": "text", "text": Q}]}]
    said = {"role": "assistant", "content": A}
    yield "langfuse-documents", ONE, langfuse("generation", content, said, name="gen")
    cohere = {
        "llm.request.type": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": Q,
        "gen_ai.prompt.0.documents.0.text": PAID,
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": A,
    }
    yield "cohere-request", ONE, node("cohere.chat", cohere)


def clocks() -> Iterator[Found]:
    """Clocks of services that differ."""
    for name, shift in (("ahead", 40), ("behind", -40), ("seconds", 3)):
        server = node(
            "search",
            {},
            oi_retriever(Q, PAID, at=(2.2 + shift, 2.6 + shift), service="search"),
            at=(2.1 + shift, 2.8 + shift),
            kind=SpanKind.SERVER,
            service="search",
        )
        client = node("POST", {}, server, at=(2, 3), kind=SpanKind.CLIENT)
        yield (name, ONE, oi("CHAIN", Q, A, client, oi_llm(f"{Q}", A, at=(3.5, 4.5)), at=(1, 5)))
    other = oi_retriever(Q, PAID, at=(90, 91), service="search")
    yield ("no-server", ONE, oi("CHAIN", Q, A, other, oi_llm(Q, A, at=(3.5, 4.5)), at=(1, 5)))


def wrapped() -> Iterator[Found]:
    """Answers in envelopes."""
    for name, said in (
        ("response", dumped({"response": A, "citations": [1, 2]})),
        ("camel", dumped({"finalAnswer": A, "confidenceScore": 0.5, "sourceIds": ["a"]})),
        ("other-key", dumped({"antwort": A, "quellen": ["a.pdf"], "sicherheit": 0.9})),
        ("fenced", f"```json\n{dumped({'answer': A, 'sources': []})}\n```"),
        ("nested", dumped({"answer": {"text": A, "lang": "en"}, "sources": [{"id": 1}]})),
        ("thinking", f"<thinking>Maybe 14 days.</thinking>\n{A}"),
        ("half-think", f"Perhaps 14.\n</think>\n\n{A}"),
        ("reasoning", f"<reasoning>It says 14 days.</reasoning>\n\n{A}"),
        ("dspy", f"[[ ## rationale ## ]]\nSo it says.\n\n[[ ## answer ## ]]\n{A}\n\n[[ ## completed ## ]]"),
        ("answer-tags", f"<scratchpad>hm</scratchpad>\n<answer>\n{A}\n</answer>"),
    ):
        yield (name, ONE, prompt_only(f"Answer from the context only.\n\nContext:\n{PAID}", Q, said))
    thought = parts("assistant", {"type": "reasoning", "content": "It is 14."}, A)
    yield (
        "reasoning-part",
        ONE,
        chat(
            [parts("system", f"Answer from the context only.\n\nContext:\n{PAID}"), parts("user", Q)], thought
        ),
    )


def streams() -> Iterator[Found]:
    """Answers that are a part of what the user would have got, and streams that were recorded as they came."""
    yield from _recorded_streams()
    system = parts("system", f"Answer from the context only.\n\nContext:\n{PAID}")
    left = Expected(incomplete="reader")
    failed = Expected(incomplete="error")
    dropped = Expected(incomplete="dropped")
    error = StatusCode.ERROR
    cancelled = (
        ("exception", {"exception.type": "asyncio.exceptions.CancelledError", "exception.message": ""}),
    )
    broken = (("exception", {"exception.type": "openai.APIConnectionError", "exception.message": "reset"}),)
    found, part = oi_retriever(Q, PAID), oi_llm(Q, "Refunds")
    yield "cancelled-root", left, oi("CHAIN", Q, "Refunds", found, part, events=cancelled, status=error)
    below = oi_llm(Q, "Refunds", events=cancelled)
    yield "cancelled-below", left, oi("CHAIN", Q, "Refunds", found, below)
    closed = chat(
        [system, parts("user", Q)],
        "Refunds ta",
        events=(("exception", {"exception.type": "GeneratorExit"}),),
        status=error,
        attributes={"gen_ai.request.stream": True},
    )
    yield "generator-exit", left, closed
    yield "failed", failed, oi("CHAIN", Q, "Refunds", found, part, events=broken, status=error)
    model = oi_llm(Q, "Refunds ta", events=broken, status=error)
    yield "failed-model", failed, oi("CHAIN", Q, "Refunds ta", found, model)
    for kind in (
        *("aiohttp.ServerDisconnectedError", "http.client.RemoteDisconnected"),
        "ConnectionAbortedError",
    ):
        model = oi_llm(Q, "Refunds ta", events=(("exception", {"exception.type": kind}),), status=error)
        yield f"server-{kind}", failed, oi("CHAIN", Q, None, found, model)
    whole = oi("CHAIN", Q, A, found, oi_llm(Q, A))
    later = node("send mail", events=broken, status=error)
    served = node("POST /ask", {}, whole, later, events=broken, status=error)
    yield "whole-before-another-error", ONE, served
    yield "null", None, oi("CHAIN", Q, "null", found)
    first = oi_llm(Q, "Refu", events=broken, status=error)
    yield "retried", ONE, oi("CHAIN", Q, A, found, first, oi_llm(Q, A))
    yield "dropped", dropped, oi("CHAIN", Q, None, found, dropped=12)


def negatives() -> Iterator[Found]:
    """What is no RAG call."""
    hello = "Hello! How can I help you?"
    rules = "You are a helpful assistant.\n\nRules:\n1. Be brief and polite to everyone.\n2. Never invent any facts."
    yield ("otel-chat", None, prompt_only(rules, "Tell me a joke.", hello))
    yield ("oi-chat", None, oi("CHAIN", "Hi", hello, oi_llm("Hi", hello)))
    german = "Du bist ein freundlicher Assistent.\n\nRegeln:\n- Sei kurz.\n- Beantworte jede Frage höflich."
    yield ("german-chat", None, prompt_only(german, "Wie geht es dir?", "Gut, danke."))
    yield ("chinese-chat", None, prompt_only("你是一个有用的助手。请用中文回答问题。", "你好吗?", "我很好。"))
    hi = [{"role": "user", "content": "Hi"}]
    yield "langfuse-chat", None, langfuse("generation", hi, hello, name="g")
    yield "mlflow-chat", None, mlflow("CHAT_MODEL", {"messages": hi}, {"content": hello}, name="g")
    vercel = {
        "ai.operationId": "ai.generateText",
        "ai.prompt": dumped({"prompt": "Hi"}),
        "ai.response.text": hello,
    }
    yield "vercel-chat", None, node("ai.generateText", vercel)
    traceloop = {
        "llm.request.type": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "Hi",
        "gen_ai.completion.0.content": hello,
    }
    yield "traceloop-chat", None, node("openai.chat", traceloop)
    flow = {"genkit:metadata:subtype": "flow", "genkit:input": '"Hi"', "genkit:output": dumped(hello)}
    yield "genkit-flow", None, node("flow", flow)
    weather = tool("get_weather", {"temperature": 20, "text": "sunny"}, {"city": "Bonn"})
    agent = chat([parts("user", "Weather?")], "It is sunny.", weather, operation="invoke_agent")
    yield "otel-agent", None, agent
    adds = {"openinference.span.kind": "TOOL", "tool.name": "calculator", "output.value": "3"}
    steps = (node("tool", adds), oi_llm("Add", "It is 3."))
    yield "oi-agent", None, oi("AGENT", "Add 1 and 2", "It is 3.", *steps)
    mail = node(
        "execute_tool send_mail",
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "send_mail"},
        events=(("gen_ai.choice", {"message": '[{"text": "sent"}]'}),),
    )
    talk = (
        ("gen_ai.user.message", {"content": '[{"text": "Send it"}]'}),
        ("gen_ai.choice", {"message": "Done, it is sent."}),
    )
    strands = node("invoke_agent x", {"gen_ai.operation.name": "invoke_agent"}, mail, events=talk)
    yield "strands-agent", None, strands
    titled = f"Generate a title for this chat.\nUSER: {Q}\nASSISTANT: {A}"
    yield "title", None, prompt_only(None, titled, "Refunds")
    before = [parts("user", CONTEXT), parts("assistant", A)]
    german = parts("user", "Gib diesem Gespräch einen Titel.")
    yield "title-german", None, chat([*before, german], "Dauer der Erstattung")
    tags = parts("user", "List three tags for the conversation as JSON.")
    yield "tags", None, chat([*before, tags], '{"tags": ["refund"]}')
    yield "guardrail", None, oi("GUARDRAIL", A, "pass", oi_llm(f"Is this safe? {A}", "yes"))
    checks = "You check messages against our policy."
    yield "guardrail-alone", None, prompt_only(checks, f'Message: "{A}"', "allowed")
    yield "rewrite", None, prompt_only("Rewrite the question for search.", Q, "refund duration")
    yield (
        "translate",
        None,
        prompt_only("Translate the text to German.", PAID, "Erstattungen dauern 14 Tage."),
    )
    tagged = f"Übersetze ins Englische:\n<text>\n{PAID}\n</text>"
    yield "translate-tags", None, prompt_only(None, tagged, PAID)
    yield "summarize", None, prompt_only("Summarize the text.", f"{PAID}\n\n{UNUSED}", "Refunds are paid.")
    yield "extract-json", None, prompt_only("Extract the fields as JSON.", PAID, '{"days": 14}')
    split = {
        "traceloop.span.kind": "workflow",
        "traceloop.entity.name": "SentenceSplitter.workflow",
        "traceloop.entity.input": dumped({"text": PAID}),
        "traceloop.entity.output": dumped({"nodes": [PAID]}),
    }
    yield "ingestion-traceloop", None, node("SentenceSplitter.workflow", split)
    embedding = oi("EMBEDDING", PAID, None)
    yield "ingestion-oi", None, oi("CHAIN", {"files": ["a.md"]}, {"stored": 12}, embedding, name="ingest")
    chunks = {"chunks": [{"text": PAID}]}
    yield "ingestion-splitter", None, oi("CHAIN", PAID, chunks, name="RecursiveCharacterTextSplitter")
    summary = oi_llm(f"Summarize this document: {PAID}", "Refunds take 14 days, says the policy.")
    yield "ingestion-enriched", None, oi("CHAIN", {"doc": PAID}, {"summary": "Refunds."}, summary)
    row = {"input": Q, "actual_output": A, "retrieval_context": [PAID]}
    grading = f"Given the claims and the context, give verdicts.\nClaims: {A}\nContext: {PAID}"
    judge = oi_llm(grading, '{"verdicts": [{"verdict": "no"}]}')
    yield "deepeval", None, oi("CHAIN", row, {"score": 0.0}, judge, name="Faithfulness")
    yield "evaluator-langfuse", None, langfuse("evaluator", row, "0.5", judge, name="e")
    data = {"data": {"userInput": Q, "response": A, "retrievedContexts": [PAID]}}
    yield "ragas-camel", None, oi("CHAIN", data, {"output": 1.0}, judge)
    asked = f"Context: {PAID}\nQuestion: {Q}\nAnswer: {A}\nIs the answer supported? Reply with JSON."
    yield "judge-alone", None, prompt_only("You judge answers.", asked, '{"supported": false}')
    trulens = {"ai.observability.span_type": "eval_root", "ai.observability.call.return": "1.0"}
    yield "trulens-eval", None, node("eval", trulens, judge)


def held() -> tuple[Case, ...]:
    """Return all cases, by kind."""
    from tests.reading.producers import producers

    kinds = {
        "answer": answers(),
        "many": many(),
        "prompt": prompts(),
        "hosted": hosted(),
        "clock": clocks(),
        "wrapped": wrapped(),
        "stream": streams(),
        "producer": producers(),
        "negative": negatives(),
    }
    return tuple(case for kind, found in kinds.items() for case in cases_of(kind, found))


def _recorded_streams() -> Iterator[Found]:
    """The events of a model's stream, as lists, lines of JSON and server-sent events; whole, and without an end."""
    pieces = [each + " " for each in A.split(" ")[:-1]] + [A.split(" ")[-1]]
    openai = [
        {"choices": [{"index": 0, "delta": {"content": each}, "finish_reason": None}]} for each in pieces
    ]
    openai.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    anthropic: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"role": "assistant", "content": []}}
    ]
    anthropic += [
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": each}} for each in pieces
    ]
    anthropic += [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
    responses = [{"type": "response.output_text.delta", "delta": each} for each in pieces]
    responses += [{"type": "response.completed", "response": {"id": "r"}}]
    ollama = [{"message": {"role": "assistant", "content": each}, "done": False} for each in pieces]
    ollama += [{"message": {"role": "assistant", "content": ""}, "done": True}]
    gemini = [
        {"candidates": [{"content": {"parts": [{"text": each}]}, "finishReason": None}]} for each in pieces
    ]
    gemini[-1]["candidates"][0]["finishReason"] = "STOP"
    bedrock = [{"contentBlockDelta": {"delta": {"text": each}}} for each in pieces]
    bedrock += [{"messageStop": {"stopReason": "end_turn"}}]
    vercel = [*({"type": "text-delta", "id": "1", "delta": each} for each in pieces), {"type": "finish"}]
    cohere = [{"type": "content-delta", "delta": {"message": {"content": {"text": each}}}} for each in pieces]
    cohere += [{"type": "message-end", "delta": {"finish_reason": "COMPLETE"}}]
    langchain = [{"type": "AIMessageChunk", "content": each} for each in pieces]
    own = [{"token": each} for each in pieces]
    cut = Expected(incomplete="breaks off before its end")
    for name, events, ends in (
        ("openai", openai, True),
        ("anthropic", anthropic, True),
        ("responses", responses, True),
        ("ollama", ollama, True),
        ("gemini", gemini, True),
        ("bedrock", bedrock, True),
        ("vercel", vercel, True),
        ("cohere", cohere, True),
        ("langchain", langchain, False),
    ):
        yield _streamed(f"list-{name}", dumped(events), ONE)
        if ends:
            yield _streamed(f"half-{name}", dumped(events[:3]), cut)
    yield _streamed("lines", "\n".join(map(json.dumps, ollama)), ONE)
    yield _streamed("sse", _sse(openai) + "data: [DONE]\n\n", ONE)
    yield _streamed("sse-half", _sse(openai[:3]), cut)
    yield _streamed("sse-named", "".join(f"event: {e['type']}\n{_sse([e])}" for e in anthropic), ONE)
    yield _streamed("sse-own", _sse(own), ONE)
    yield _streamed("sse-text", "".join(f"data: {each}\n\n" for each in pieces), ONE)
    yield _streamed("tokens", dumped(pieces), ONE)


def _sse(events: Sequence[object]) -> str:
    return "".join(f"data: {json.dumps(each)}\n\n" for each in events)


def _streamed(name: str, output: str, expected: Expected) -> Found:
    model = {"openinference.span.kind": "LLM", "input.value": Q, "output.value": output}
    return name, expected, oi("CHAIN", Q, None, oi_retriever(Q, PAID), node("llm", model))
