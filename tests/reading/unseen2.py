"""A second round without a look at the reader: passages of several lines, more languages, more producers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ragtrace.traces.trace import SpanKind, SpanLink, StatusCode
from tests.reading.cases import Case, Expected
from tests.reading.kinds import (
    Node,
    chat,
    dumped,
    node,
    oi,
    oi_llm,
    oi_retriever,
    parts,
    prompt_only,
    spans_of,
    tool,
)
from tests.reading.unseen import Found, doc, langfuse, retrieval

# A table: a case is read more easily in few lines.
# fmt: off
Q = "Can I take my bike on the night ferry?"
A = "Yes, bikes travel free on the night ferry, but you have to book a space by noon."
P = "## Bicycles\n\nBicycles travel free of charge on all ferries.\n\n- Day ferries: no booking needed.\n- Night ferry: book a space by noon of the day of travel."
P2 = "Mopeds and motorbikes count as vehicles. Their fare depends on the length:\n\n| Length | Fare |\n|---|---|\n| up to 2 m | 18 EUR |\n| longer | 25 EUR |"
P3 = "Dogs must be on a lead on board. In the restaurant only guide dogs are allowed.\nCats stay in their carrier."
Q2, A2 = "Are dogs allowed in the restaurant?", "Only guide dogs are allowed in the restaurant."
Q3, A3 = "What does a motorbike cost?", "18 euros up to two metres, 25 euros if it is longer."
HELLO = "Hello! What can I do for you?"

ONE = Expected(question=Q, chunks=(P,), answer=A)
TWO = Expected(question=Q, chunks=(P, P2), answer=A)
NOT_YET = frozenset(
    ["kotaemon", "quoted-mail", "context-then-understood", "graphrag-tables", "triple-quotes"]
)
"""The cases that are read otherwise than a person reads them."""

DOGS = Expected(question=Q2, chunks=(P3,), answer=A2)
MOTOR = Expected(question=Q3, chunks=(P2,), answer=A3)


def asked(*texts: str, question: str = Q) -> str:
    """Return a prompt in a form that is read for sure."""
    return "Answer from the context only.\n\nContext:\n" + "\n\n".join(texts) + f"\n\nQuestion: {question}"


def rag(*texts: str, question: str = Q, said: object = A) -> Node:
    """Return a generation that is read for sure."""
    shown = "".join(f"<document>\n{each}\n</document>\n" for each in texts)
    return chat([parts("system", f"Answer only from the documents.\n<documents>\n{shown}</documents>"), parts("user", question)], said)


def answer() -> Iterator[Found]:
    """Tell which of several generations is the answer."""
    framed = f"Hello Kim,\n\n{A}\n\nKind regards\nYour ferry team"
    yield "letter-around-the-answer", Expected(question=Q, chunks=(P,), answer=framed), oi("CHAIN", {"customer": "Kim", "text": Q}, framed, oi_retriever(Q, P), oi_llm(asked(P), A))
    plain = "You can bring your bike for free. Book before 12 o'clock."
    steps = (oi_retriever(Q, P), oi_llm(asked(P), A), oi_llm(f"Rewrite in plain language:\n\n{A}", plain))
    yield "plain-language", Expected(question=Q, chunks=(P,), answer=plain), oi("AGENT", Q, plain, *steps)
    judge = f"Du prüfst Antworten.\nFRAGE: {Q}\nANTWORT: %s\nQUELLEN: {P}\nIst die Antwort belegt? Antworte mit JA oder NEIN."
    bad = "Bikes cost 20 euros."
    yield (
        "german-judge-then-again",
        ONE,
        node("POST /v1/answer", {}, retrieval(doc(P), query=Q), rag(P, said=bad), prompt_only(None, judge % bad, "NEIN"), rag(P), prompt_only(None, judge % A, "JA"), prompt_only(None, f"Vergib einen Titel in drei Wörtern für: {Q}", "Rad auf Nachtfähre"), kind=SpanKind.SERVER),
    )
    ranking = f"Rank the passages by relevance to the query. Reply with ids, e.g. [2] > [1].\n[1] {P2}\n[2] {P}\nQuery: {Q}"
    yield "ranked-by-a-model", Expected(question=Q, chunks=(P2, P), answer=A), node("app", {}, retrieval(doc(P2), doc(P, "2"), query=Q), prompt_only(None, ranking, "[2] > [1]"), rag(P, P2))
    short = "Night ferry: book a space by noon of the day of travel."
    inner = oi_retriever(Q, P, P2, name="VectorStoreRetriever")
    squeeze = tuple(oi_llm(f"Extract the relevant parts, or NO_OUTPUT.\nQuestion: {Q}\nContext:\n{each}", said) for each, said in ((P, short), (P2, "NO_OUTPUT")))
    outer = oi_retriever(Q, short, name="ContextualCompressionRetriever")
    yield "compressed-passages", Expected(question=Q, chunks=(short,), answer=A), oi("CHAIN", {"input": Q}, {"input": Q, "answer": A}, replace(outer, below=(inner, *squeeze)), oi_llm(asked(short), A), name="retrieval_chain")
    samples = ("Yes, they do.", A, "Yes, if you book.")
    vote = "\n".join(f"({i}) {each}" for i, each in enumerate(samples))
    yield "best-of-three", ONE, langfuse("chain", Q, A, langfuse("retriever", Q, [P]), *(langfuse("generation", asked(P), each) for each in samples), langfuse("generation", f"Which answer is best?\nQuestion: {Q}\n{vote}", "1"))
    crm = f"Summarise the conversation for the ticket in one line.\nCustomer: {Q}\nAgent: {A}"
    yield "summary-for-the-ticket", ONE, node("handle_message", {}, retrieval(doc(P), query=Q), rag(P), prompt_only(None, crm, "Customer asked about bikes on the night ferry."), prompt_only("Classify the ticket: tickets, luggage, animals.", f"{Q}\n{A}", "luggage"))
    statements = dumped({"statements": ["Bikes travel free on the night ferry.", "A space has to be booked by noon."]})
    checked = dumped({"statements": [{"statement": "Bikes travel free on the night ferry.", "reason": "It says so.", "verdict": 1}]})
    yield (
        "ragas-in-production",
        ONE,
        node("chat", {}, retrieval(doc(P), query=Q), rag(P), prompt_only(None, f"Break the answer into statements.\nquestion: {Q}\nanswer: {A}", statements), prompt_only(None, f"context: {P}\nstatements: {statements}\nJudge each.", checked)),
    )
    guard = f"Task: is there unsafe content in the last message?\n<BEGIN CONVERSATION>\nUser: {Q}\n<END CONVERSATION>"
    after = f"Task: is there unsafe content in the last message?\n<BEGIN CONVERSATION>\nUser: {Q}\nAgent: {A}\n<END CONVERSATION>"
    yield "llama-guard-around", ONE, oi("CHAIN", {"messages": [{"role": "user", "content": Q}]}, None, oi_llm(guard, "safe"), oi_retriever(Q, P), oi_llm(asked(P), A), oi_llm(after, "safe"))
    plan = '{"steps": ["find the rules on bikes", "find the fares"]}'
    yield (
        "planner-and-writer",
        TWO,
        node(
            "invoke_workflow",
            {"gen_ai.operation.name": "invoke_workflow", "gen_ai.input.messages": dumped([parts("user", Q)]), "gen_ai.output.messages": dumped([parts("assistant", A)])},
            prompt_only("Plan the search as JSON.", Q, plan),
            chat([parts("user", "find the rules on bikes")], "Found.", tool("search_policies", [{"content": P}], {"query": "bikes"}), operation="invoke_agent"),
            chat([parts("user", "find the fares")], "Found.", tool("search_policies", [{"content": P2}], {"query": "fares"}), operation="invoke_agent"),
            prompt_only("Write the reply for the customer.", f"Question: {Q}\nNotes:\n{P}\n{P2}", A),
        ),
    )
    dutch, ja = "Mag mijn fiets mee op de nachtboot?", "Ja, gratis, maar reserveer voor twaalf uur."
    yield "rewritten-from-dutch", Expected(question=dutch, chunks=(P,), answer=ja), node("app", {}, prompt_only("Schrijf de vraag om tot een Engelse zoekopdracht.", dutch, "bike night ferry"), retrieval(doc(P), query="bike night ferry"), rag(P, question=dutch, said=ja))


def many() -> Iterator[Found]:
    """Many calls below one root, or one call of many steps."""
    table = ((Q, P, A), (Q2, P3, A2), (Q3, P2, A3))
    yield (
        "all-retrievals-first",
        (ONE, DOGS, MOTOR),
        node("nightly", {}, *(retrieval(doc(p, str(i)), query=q) for i, (q, p, _) in enumerate(table)), *(rag(p, question=q, said=a) for q, p, a in table)),
    )
    yield (
        "thanks-between",
        (ONE, DOGS),
        node(
            "session",
            {"session.id": "s1"},
            oi("CHAIN", Q, A, oi_retriever(Q, P), oi_llm(asked(P), A)),
            oi("CHAIN", "Thanks!", "You are welcome.", oi_llm([("user", Q), ("assistant", A), ("user", "Thanks!")], "You are welcome.")),
            oi("CHAIN", Q2, A2, oi_retriever(Q2, P3), oi_llm([("user", Q), ("assistant", A), ("user", asked(P3, question=Q2))], A2)),
        ),
    )
    again = "Yes. It is free, but reserve before noon."
    # nothing tells a regenerated answer from a retry, after which the user gets only the last
    yield "regenerated", Expected(question=Q, chunks=(P,), answer=again), node("ws", {}, *(node("message", {}, retrieval(doc(P), query=Q), rag(P, said=said)) for said in (A, again)))
    experts = tuple(chat([parts("user", Q)], said, tool("kb_search", {"documents": [{"pageContent": p, "metadata": {"source": "f.md"}}]}, {"query": q}), operation="invoke_agent") for q, p, said in (("bikes", P, "Bikes are free."), ("fares", P2, "Motorbikes pay.")))
    yield "parallel-experts", TWO, chat([parts("user", Q)], A, *experts, prompt_only("Combine what the experts say.", f"{Q}\nExpert 1: Bikes are free.\nExpert 2: Motorbikes pay."), operation="invoke_agent")
    lines = tuple(
        node("Line", {"row": i}, langfuse("agent", {"question": q, "row": i}, {"output": a}, langfuse("tool", {"query": q}, [{"text": p, "score": 0.5}], name="retrieve_passages"), langfuse("generation", [{"role": "user", "content": q}], a)))
        for i, (q, p, a) in enumerate(table)
    )
    yield "rows-of-plain-spans", (ONE, DOGS, MOTOR), node("load-test", {}, *lines)
    history = f"Previous conversation:\nUser: {Q}\nAssistant: {A}\n\n"
    yield (
        "history-in-the-prompt",
        (ONE, DOGS),
        node("voice-call", {}, *(node("turn", {}, retrieval(doc(p), query=q), prompt_only("Answer only from the passages.", f"{before}Passages:\n\"\"\"\n{p}\n\"\"\"\n\nCurrent question: {q}", a)) for q, p, a, before in ((Q, P, A, ""), (Q2, P3, A2, history)))),
    )
    todo = "Write a page on bikes and motorbikes on board."
    page = f"# On board\n\n{A}\n\n{A3}"
    yield "report-of-sections", Expected(question=todo, chunks=(P, P2), answer=page), oi("CHAIN", {"topic": todo}, {"report": page, "sections": 2}, *(oi("CHAIN", {"section": name}, None, oi_retriever(name, p), oi_llm(asked(p, question=f"Write the section on {name}."), said)) for name, p, said in (("bikes", P, A), ("motorbikes", P2, A3))), oi_llm(f"Join the sections.\n{A}\n{A3}", page))


def stream() -> Iterator[Found]:
    """Streams that were left, failed or lost a part, and whole ones that look so."""
    left, failed = Expected(incomplete="reader"), Expected(incomplete="error")
    found = retrieval(doc(P), query=Q)
    part = "Yes, bikes travel"

    def broken(kind: str, message: str = "", name: str = "exception") -> tuple[tuple[str, Mapping[str, str]], ...]:
        return ((name, {"exception.type": kind, "exception.message": message}),)

    for name, kind, message in (
        ("node-abort", "AbortError", "This operation was aborted"),
        ("dotnet-cancel", "System.OperationCanceledException", "The operation was canceled."),
        ("java-client-abort", "org.apache.catalina.connector.ClientAbortException", "java.io.IOException: Broken pipe"),
        ("go-cancel", "*errors.errorString", "context canceled"),
        ("kotlin-cancel", "kotlinx.coroutines.JobCancellationException", "StandaloneCoroutine was cancelled"),
    ):
        yield name, left, node("POST /chat", {}, found, replace(rag(P, said=part), events=broken(kind, message), status=StatusCode.ERROR))
    for name, kind, message in (
        ("socket-hang-up", "Error", "socket hang up"),
        ("overloaded-in-the-middle", "anthropic.APIStatusError", "overloaded_error"),
        ("go-deadline", "*context.deadlineExceededError", "context deadline exceeded"),
    ):
        yield name, failed, node("POST /chat", {}, found, replace(rag(P, said=part), events=broken(kind, message), status=StatusCode.ERROR))
    sdk = {"ai.operationId": "ai.streamText", "ai.prompt": dumped({"messages": [{"role": "user", "content": asked(P)}]}), "ai.response.text": part}
    yield "ai-sdk-abort", left, node("ai.streamText", sdk, events=broken("AbortError", "The user aborted a request."), status=StatusCode.ERROR)
    filtered = {**parts("assistant", A), "finish_reason": "content_filter"}
    yield "filtered-at-the-end", ONE, node("app", {}, found, rag(P, said=filtered))
    saved = node("save_history", {}, events=broken("sqlalchemy.exc.OperationalError", "database is locked"), status=StatusCode.ERROR)
    yield "history-not-saved", ONE, node("POST /chat", {}, found, rag(P), saved)
    embed = node("embeddings m", {"gen_ai.operation.name": "embeddings", "error.type": "429"}, status=StatusCode.ERROR)
    yield "embedding-retried", ONE, node("POST /chat", {}, embed, node("embeddings m", {"gen_ai.operation.name": "embeddings"}), found, rag(P))
    dead = replace(retrieval(query=Q), status=StatusCode.ERROR, events=broken("qdrant_client.UnexpectedResponse", "503"))
    sorry = "Sorry, our search does not work at the moment."
    yield "search-down", None, node("POST /chat", {}, dead, chat([parts("user", Q)], sorry))


def wrapped() -> Iterator[Found]:
    """Answers in envelopes."""
    for name, said in (
        ("r1-without-opening", f"The user asks about bikes. The document says they are free.\n</think>\n\n{A}"),
        ("end-of-turn", f"{A}<|eot_id|>"),
        ("dutch-fence", f"```json\n{dumped({'antwoord': A, 'bronnen': ['f.md'], 'zekerheid': 0.9})}\n```"),
        ("korean-json", dumped({"답변": A, "출처": ["f.md"]})),
        ("polish-tags", f"<rozumowanie>Dokument mówi o rowerach.</rozumowanie>\n<odpowiedz>\n{A}\n</odpowiedz>"),
        ("follow-ups-inside", dumped({"answer": A, "follow_up_questions": ["What do motorbikes cost?", "Are dogs allowed?"], "citations": [{"doc": 1, "quote": "free of charge"}]})),
        ("reasoning-field", dumped({"reasoning": "The first document covers bikes on all ferries, and names the rule for the night ferry.", "final": A, "found": True})),
        ("scratchpad", f"<scratchpad>\nI need the rule on bikes.\n</scratchpad>\n<result>{A}</result>"),
    ):
        yield name, ONE, node("app", {}, retrieval(doc(P), query=Q), rag(P, said=said))
    steps = (oi_retriever(Q, P), oi_llm(asked(P), A))
    human, ai = ({"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", f"{kind}Message"], "kwargs": {"content": text, "type": kind.lower()}} for kind, text in (("Human", Q), ("AI", A)))
    yield "langchain-constructors", ONE, oi("CHAIN", {"messages": [human]}, {"messages": [human, ai]}, *steps, name="LangGraph")
    crew = {"raw": A, "pydantic": None, "json_dict": None, "tasks_output": [{"description": "Answer the visitor", "raw": A, "agent": "clerk"}], "token_usage": {"total_tokens": 90}}
    yield "crew-output", ONE, oi("CHAIN", {"inputs": {"question": Q}}, crew, *steps, name="Crew.kickoff")
    nodes = [{"node": {"id_": str(i), "text": text, "metadata": {"file_name": "f.md"}}, "score": 0.8} for i, text in enumerate((P, P2))]
    yield "response-with-source-nodes", TWO, langfuse("span", {"args": [], "kwargs": {"query_str": Q}}, {"response": A, "source_nodes": nodes, "metadata": {}}, langfuse("generation", [{"role": "user", "content": asked(P, P2)}], A))
    yield "contexts-in-the-output", TWO, langfuse("span", {"question": Q}, {"answer": A, "contexts": [P, P2], "latency": 1.2}, langfuse("generation", [{"role": "user", "content": asked(P, P2)}], A))
    pieces = [A[i : i + 20] for i in range(0, len(A), 20)]
    deltas = [{"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": each}, "finish_reason": None}]} for each in pieces]
    deltas.append({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    yield "deltas", ONE, langfuse("chain", Q, None, langfuse("retriever", Q, [P]), langfuse("generation", [{"role": "user", "content": asked(P)}], deltas))
    call = {"type": "tool_call", "id": "c1", "name": "final_result", "arguments": {"answer": A, "sources": ["f.md"]}}
    yield "output-tool", ONE, chat([parts("user", Q)], parts("assistant", call), tool("retrieve", P, {"search_query": "bikes"}), operation="invoke_agent")
    built = {"answer_builder": {"answers": [{"data": A, "query": Q, "documents": [{"id": "1", "content": P, "meta": {}}], "meta": {}}]}}
    yield (
        "haystack-answers",
        ONE,
        node(
            "haystack.pipeline.run",
            {"haystack.pipeline.input_data": dumped({"retriever": {"query": Q}, "prompt_builder": {"question": Q}}), "haystack.pipeline.output_data": dumped(built)},
            node("haystack.component.run", {"haystack.component.name": "retriever", "haystack.component.type": "InMemoryBM25Retriever", "haystack.component.input": dumped({"query": Q}), "haystack.component.output": dumped({"documents": [{"id": "1", "content": P, "score": 0.9}]})}),
            node("haystack.component.run", {"haystack.component.name": "llm", "haystack.component.type": "OpenAIGenerator", "haystack.component.input": dumped({"prompt": asked(P)}), "haystack.component.output": dumped({"replies": [A], "meta": [{"model": "m"}]})}),
        ),
    )


def said_in(question: str, said: str, *chunks: str) -> Expected:
    return Expected(question=question, chunks=chunks, answer=said)


IT = ("Posso portare la bici sul traghetto notturno?", "Sì, ma occorre prenotare entro mezzogiorno.", "Le biciclette viaggiano gratis su tutti i traghetti.\nSul traghetto notturno il posto va prenotato entro mezzogiorno.", "I ciclomotori pagano come veicoli.")
NL = ("Mag mijn fiets mee op de nachtboot?", "Ja, maar reserveer voor twaalf uur.", "Fietsen gaan gratis mee op alle boten.\nOp de nachtboot moet u voor twaalf uur reserveren.", "Bromfietsen tellen als voertuig.")
PL = ("Czy mogę zabrać rower na nocny prom?", "Tak, ale trzeba zarezerwować miejsce do południa.", "Rowery płyną za darmo na wszystkich promach.\nNa nocny prom trzeba zarezerwować miejsce do południa.", "Motorowery są liczone jak pojazdy.")
RU = ("Можно ли взять велосипед на ночной паром?", "Да, но место нужно забронировать до полудня.", "Велосипеды перевозятся бесплатно на всех паромах.\nНа ночной паром место бронируют до полудня.", "Мопеды считаются транспортными средствами.")
KO = ("야간 페리에 자전거를 가져갈 수 있나요?", "네, 정오까지 예약하면 됩니다.", "자전거는 모든 페리에서 무료입니다.\n야간 페리는 당일 정오까지 예약해야 합니다.", "오토바이는 차량 요금을 냅니다.")
AR = ("هل يمكنني اصطحاب دراجتي في العبّارة الليلية؟", "نعم، بشرط الحجز قبل الظهر.", "تُنقل الدراجات مجانًا على جميع العبّارات.\nفي العبّارة الليلية يجب الحجز قبل الظهر.", "تُحسب الدراجات النارية كمركبات.")
HI = ("क्या मैं रात की फेरी में साइकिल ले जा सकता हूँ?", "हाँ, पर दोपहर तक जगह बुक करनी होगी।", "साइकिलें सभी फेरियों पर मुफ़्त जाती हैं।\nरात की फेरी के लिए दोपहर तक बुकिंग करें।", "मोपेड वाहन मानी जाती हैं।")
TR = ("Gece feribotuna bisikletimi alabilir miyim?", "Evet, ama öğlene kadar yer ayırtmalısınız.", "Bisikletler bütün feribotlarda ücretsiz taşınır.\nGece feribotu için öğlene kadar yer ayırtın.", "Mopedler araç sayılır.")
SV = ("Får jag ta med cykeln på nattfärjan?", "Ja, men boka plats före klockan tolv.", "Cyklar åker gratis på alla färjor.\nPå nattfärjan ska plats bokas före klockan tolv.", "Mopeder räknas som fordon.")
VI = ("Tôi có thể mang xe đạp lên phà đêm không?", "Có, nhưng phải đặt chỗ trước buổi trưa.", "Xe đạp được miễn phí trên mọi chuyến phà.\nPhà đêm phải đặt chỗ trước buổi trưa.", "Xe máy được tính như ô tô.")
CS = ("Mohu si vzít kolo na noční trajekt?", "Ano, ale místo rezervujte do poledne.", "Kola se na všech trajektech přepravují zdarma.\nNa noční trajekt rezervujte místo do poledne.", "Mopedy se počítají jako vozidla.")


def prompt() -> Iterator[Found]:
    """Passages that only the prompt has."""

    def case(name: str, words: tuple[str, str, str, str] | None, *messages: tuple[str, str], alone: bool = False) -> Found:
        q, a, p, p2 = words or (Q, A, P, P2)
        filled = [parts(role, text.replace("%q", q).replace("%2", p2).replace("%1", p)) for role, text in messages]
        return name, said_in(q, a, p, *(() if alone else (p2,))), chat(filled, a)

    yield case("italian-numbered", IT, ("user", "Rispondi alla domanda solo in base ai passaggi seguenti.\n\nPassaggio 1:\n%1\n\nPassaggio 2:\n%2\n\nDomanda: %q\nRisposta:"))
    yield case("dutch-bronnen", NL, ("system", "Je bent de klantenservice van een veerdienst. Gebruik alleen de bronnen hieronder.\n\n--- Bron: fietsen.pdf ---\n%1\n\n--- Bron: brommers.pdf ---\n%2"), ("user", "%q"))
    yield case("polish-tags", PL, ("system", "Odpowiadaj wyłącznie na podstawie dokumentów.\n<dokumenty>\n<dokument id=\"1\">\n%1\n</dokument>\n<dokument id=\"2\">\n%2\n</dokument>\n</dokumenty>"), ("user", "%q"))
    yield case("russian-headings", RU, ("user", "Ответь на вопрос, используя только контекст.\n\n### Контекст\n\n%1\n\n%2\n\n### Вопрос\n\n%q\n\n### Ответ\n"))
    yield case("korean-context", KO, ("system", "당신은 페리 회사의 상담원입니다.\n\n# 규칙\n- 참고 자료에 있는 내용만 답하세요.\n- 존댓말을 쓰세요.\n\n# 참고 자료\n[자료 1]\n%1\n\n[자료 2]\n%2"), ("user", "%q"))
    yield case("arabic-labels", AR, ("user", "أجب عن السؤال اعتمادًا على النصوص التالية فقط.\n\nالنصوص:\n[1] %1\n[2] %2\n\nالسؤال: %q\nالإجابة:"))
    yield case("hindi-fence", HI, ("user", "नीचे दिए गए संदर्भ से ही उत्तर दें।\n\nसंदर्भ:\n```\n%1\n```\n```\n%2\n```\n\nप्रश्न: %q\nउत्तर:"))
    yield case("turkish-json", TR, ("system", "Yalnızca belgelere dayanarak yanıt ver.\nBelgeler:\n" + dumped([{"kaynak": "a.pdf", "metin": "%1"}, {"kaynak": "b.pdf", "metin": "%2"}]).replace("%1", TR[2].replace("\n", "\\n"))), ("user", "%q"))
    yield case("swedish-bullets", SV, ("system", "Svara bara utifrån utdragen.\n\nUtdrag:\n* %1\n* %2"), ("user", "%q"))
    yield case("vietnamese-documents", VI, ("user", "Tài liệu 1 (xe.pdf):\n%1\n\nTài liệu 2 (xe.pdf):\n%2\n\nDựa vào các tài liệu trên, hãy trả lời câu hỏi: %q"))
    yield case("czech-yaml", CS, ("system", "Odpovídej jen podle podkladů.\n\npodklady:\n- zdroj: kola.md\n  text: |\n    " + CS[2].replace("\n", "\n    ") + "\n- zdroj: mopedy.md\n  text: |\n    %2"), ("user", "%q"))
    yield case("kotaemon", None, ("user", f"Use the given pieces of context to answer the question at the end in detail. If you don't know, say so. Give answer in English.\n\n<br><b>Content from bikes.pdf (Page 3): </b> {' '.join(P.split())} \n<br><br><b>Content from fares.pdf (Page 1): </b> {' '.join(P2.split())} \n<br>\nQuestion: %q\nHelpful Answer:"))
    yield case("lepton-citations", None, ("system", "You are an assistant for questions. You are given related contexts, each starting with a reference number like [[citation:x]]. Cite them.\n\nHere are the set of contexts:\n\n[[citation:1]] %1\n\n[[citation:2]] %2\n\nRemember, don't repeat the contexts verbatim. And here is the user question:"), ("user", "%q"))
    yield case("claude-documents", None, ("user", "<documents>\n<document index=\"1\">\n<source>bikes.md</source>\n<document_contents>\n%1\n</document_contents>\n</document>\n<document index=\"2\">\n<source>fares.md</source>\n<document_contents>\n%2\n</document_contents>\n</document>\n</documents>\n\nFirst quote what matters, then answer.\n\n%q"))
    yield case("scored-excerpts", None, ("system", "You answer customers.\n\nExcerpt 1 (score: 0.83, file: bikes.md, page 3)\n%1\n\nExcerpt 2 (score: 0.71, file: fares.md, page 1)\n%2\n\nUse only the excerpts."), ("user", "%q"))
    yield case("quoted-mail", None, ("user", "A customer asks: %q\n\nOur handbook says:\n\n" + "\n".join(f"> {line}" for line in P.splitlines()) + "\n\nReply to the customer, with nothing that the handbook does not say."), alone=True)
    yield case("context-then-understood", None, ("user", "Here are the pages of our handbook that you will answer from:\n\n=== bikes.md ===\n%1\n\n=== fares.md ===\n%2"), ("assistant", "Understood. I will answer from these pages only."), ("user", "%q"))
    yield case("json-user-message", None, ("system", "You get a question and contexts as JSON. Answer from the contexts."), ("user", dumped({"question": Q, "contexts": [P, P2]})))
    yield case("question-first-then-information", None, ("user", "Question: %q\n\nRetrieved information:\n%1\n\n%2\n\nIf the information does not suffice, say so.\n"))
    tables = f"-----Reports-----\nid|title|content\n2|Ferry rules|{' '.join(P.split())}\n\n-----Sources-----\nid|text\n5|{' '.join(P2.replace('|', '/').split())}\n"
    name, found, shown = case("graphrag-tables", None, ("system", f"---Role---\n\nYou answer questions on the tables.\n\n---Goal---\n\nAnswer in one paragraph, with data references [Data: Reports (2)].\n\n---Data tables---\n\n{tables}\n---Target response length and format---\n\none paragraph"), ("user", "%q"))
    yield name, replace(found, chunks=(" ".join(P.split()), " ".join(P2.replace("|", "/").split()))), shown  # type: ignore[arg-type]
    yield case("triple-quotes", None, ("system", "Answer from the text between triple quotes. If it is not there, say that you do not know.\n\n\"\"\"%1\"\"\"\n\n\"\"\"%2\"\"\""), ("user", "%q"))
    yield case("facts-with-dates", None, ("system", "You are Ferry Bot. Today is Friday, 27 November 2026. The customer's name is Kim.\n\nKnowledge:\n[2026-01-04 | bikes] %1\n[2026-02-11 | fares] %2\n\nNever mention the knowledge."), ("user", "%q"))
    name, found, shown = case("tool-role-context", None, ("system", "You answer from the tool's result only."), ("user", "%q"), ("tool", "Title: bikes\nURL: https://f.example/bikes\nText: %1\n\nTitle: fares\nURL: https://f.example/fares\nText: %2"))
    yield name, replace(found, chunks=(f"Title: bikes URL: https://f.example/bikes Text: {P} Title: fares URL: https://f.example/fares Text: {P2}",)), shown  # type: ignore[arg-type]  # a tool's text is one chunk, as elsewhere
    yield case("completion-of-roles", None, ("user", "<|system|>\nUse the information in the context. If the answer is not there, say so.</s>\n<|user|>\nContext:\nDocument 0:::\n%1\nDocument 1:::\n%2\n---\nNow here is the question you need to answer.\n\nQuestion: %q</s>\n<|assistant|>\n"))


def ids() -> Iterator[Found]:
    """Retrievals that tell ids only, or more than the model was shown."""
    bare = [{"id": "b-3", "score": 0.81}, {"id": "f-1", "score": 0.62}]
    for name, shown in (
        ("source-lines", f"Source: b-3\nText: {P}\n\nSource: f-1\nText: {P2}"),
        ("json-by-id", dumped({"b-3": P, "f-1": P2})),
    ):
        yield name, Expected(question=Q, chunks=(P, P2), ids=("b-3", "f-1"), answer=A), node("app", {}, retrieval(*bare, query=Q), chat([parts("system", f"Answer only from these sources.\n\n{shown}"), parts("user", Q)], A))
    variables = {"langfuse.prompt": "x", "llm.prompt_template.template": "Context: {context}\nQuestion: {question}", "llm.prompt_template.variables": dumped({"context": f"{P}\n\n{P2}", "question": Q})}
    llm = oi_llm(f"Context: {P}\n\n{P2}\nQuestion: {Q}", A)
    yield "template-variables", TWO, oi("CHAIN", Q, A, replace(llm, attributes={**llm.attributes, **variables}))
    hits = tuple(("db.query.result", {"db.query.result.id": key, "db.query.result.score": 0.5, "db.query.result.metadata": dumped({"text": text, "source": "f.md"})}) for key, text in (("b-3", P), ("f-1", P2)))
    yield "pinecone-events", Expected(question=Q, chunks=(P, P2), answer=A), node("ask.workflow", {"traceloop.span.kind": "workflow", "traceloop.entity.name": "ask", "traceloop.entity.input": dumped({"args": [Q], "kwargs": {}}), "traceloop.entity.output": dumped(A)}, node("pinecone.query", {"db.system": "Pinecone"}, events=hits), node("openai.chat", {"llm.request.type": "chat", "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": f"{Q}\n\n{P}\n\n{P2}", "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": A}))
    memory = [{"id": "m1", "memory": "Kim lives in Oslo.", "score": 0.3}]
    yield "memories-beside-passages", ONE, langfuse("agent", Q, A, langfuse("span", {"query": Q, "user_id": "u1"}, {"results": memory}, name="mem0.search"), langfuse("retriever", Q, [{"page_content": P}]), langfuse("generation", [{"role": "system", "content": "User facts: Kim lives in Oslo."}, {"role": "user", "content": asked(P)}], A))
    yield "nothing-found", None, oi("CHAIN", Q, "I found nothing on that.", oi_retriever(Q), oi_llm(Q, "I found nothing on that."))


def hosted() -> Iterator[Found]:
    """Search inside the model's call."""
    turn = [{"role": "user", "content": Q}]
    references = [{"content": {"text": each}, "location": {"type": "S3", "s3Location": {"uri": "s3://f/b.md"}}} for each in (P, P2)]
    generated = {"output": {"text": A}, "citations": [{"generatedResponsePart": {"textResponsePart": {"text": A}}, "retrievedReferences": references}], "sessionId": "s"}
    yield "bedrock-citations", TWO, langfuse("generation", {"input": {"text": Q}, "retrieveAndGenerateConfiguration": {"type": "KNOWLEDGE_BASE"}}, generated)
    lookup = oi("RETRIEVER", "bikes night ferry", None, name="knowledge_base")
    lookup = replace(lookup, attributes={**lookup.attributes, "retrieval.documents.0.document.id": "s3://f/b.md", "retrieval.documents.0.document.content": P, "retrieval.documents.0.document.score": 0.8})
    yield "bedrock-agent", ONE, oi("AGENT", Q, A, oi("CHAIN", None, None, oi_llm(Q, "<thinking>I should search.</thinking>"), lookup, oi_llm(Q, f"<answer>{A}</answer>"), name="orchestrationTrace"), name="bedrock_agent.invoke_agent")
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": P}, "title": "bikes", "citations": {"enabled": True}}
    cited = [{"type": "text", "text": A, "citations": [{"type": "char_location", "cited_text": "Bicycles travel free of charge on all ferries.", "document_index": 0, "document_title": "bikes"}]}]
    yield "anthropic-documents", ONE, langfuse("generation", [{"role": "user", "content": [document, {"type": "text", "text": Q}]}], {"role": "assistant", "content": cited})
    perplexity = {"choices": [{"message": {"role": "assistant", "content": A}}], "citations": ["https://f.example/b"], "search_results": [{"title": "Bikes", "url": "https://f.example/b", "snippet": P}]}
    yield "perplexity-snippets", ONE, langfuse("generation", turn, perplexity)
    annotated = {"id": "r", "object": "response", "output": [{"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "bikes ferry"}}, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": A, "annotations": [{"type": "url_citation", "url": "https://f.example/b", "title": "Bikes", "start_index": 0, "end_index": 9}]}]}]}
    yield "web-search-without-texts", None, langfuse("generation", turn, annotated)
    web = {"candidates": [{"content": {"role": "model", "parts": [{"text": A}]}, "groundingMetadata": {"webSearchQueries": ["bikes ferry"], "groundingChunks": [{"web": {"uri": "https://g.example/x", "title": "f.example"}}]}}]}
    yield "google-search-without-texts", None, langfuse("generation", {"contents": [{"role": "user", "parts": [{"text": Q}]}]}, web)
    dify = {"event": "message", "answer": A, "metadata": {"usage": {"total_tokens": 90}, "retriever_resources": [{"position": 1, "dataset_name": "ferry", "document_name": "b.md", "segment_id": "s", "score": 0.9, "content": P}]}}
    yield "dify-response", ONE, langfuse("span", {"query": Q, "inputs": {}, "user": "u1"}, dify, name="POST /v1/chat-messages")
    file = {"type": "server_tool_call_response", "id": "f", "server_tool_call_response": {"type": "file_search", "results": [{"file_id": "f", "filename": "b.md", "score": 0.9, "content": [{"type": "text", "text": P}]}]}}
    yield "file-search-content-parts", ONE, chat([parts("user", Q)], parts("assistant", {"type": "server_tool_call", "id": "f", "name": "file_search", "server_tool_call": {"type": "file_search", "queries": ["bikes"]}}, file, A))
    own = {**turn[0], "documents": None}
    cohere = {"message": {"role": "assistant", "content": [{"type": "text", "text": A}], "citations": [{"start": 0, "end": 9, "text": "Yes, bikes", "sources": [{"type": "document", "id": "doc:0", "document": {"id": "doc:0", "snippet": P, "title": "b"}}]}]}, "finish_reason": "COMPLETE"}
    yield "cohere-citation-sources", ONE, langfuse("generation", [own], cohere)
    step = {"id": "step", "type": "tool_calls", "step_details": {"tool_calls": [{"type": "azure_ai_search", "azure_ai_search": {"input": "bikes", "output": dumped({"documents": [{"title": "b", "content": P}]})}}]}}
    yield "foundry-search-step", ONE, langfuse("agent", turn, A, langfuse("tool", None, step, name="azure_ai_search"))


def producer() -> Iterator[Found]:
    """Producers as their current versions write."""

    def smith(kind: str, given: object, said: object, *below: Node, name: str = "") -> Node:
        operation = {"llm": "chat", "tool": "execute_tool", "retriever": "embeddings"}.get(kind, kind)
        return node(name or kind, {"langsmith.span.kind": kind, "langsmith.trace.name": name or kind, "gen_ai.operation.name": operation, "gen_ai.system": "langchain", "gen_ai.prompt": dumped(given), "gen_ai.completion": dumped(said)}, *below)

    lc = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"], "kwargs": {"content": asked(P), "type": "human"}}
    generations = {"generations": [[{"text": A, "type": "ChatGeneration", "message": {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"], "kwargs": {"content": A, "type": "ai"}}}]], "llm_output": {"model_name": "m"}}
    documents = {"documents": [{"page_content": P, "type": "Document", "metadata": {"source": "b.md"}}]}
    yield "langsmith-otel", ONE, smith("chain", {"input": Q}, {"output": A}, smith("retriever", {"query": Q}, documents), smith("llm", {"messages": [[lc]]}, generations), name="RunnableSequence")
    yield "langsmith-traceable", ONE, smith("chain", {"question": Q}, {"answer": A}, smith("retriever", {"query": Q}, {"output": [{"page_content": P, "type": "Document", "metadata": {}}]}), name="rag_bot")

    def watch(kind: str, given: object, said: object, *below: Node, **more: str) -> Node:
        def wrap(value: object) -> str:
            return dumped({"type": "text" if isinstance(value, str) else "chat_messages" if isinstance(value, list) else "json", "value": value})

        return node(kind, {"langwatch.span.type": kind, "langwatch.input": wrap(given), "langwatch.output": wrap(said), **{key.replace("__", "."): value for key, value in more.items()}}, *below)

    yield (
        "langwatch",
        TWO,
        watch("workflow", Q, A, watch("rag", Q, [P, P2], langwatch__rag_contexts=dumped([{"document_id": "b", "chunk_id": "1", "content": P}, {"document_id": "f", "content": P2}])), watch("llm", [{"role": "user", "content": asked(P, P2)}], [{"role": "assistant", "content": A}])),
    )
    confident = "confident.span."
    yield (
        "confident-ai",
        TWO,
        node(
            "agent",
            {confident + "type": "agent", confident + "input": Q, confident + "output": A},
            node("search", {confident + "type": "retriever", confident + "input": Q, "confident.retriever.embedder": "e", confident + "retrieval_context": (P, P2)}),
            node("llm", {confident + "type": "llm", "confident.llm.model": "m", confident + "input": (dumped({"role": "user", "content": asked(P, P2)}),), confident + "output": A}),
        ),
    )

    def flow(kind: str, given: object, said: object, *below: Node, name: str = "", extra: tuple[tuple[str, Mapping[str, str]], ...] = ()) -> Node:
        events = (("promptflow.function.inputs", {"payload": dumped(given)}), *extra, ("promptflow.function.output", {"payload": dumped(said)}))
        return node(name or kind, {"framework": "promptflow", "span_type": kind, "function": name or kind}, *below, events=events)

    rows = [{"document.id": "b", "document.score": 0.9, "document.content": P}]
    yield (
        "promptflow",
        ONE,
        flow(
            "Flow",
            {"question": Q, "chat_history": []},
            {"answer": A},
            flow("Retrieval", {"query": Q}, [{"id": "b", "score": 0.9, "content": P}], name="lookup", extra=(("promptflow.retrieval.query", {"payload": Q}), ("promptflow.retrieval.documents", {"payload": dumped(rows)}))),
            flow("LLM", {"model": "m", "messages": [{"role": "user", "content": asked(P)}]}, {"choices": [{"message": {"role": "assistant", "content": A}}]}, name="openai_chat"),
            name="rag_flow",
        ),
    )
    context = {"items": [{"id": "i0", "type": "message", "role": "system", "content": ["You are on the phone."]}, {"id": "i1", "type": "message", "role": "user", "content": [Q]}, {"id": "f1", "type": "function_call_output", "name": "search_handbook", "output": P, "call_id": "c"}]}
    asks = (("gen_ai.system.message", {"content": "You are on the phone."}), ("gen_ai.user.message", {"content": Q}))
    yield (
        "livekit",
        ONE,
        node(
            "agent_session",
            {"lk.agent_name": "clerk"},
            node("user_turn", {"lk.user_transcript": Q}),
            node(
                "agent_turn",
                {"lk.generation_id": "g", "lk.user_input": Q, "lk.response.text": A},
                node("llm_node", {"lk.chat_ctx": dumped({"items": context["items"][:2]}), "lk.response.function_calls": "[]"}, node("llm_request", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}, events=(*asks, ("gen_ai.choice", {"role": "assistant", "tool_calls": dumped([{"function": {"name": "search_handbook", "arguments": "{}"}, "id": "c", "type": "function"}])})))),
                node("function_tool", {"lk.function_tool.name": "search_handbook", "lk.function_tool.arguments": dumped({"query": "bikes"}), "lk.function_tool.output": P}),
                node("llm_node", {"lk.chat_ctx": dumped(context), "lk.response.text": A}, node("llm_request", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}, events=(*asks, ("gen_ai.tool.message", {"content": P, "name": "search_handbook", "id": "c"}), ("gen_ai.choice", {"role": "assistant", "content": A})))),
                node("tts_node", {"lk.input_text": A}),
            ),
        ),
    )
    koog = {"gen_ai.system": "openai", "gen_ai.request.model": "m", "gen_ai.operation.name": "chat"}
    yield (
        "koog",
        ONE,
        node(
            "invoke_agent clerk",
            {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.id": "clerk"},
            node("execute_tool", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "searchHandbook", "gen_ai.tool.call.arguments": dumped({"query": "bikes"}), "gen_ai.tool.call.result": P}),
            node("chat", koog, events=(("gen_ai.user.message", {"gen_ai.system": "openai", "role": "user", "content": Q}), ("gen_ai.assistant.message", {"gen_ai.system": "openai", "role": "assistant", "content": A}))),
        ),
    )
    yield (
        "quarkus-content-attributes",
        TWO,
        node("POST /chat", {"http.route": "/chat"}, node("completion m", {"gen_ai.request.model": "m", "gen_ai.content.prompt": f"{Q}\n\nAnswer using the following information:\n{P}\n\n{P2}", "gen_ai.content.completion": A}), kind=SpanKind.SERVER),
    )
    yield (
        "aws-distro-langchain",
        ONE,
        node(
            "chain RetrievalChain",
            {"gen_ai.prompt": dumped({"inputs": {"input": Q}, "tags": [], "kwargs": {"name": "RetrievalChain"}}), "gen_ai.completion": dumped({"outputs": {"input": Q, "context": [{"page_content": P, "metadata": {}}], "answer": A}})},
            node("chat m", {"gen_ai.operation.name": "chat", "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": asked(P), "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": A}),
        ),
    )
    ops = "agentops.entity."
    yield (
        "agentops",
        ONE,
        node(
            "desk.workflow",
            {"agentops.span.kind": "workflow", ops + "name": "desk", ops + "input": dumped({"args": [Q], "kwargs": {}}), ops + "output": dumped(A)},
            node("search_handbook.tool", {"agentops.span.kind": "tool", ops + "name": "search_handbook", ops + "input": dumped({"args": ["bikes"], "kwargs": {}}), ops + "output": dumped([P])}),
            node("openai.chat.completion", {"agentops.span.kind": "llm", "gen_ai.system": "OpenAI", "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": asked(P), "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": A}),
        ),
    )
    trigger = oi("CHAIN", [{"json": {"chatInput": Q, "sessionId": "s"}}], None, name="When chat message received")
    store = oi("RETRIEVER", {"query": "bikes"}, [[{"json": {"response": [{"type": "text", "text": dumped({"pageContent": P, "metadata": {"source": "b.md"}})}]}}]], name="Qdrant Vector Store")
    yield "n8n", ONE, oi("CHAIN", None, None, trigger, oi("AGENT", [{"json": {"chatInput": Q}}], [[{"json": {"output": A}}]], store, oi_llm(Q, A, ), name="AI Agent"), name="workflow")
    decorated = "traceloop.entity."
    yield (
        "traceloop-decorators",
        TWO,
        node(
            "rag.workflow",
            {"traceloop.span.kind": "workflow", decorated + "name": "rag", decorated + "input": dumped({"args": [], "kwargs": {"user_id": "u1", "question": Q}}), decorated + "output": dumped({"answer": A, "n": 2})},
            node("fetch_passages.task", {"traceloop.span.kind": "task", decorated + "name": "fetch_passages", decorated + "input": dumped({"args": ["bikes night ferry"], "kwargs": {"k": 2}}), decorated + "output": dumped([P, P2])}),
            node("anthropic.chat", {"llm.request.type": "chat", "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": dumped([{"type": "text", "text": asked(P, P2)}]), "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": A}),
        ),
    )
    sdk = {"ai.operationId": "ai.generateText", "ai.prompt": dumped({"messages": [{"role": "user", "parts": [{"type": "text", "text": Q}]}]}), "ai.response.text": A}
    result = {"type": "json", "value": {"matches": [{"score": 0.9, "chunk": {"content": P, "file": "b.md"}}]}}
    yield "ai-sdk-v5-output", ONE, node("ai.generateText", sdk, node("ai.toolCall", {"ai.operationId": "ai.toolCall", "ai.toolCall.name": "searchHandbook", "ai.toolCall.args": dumped({"q": "bikes"}), "ai.toolCall.result": dumped(result)}))
    dspy = oi("CHAIN", {"question": Q}, {"reasoning": "The context says so.", "response": A}, oi("RETRIEVER", {"query": Q, "k": 2}, {"passages": [P, P2]}, name="ColBERTv2.__call__"), oi("LLM", {"messages": [{"role": "user", "content": f"[[ ## context ## ]]\n[1] «{P}»\n[2] «{P2}»\n\n[[ ## question ## ]]\n{Q}"}]}, [f"[[ ## reasoning ## ]]\nThe context says so.\n\n[[ ## response ## ]]\n{A}\n\n[[ ## completed ## ]]"]), name="RAG.forward")
    yield "dspy-passages", TWO, dspy
    turn = {"role": "user", "content": [{"text": asked(P)}]}
    converse = (("gen_ai.user.message", {"content": dumped(turn["content"])}), ("gen_ai.choice", {"index": 0, "finish_reason": "end_turn", "message": dumped({"role": "assistant", "content": [{"text": A}]})}))
    yield "botocore-converse", ONE, node("chat anthropic.claude", {"gen_ai.operation.name": "chat", "gen_ai.system": "aws.bedrock", "gen_ai.request.model": "anthropic.claude"}, events=converse)
    yield (
        "mlflow-chat-model",
        ONE,
        node(
            "predict",
            {"mlflow.spanType": '"CHAIN"', "mlflow.spanInputs": dumped({"messages": [{"role": "user", "content": Q}]}), "mlflow.spanOutputs": dumped({"id": "1", "messages": [{"role": "assistant", "content": A, "id": "2"}], "finish_reason": None})},
            node("vector search", {"mlflow.spanType": '"RETRIEVER"', "mlflow.spanInputs": dumped({"query": "bikes"}), "mlflow.spanOutputs": dumped([{"page_content": P, "metadata": {"similarity_score": 0.7}, "id": "b"}])}),
        ),
    )


def negative() -> Iterator[Found]:
    """What is no RAG call."""
    shots = "Classify the sentiment.\n\nExample 1:\nText: The crew was kind.\nLabel: positive\n\nExample 2:\nText: We waited two hours.\nLabel: negative\n\nText: %s\nLabel:"
    yield "sentiment", None, prompt_only(None, shots % "The ferry was late again.", "negative")
    yield "russian-labels", None, prompt_only("Определи тему обращения. Темы:\n1. Билеты\n2. Багаж\n3. Животные\nОтветь одним словом.", RU[0], "Багаж")
    yield "arabic-summary", None, prompt_only("لخّص النص التالي في جملة واحدة.", f"<نص>\n{AR[2]}\n{AR[3]}\n</نص>", "الدراجات مجانية والمركبات بأجرة.")
    yield "hindi-translation", None, prompt_only("इस पाठ का हिन्दी में अनुवाद करें।", P3, "कुत्तों को पट्टे पर रखें।")
    yield "dutch-persona", None, prompt_only("Je bent Bram, een vrolijke kapitein.\n\nRegels:\n- Praat als een zeeman.\n- Houd het kort.\n- Geef nooit medisch advies.", "Hoe gaat het?", "Ahoi, uitstekend!")
    yield "polish-translation-of-a-document", None, prompt_only("Jesteś tłumaczem. Przetłumacz dokument na angielski.", f"<dokument>\n{PL[2]}\n</dokument>", "Bicycles travel free on all ferries. Book by noon for the night ferry.")
    transcript = "[00:01] Ann: The night ferry is full.\n[00:09] Bo: Then we open the list.\n[00:15] Ann: Kim writes to the customers."
    yield "meeting-notes", None, prompt_only("You write minutes of meetings: decisions, to-dos.", f"Transcript:\n{transcript}", "Decision: open the list. To do: Kim writes to the customers.")
    schema = "You write SQL for SQLite.\n\n### Schema\n\nCREATE TABLE trips (id INTEGER, day TEXT, bikes INTEGER);\n\nCREATE TABLE fares (kind TEXT, euros REAL);\n\n### Question\nHow many bikes travelled in May?\n\n### SQL"
    yield "text-to-sql", None, node("app", {}, prompt_only(None, schema, "SELECT SUM(bikes) FROM trips WHERE day LIKE '2026-05-%'"), node("SELECT", {"db.system.name": "sqlite", "db.query.text": "SELECT SUM(bikes) FROM trips", "db.response.returned_rows": 1}, kind=SpanKind.CLIENT), prompt_only(None, "Question: How many bikes travelled in May?\nResult: [(214,)]\nSay it in a sentence.", "214 bikes travelled in May."))
    yield "sql-agent", None, chat([parts("user", "How many bikes travelled in May?")], "214 bikes.", tool("run_query", [{"sum": 214}], {"sql": "SELECT SUM(bikes) FROM trips"}), tool("list_tables", ["trips", "fares"]), operation="invoke_agent")
    weather = tool("get_weather", {"city": "Oslo", "forecast": "Sunny with a light breeze from the west, 12 degrees.", "updated": "09:00"}, {"city": "Oslo"})
    yield "weather-agent", None, chat([parts("user", "Will the sea be calm?")], "Yes, a light breeze only.", weather, operation="invoke_agent")
    events = tool("list_events", {"events": [{"title": "Harbour day", "description": "The harbour opens its doors, with music and food.", "start": "2026-05-02"}]}, {"month": 5})
    yield "calendar-agent", None, chat([parts("user", "What is on in May?")], "The harbour day on the second.", events, operation="invoke_agent")
    truths = f"Based on the given text, list the FACTUAL, undisputed truths as JSON.\nExample:\nText: Einstein won the prize in 1921.\nJSON: {{\"truths\": [\"Einstein won in 1921.\"]}}\n\nText:\n{P}\n\nJSON:"
    verdicts = f"Retrieval contexts:\n{P}\n\nClaims:\n['Bikes travel free.']\n\nFor each claim decide yes, no or idk as JSON."
    yield "deepeval-faithfulness", None, node("evaluate", {}, prompt_only(None, truths, '{"truths": ["Bicycles travel free."]}'), prompt_only(None, verdicts, '{"verdicts": [{"verdict": "yes"}]}'))
    yield "azure-groundedness", None, prompt_only("You are an expert in evaluating the quality of a RESPONSE from an intelligent system.", f"# Tasks\nScore the RESPONSE's groundedness in the CONTEXT from 1 to 5.\nCONTEXT: {P}\nQUERY: {Q}\nRESPONSE: {A}\n## Please provide <S0>, <S1>, <S2>:", "<S0>Let's think.</S0><S1>All is there.</S1><S2>5</S2>")
    yield "langsmith-evaluator", None, prompt_only("You are a teacher grading a quiz. You are given FACTS and a STUDENT ANSWER.", f"FACTS: {P}\n\nSTUDENT ANSWER: {A}", dumped({"explanation": "It follows from the facts.", "grounded": True}))
    yield "testset-generation", None, prompt_only("Write a question that a traveller would ask, and its answer from the context, as JSON.", f"Persona: traveller\nContext:\n{P}", dumped({"query": Q, "answer": A}))
    yield "raptor-summary", None, node("index", {}, prompt_only(None, f"Here is a subset of documents of a collection.\nGive a detailed summary of the documents.\n\nDocuments:\n{P}\n\n{P2}", "Bikes are free, motorbikes pay by length."), node("embeddings m", {"gen_ai.operation.name": "embeddings"}))
    report = "You help an analyst.\n# Goal\nWrite a report of a community as JSON.\n\nText:\nEntities\n\nid,entity,description\n5,NIGHT FERRY,A ferry that runs at night\n6,BIKES,Travel free of charge\n\nRelationships\n\nid,source,target,description\n37,BIKES,NIGHT FERRY,need a booked space\n\nOutput:"
    yield "community-report", None, prompt_only(None, report, dumped({"title": "Ferry", "summary": "Bikes on ferries.", "rating": 2.0}))
    condense = f"Given the following conversation and a follow up question, rephrase it to be a standalone question.\n\nChat History:\nHuman: {Q}\nAI: {A}\nFollow Up Input: and dogs?\nStandalone question:"
    yield "condensed-question", None, prompt_only(None, condense, "Are dogs allowed on the night ferry?")
    yield "search-page", None, node("GET /search", {"http.route": "/search"}, retrieval(doc(P), doc(P2, "2"), query=Q), kind=SpanKind.SERVER)
    yield "rerank-service", None, oi("RERANKER", Q, None, name="rerank")
    tools = "Available tools:\n1. search_web: Searches the web for a query.\n2. book: Books a space on a ferry.\n3. mail: Sends a mail to a customer.\n\nPlan the next step as JSON."
    yield "planner", None, prompt_only(tools, "Book my bike for tonight.", '{"tool": "book", "args": {"kind": "bike"}}')
    page = "Current URL: https://f.example/book\n[1]<input name=date />\n[2]<button>Book a space</button>\n[3]<a>Help</a>"
    yield "browser-agent", None, chat([parts("system", "You control a browser."), parts("user", f"Task: book a bike.\n{page}")], "Done.", tool("click", "Clicked [2]", {"index": 2}), operation="invoke_agent")
    yield "chunk-relevance-rail", None, node("rails", {}, prompt_only(None, f'Is this chunk relevant to the user query? Reply "yes" or "no".\nChunk: {P}\nUser query: {Q}', "yes"))
    yield "multiple-choice", None, prompt_only("The following are multiple choice questions on seamanship.", "Which side is port?\nA. right\nB. left\nC. front\nD. back\nAnswer:", "B")
    yield "commit-message", None, prompt_only("Write a commit message for the diff.", "```diff\n- fare = 18\n+ fare = 25\n```", "Raise the fare of long motorbikes")
    mail = f"Write a friendly reply to this mail. I want to say no.\n\n---\nFrom: Kim\nSubject: Bike\n\nDear team,\n{Q}\nRegards, Kim\n---"
    yield "mail-reply", None, prompt_only("You help to write mails.", mail, "Dear Kim, I am sorry, that is not possible. Regards")
    ner = "Haal alle plaatsnamen uit de tekst en geef JSON."
    yield "dutch-entities", None, langfuse("generation", [{"role": "system", "content": ner}, {"role": "user", "content": "De boot vaart van Rotterdam naar Hull."}], {"role": "assistant", "content": '{"plaatsen": ["Rotterdam", "Hull"]}'})
    home = oi("AGENT", "Turn on the deck lights", "The deck lights are on.", oi("TOOL", {"entity": "deck"}, {"state": "on", "brightness": 80}, name="set_light"), oi_llm("Turn on the deck lights", "The deck lights are on."))
    yield "smart-home", None, home
    yield "ticket-fields", None, oi("CHAIN", {"mail": f"{Q} Kim"}, {"category": "luggage", "priority": 2}, oi_llm(f"Fill in the fields category and priority for this mail:\n{Q} Kim", '{"category": "luggage", "priority": 2}'))


def clock() -> Iterator[Found]:
    """Clocks, orphans, links, duplicates: the spans are changed by `_changed`."""
    plain = oi("CHAIN", Q, A, oi_retriever(Q, P), oi_llm(asked(P), A))
    for name in ("all-orphans", "ends-before-it-starts", "parent-arrives-last"):
        yield name, ONE, plain
    worker = node("process", {}, oi_retriever(Q, P, at=(-40, -39), service="search"), at=(-41, -38), kind=SpanKind.CONSUMER, service="search")
    yield "queue-between-clocks", ONE, oi("CHAIN", Q, A, node("publish", {}, worker, at=(2, 2.1), kind=SpanKind.PRODUCER), oi_llm(asked(P), A, at=(4, 6)), at=(1, 7))
    late = retrieval(doc(P), query=Q, at=(61, 62), service="kb", kind=SpanKind.SERVER)
    call = node("POST /search", {}, late, at=(2, 3), kind=SpanKind.CLIENT)
    yield "search-a-minute-ahead", ONE, node("POST /chat", {}, call, replace(rag(P), at=(3, 5)), at=(1, 6))
    yield "touching-times", ONE, node("app", {}, retrieval(doc(P), query=Q, at=(1, 2)), replace(rag(P), at=(2, 3)), at=(1, 3))


def _changed(case: Case) -> Case:
    spans = case.spans
    if case.name == "all-orphans":
        spans = tuple(replace(each, parent_span_id="00000000000000ff") for each in spans[1:])
    elif case.name == "ends-before-it-starts":
        spans = tuple(replace(each, end_ns=each.start_ns - 1000) for each in spans)
    elif case.name == "parent-arrives-last":
        spans = (*spans[1:], replace(spans[0], links=(SpanLink(trace_id="a" * 32, span_id="b" * 16),)))
    return replace(case, spans=spans)


def unseen2() -> tuple[Case, ...]:
    """Return all cases, by area."""
    return tuple(
        _changed(
            Case(name=name, kind=f"unseen2-{area.__name__}", spans=spans_of(f"2-{area.__name__}-{name}", *roots), expected=() if expected is None else (expected,) if isinstance(expected, Expected) else tuple(expected))
        )
        for area in (answer, many, stream, wrapped, prompt, ids, hosted, producer, negative, clock)
        for name, expected, *roots in area()
    )
