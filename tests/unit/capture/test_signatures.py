"""Which argument of a decorated function is the question, and which part of what it returns is the answer."""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

import ragtrace
from ragtrace import semconv

Q = "How long do refunds take?"
CHINESE = "退款需要多长时间\uff1f"
STATEMENT = "Tell me about your refund policy"
A = "Refunds take 14 days."
OLD = {"role": "user", "content": "Do you sell lamps?"}
REPLY = {"role": "assistant", "content": "Yes, we do."}
ASKED = {"role": "user", "content": Q}
CHAT = [OLD, REPLY, ASKED]
PAST = [OLD, REPLY]
UUID = "0b6c1f0e-7f0f-4b5f-9f57-3a3c0f3f9a10"
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/lamp.png"}}


@dataclass
class Turn:
    user_id: str
    question: str


@dataclass
class Words:
    text: str


@dataclass
class Envelope:
    sender: str
    message: Words


class Body(BaseModel):
    user_id: str = "u1"
    query: str = Q


class Ticket(BaseModel):
    id: str = "T1"
    customer: str = "ACME Ltd"
    question_text: str = Q
    priority: str = "very high"


class ChatRequest(BaseModel):
    model: str = "gpt-4o"
    user: str = "u1"
    messages: list[dict[str, str]]


@dataclass
class Activity:
    id: str
    type: str
    text: str


class Outer(BaseModel):
    tenant: str = "acme"
    input: Body = Body()


class Row(NamedTuple):
    session: str
    question: str


class Role(Enum):
    USER = "user"
    ASSISTANT = "assistant"


@dataclass
class Said:
    type: Any
    content: Any


class Plain:
    """An object of a class that lists no fields."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


@dataclass
class Plain2:
    body: bytes


class Chain:
    prompt = "Answer the question: {question}"
    model = "gpt-4o"


class Chat:
    def __init__(self) -> None:
        self.id = UUID
        self.messages = CHAT


class Desk:
    @ragtrace.rag
    def ask(self, session, text):
        pass

    @classmethod
    @ragtrace.rag
    def of_class(cls, conversation_id, messages):
        pass

    @staticmethod
    @ragtrace.rag
    def static(user_id, msg):
        pass

    def thread(self, thread_id, content):
        pass


class Called:
    def __call__(self, session, words):
        pass


def with_rest(*args):
    pass


def with_names(**kw):
    pass


Signature = tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any], str | None]


def row(
    signature: str, function: Callable[..., Any], *args: Any, wanted: str | None = Q, **kwargs: Any
) -> Signature:
    return signature, function, args, kwargs, wanted


# reports of users, and what was right before them
REPORTED = [
    row("messages, session_id", lambda messages, session_id: None, CHAT, "s1"),
    row("model, messages", lambda model, messages: None, "gpt-4o", CHAT),
    row("conversation_id, messages", lambda conversation_id, messages: None, "c9", CHAT),
    row("user_id, msg", lambda user_id, msg: None, "u1", Q),
    row("**kw user, question", with_names, user="u1", question=Q),
    row("*, locale, utterance", lambda *, locale, utterance: None, locale="de", utterance=Q),
    row("model, user_question", lambda model, user_question: None, "gpt", Q),
    row(
        "multimodal messages",
        lambda messages: None,
        [{"role": "user", "content": [{"type": "text", "text": Q}, IMAGE]}],
    ),
    row("lang, body", lambda lang, body: None, "en", {"question": Q, "lang": "en"}),
    row("session, dataclass", lambda session, inp: None, "s", Turn("u1", Q)),
    row("messages", lambda messages: None, CHAT),
    row("history, user_message", lambda history, user_message: None, PAST, Q),
    row("chat_history, question", lambda chat_history, question: None, PAST, Q),
    row("prompt", lambda prompt: None, Q),
    row("state", lambda state: None, {"question": Q, "documents": []}),
]

# invented before the rules were written
HELD_OUT = [
    row("session_id, text", lambda session_id, text: None, "s1", Q),
    row("user, message", lambda user, message: None, "ada", Q),
    row("tenant, ask", lambda tenant, ask: None, "acme", Q),
    row("chat_id, prompt_text", lambda chat_id, prompt_text: None, "c-17", Q),
    row("trace_id, utterance", lambda trace_id, utterance: None, "7f" * 16, Q),
    row("customer, inquiry", lambda customer, inquiry: None, "ACME Ltd", Q),
    row("api_key, text", lambda api_key, text: None, "sk-proj-1a2b3c", Q),
    row("index_name, ask", lambda index_name, ask: None, "handbook", Q),
    row("collection, namespace, user_message", lambda collection, namespace, user_message: None, "a", "b", Q),
    row("conversationId, userInput", lambda conversationId, userInput: None, "c9", Q),  # noqa: N803
    row("url, what", lambda url, what: None, "https://example.org/v1", Q),
    row("a UUID, b", lambda a, b: None, UUID, Q),
    row("db, k, question", lambda db, k, question: None, object(), 4, Q),
    row("request_id, data", lambda request_id, data: None, "r1", {"query": Q, "k": 3}),
    row("Lambda event", lambda event, context: None, {"body": json.dumps({"question": Q})}, object()),
    row("state, user_query", lambda state: None, {"session_id": "s", "user_query": Q}),
    row(
        "LangGraph state, config",
        lambda state, config: None,
        {"messages": [Said("human", Q)]},
        {"configurable": {"thread_id": "t1"}},
    ),
    row("**kw model, messages", with_names, model="gpt-4o", messages=CHAT),
    row("**kw session_id, prompt", with_names, session_id="s1", prompt=Q),
    row("*args", with_rest, "s1", Q),
    row(
        "one message with audio",
        lambda message: None,
        {"role": "user", "content": [{"type": "text", "text": Q}, {"type": "input_audio", "data": "UklGR"}]},
    ),
    row(
        "image before text",
        lambda messages: None,
        [{"role": "user", "content": [IMAGE, {"type": "input_text", "text": Q}]}],
    ),
    row(
        "two text parts",
        lambda messages: None,
        [{"role": "user", "content": [{"type": "text", "text": "My lamp is broken."}, {"text": Q}]}],
        wanted=f"My lamp is broken.\n{Q}",
    ),
    row("Gemini contents", lambda contents: None, [{"role": "user", "parts": [{"text": Q}]}]),
    row("Gradio message, history", lambda message, history: None, Q, [["Do you sell lamps?", "Yes."]]),
    row("Gradio history", lambda history: None, [["Do you sell lamps?", "Yes."], [Q, None]]),
    row("history, text", lambda history, text: None, PAST, Q),
    row("prompt, messages", lambda prompt, messages: None, "You are a helpful clerk.", CHAT),
    row("system_prompt, user_prompt", lambda system_prompt, user_prompt: None, "You are a clerk.", Q),
    row("template, variables", lambda template, variables: None, "Answer {question}", {"question": Q}),
    row("pydantic", lambda req: None, Body()),
    row("nested pydantic", lambda payload: None, Outer()),
    row("nested dataclass", lambda turn: None, Envelope("ada", Words(Q))),
    row("named tuple", lambda row: None, Row("s1", Q)),
    row("OpenAI body", lambda body: None, {"model": "gpt-4o", "user": "u1", "messages": CHAT}),
    row("Dify body", lambda payload: None, {"inputs": {}, "query": Q, "user": "abc-123"}),
    row("inputs of a chain", lambda inputs: None, {"chat_history": PAST, "input": Q}),
    row("nested input", lambda event: None, {"input": {"messages": CHAT}, "config": {"model": "m"}}),
    row("method", Desk().ask, "s1", Q),
    row("class method", Desk.of_class, "c9", CHAT),
    row("static method", Desk.static, "u1", Q),
    row("bound method", Desk().thread, "t1", Q),
    row("partial", functools.partial(lambda k, user_id, msg: None, 3), "u1", Q),
    row("callable object", Called(), "s1", Q),
    row("path, verbose, user_question", lambda path, verbose, user_question: None, "/tmp/i", True, Q),
    row("text, lang", lambda text, lang: None, Q, "de"),
    row("email, body", lambda email, body: None, "ada@example.org", Q),
    row("region, topic", lambda region, topic: None, "eu-west-1", "refund policy", wanted="refund policy"),
    row("lang, Chinese", lambda lang, body: None, "zh", CHINESE, wanted=CHINESE),
    row("sprache, frage", lambda sprache, frage: None, "de", "Wie lange?", wanted="Wie lange?"),
    row("uid, txt", lambda uid, txt: None, "u1", Q),
    row("sessionid, inp", lambda sessionid, inp: None, "My Session", Q),
    row("parts of LangChain", lambda messages: None, [Said("human", [{"type": "text", "text": Q}])]),
    row("roles as enums", lambda messages: None, [Said(Role.USER, Q), Said(Role.ASSISTANT, "Yes.")]),
    row("pairs of role and text", lambda messages: None, [("system", "Be brief."), ("user", Q)]),
    row("object with messages", lambda chat: None, Chat()),
    row("message_history, new_message", lambda message_history, new_message: None, PAST, Q),
    row("chain, words", lambda chain, words: None, Chain(), Q),
    row("UUID object, Path, asked", lambda ident, where, asked: None, uuid.uuid4(), Path("/tmp"), Q),
    row("bytes", lambda user_id, raw: None, "u1", Q.encode()),
    row("defaults", lambda session_id="s", ask=Q: None),
    row("question_id, question", lambda question_id, question_text: None, "q-17", Q),
    row("model with provider, prompt", lambda model_name, provider, prompt: None, "gpt 4o", "Open AI", Q),
    row("context, problem", lambda context, problem: None, "Refunds take 14 days.", Q),
    row("only an id", lambda session_id: None, "s1", wanted=None),
    row("only settings", lambda model, temperature, lang: None, "gpt-4o", 0.1, "en", wanted=None),
    row("only a UUID", lambda value: None, UUID, wanted=None),
    row("two texts", lambda left, right: None, "The lamp is red.", "The lamp is blue.", wanted=None),
    row("only an image", lambda messages: None, [{"role": "user", "content": [IMAGE]}], wanted=None),
]


# invented after the rules were written, to count how many they read
HELD_OUT_LATER = [
    row("user_input, chat_session", lambda user_input, chat_session: None, Q, object()),
    row("tenant_id, payload", lambda tenant_id, payload: None, "t1", {"text": Q, "meta": {"text": "no"}}),
    row("Telegram update", lambda update, context: None, Plain(message=Plain(text=Q)), object()),
    row("Chainlit message", lambda message: None, Plain(content=Q, author="ada")),
    row("query string", lambda event, context: None, {"queryStringParameters": {"q": Q}}, None),
    row("search_query", lambda req: None, {"search_query": Q, "top_k": 3}),
    row(
        "senders",
        lambda req: None,
        {"conversation": [{"sender": "bot", "text": "Hi."}, {"sender": "user", "text": Q}]},
    ),
    row("thread with messages", lambda thread: None, Plain(id="t1", messages=CHAT)),
    row("inputs, config", lambda inputs, config=None: None, {"question": Q}),
    row("text_input, image_path", lambda image_path, text_input: None, "/tmp/a.png", Q),
    row("customer_id, customer_question", lambda customer_id, customer_question: None, "c1", Q),
    row("question_type, question_text", lambda question_type, question_text: None, "open ended", Q),
    row("prompt_id, variables", lambda prompt_id, variables: None, "p1", {"user_question": Q}),
    row("query_embedding, query_text", lambda query_embedding, query_text: None, [0.1, 0.2], Q),
    row("sql, question", lambda sql, question: None, "select * from faq", Q),
    row("system_message, human_message", lambda system_message, human_message: None, "Be kind to us.", Q),
    row("instructions, input", lambda instructions, input: None, "You are a clerk.", Q),  # noqa: A006
    row(
        "model, input",
        lambda model, input: None,  # noqa: A006
        "m",
        [{"role": "user", "content": [{"type": "input_text", "text": Q}]}],
    ),
    row("contents of objects", lambda contents: None, [Plain(role="user", parts=[Plain(text=Q)])]),
    row("en, 5, text", lambda a, b, c: None, "en", 5, Q),
    row("who, what", lambda who, what: None, "Ada Lovelace", Q),
    row("user object, text", lambda user, text: None, Plain(name="Ada", text="no"), Q),
    row("username, line", lambda username, line: None, "Ada Lovelace", Q),
    row("apiKey, ragQuery", lambda apiKey, ragQuery: None, "sk-1", Q),  # noqa: N803
    row("deployment_name, chat_prompt", lambda deployment_name, chat_prompt: None, "prod eu", Q),
    row("access_token, what_to_ask", lambda access_token, what_to_ask: None, "eyJh", Q),
    row("index, search_term", lambda index, search_term: None, "faq", Q),
    row("k, lookup", lambda k, lookup: None, 3, Q),
    row("pairs, query_str", lambda pairs, query_str: None, [("Hi", "Hello")], Q),
    row("message_id, message", lambda message_id, message: None, "m1", Q),
    row("bytes of JSON", lambda request: None, Plain2(json.dumps({"question": Q}).encode())),
    row("JSON under any name", lambda raw: None, json.dumps({"question": Q})),
    row("form", lambda form: None, {"name": "Ada", "email": "a@example.org", "message": Q}),
    row("msgs", lambda msgs: None, CHAT),
    row("speakers", lambda turns: None, [{"speaker": "user", "text": Q}]),
    row("user and bot", lambda turns: None, [{"user": "Hi", "bot": "Hello"}, {"user": Q, "bot": None}]),
    row("MCP arguments", lambda params: None, {"name": "ask", "arguments": {"query": Q}}),
    row("id, text", lambda id, text: None, "r1", Q),  # noqa: A006
    row("input, config in **kw", with_names, input=Q, config={"configurable": {"thread_id": "t"}}),
    row("question None", lambda question=None, messages=None: None, None, CHAT),
    row("question blank", lambda question="", messages=None: None, "", CHAT),
    row("conversation_history, current_query", lambda conversation_history, current_query: None, PAST, Q),
    row("domain, problem_statement", lambda domain, problem_statement: None, "after sales", Q),
    row("reply_language, reply_to", lambda reply_language, topic: None, "plain English", Q),
    row("answer, question", lambda answer, question: None, A, Q),
    row("ground_truth, ask", lambda ground_truth, ask: None, A, Q),
    row("workspace slug alone", lambda workspace_slug: None, "after-sales", wanted=None),
    row("a file alone", lambda source_file: None, "refund policy.pdf", wanted=None),
    row("a document alone", lambda document: None, {"text": "Refunds take 14 days."}, wanted=None),
    row("settings alone", lambda settings: None, {"prompt": "Answer politely.", "model": "m"}, wanted=None),
]


# the same again, after those were mended
HELD_OUT_LAST = [
    row("a model's fields", lambda ticket: None, Ticket()),
    row("a chat request", lambda req: None, ChatRequest(messages=[OLD, REPLY, ASKED])),
    row("a message event", lambda turn, activity: None, Plain(), Activity("1", "message", Q)),
    row("a Slack event", lambda event: None, {"type": "message", "user": "U1", "text": Q, "channel": "C1"}),
    row("a Telegram update", lambda u: None, {"message": {"chat": {"title": "My chat"}, "text": Q}}),
    row("enum and text", lambda mode, t: None, Role.USER, STATEMENT, wanted=STATEMENT),
    row("a gRPC request", lambda request, context: None, Plain(question=Q, session_id="s"), Plain()),
    row("a state object", lambda state, runtime: None, Plain(messages=[Said("human", Q)]), Plain()),
    row("statement,lang", lambda lang, body: None, "en", STATEMENT, wanted=STATEMENT),
    row("statement,name", lambda user_name, statement: None, "Ada L", STATEMENT, wanted=STATEMENT),
    row("company,statement", lambda company, statement: None, "ACME Ltd", STATEMENT, wanted=STATEMENT),
    row("msg, ctx: dict", lambda msg, ctx: None, STATEMENT, {"question": "old one"}, wanted=STATEMENT),
    row("ws json", lambda ws, frame: None, object(), f'{{"type":"ask","text":"{Q}"}}'),
    row("kwargs only ids", lambda **kw: None, session_id="a b", wanted=None),
    row("kwargs query+id", lambda **kw: None, tenant="acme corp", thread="t 1", query=Q),
    row("kwargs user_message", lambda **kw: None, model="gpt 4", system="Be kind please", user_message=Q),
    row(
        "kwargs messages+query",
        lambda **kw: None,
        messages=[*PAST, {"role": "user", "content": "Other?"}],
        query=Q,
    ),
    row("date, text", lambda date, text: None, "2026-11-27", Q),
    row("since, what", lambda since, what: None, "2026-11-27", STATEMENT, wanted=STATEMENT),
    row("hex,text", lambda h, t: None, "deadbeefdeadbeef", STATEMENT, wanted=STATEMENT),
    row("jwt", lambda auth, t: None, "Bearer eyJhbGciOi.eyJzdWIi.abc", STATEMENT, wanted=STATEMENT),
    row("authorization", lambda authorization, t: None, "Bearer token here", STATEMENT, wanted=STATEMENT),
    row("cookie", lambda cookie, ask_text: None, "a=b; c=d", Q),
    row("user_agent", lambda user_agent, t: None, "Mozilla/5.0 (X11; Linux)", STATEMENT, wanted=STATEMENT),
    row("ip", lambda remote_addr, t: None, "127.0.0.1", STATEMENT, wanted=STATEMENT),
    row(
        "history ends pending + msg blank",
        lambda message, history: None,
        "",
        [*PAST, {"role": "user", "content": Q}],
    ),
    row("lc tuple messages", lambda state: None, {"messages": [("human", Q)], "remaining_steps": 3}),
    row(
        "anthropic tool_result last",
        lambda messages: None,
        [
            {"role": "user", "content": Q},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1"}]},
            {"role": "user", "content": [{"type": "tool_result", "content": "x y"}]},
        ],
    ),
    row("haystack run", lambda data: None, {"retriever": {"query": Q}, "prompt_builder": {"question": Q}}),
    row("deep", lambda envelope: None, {"meta": {"user": "u"}, "payload": {"input": {"user_question": Q}}}),
    row("voice transcript", lambda call_sid, transcript: None, "CA12", Q),
    row("email", lambda subject, sender, email_body: None, "Refund", "ada@x.org", Q),
    row("subject+body", lambda subject, body: None, "Refund please now", STATEMENT, wanted=STATEMENT),
    row("title desc", lambda title, question_body: None, "My refund", Q),
    row("topic,k", lambda topic, k=5: None, "refund policy", wanted="refund policy"),
    row("one word q", lambda keyword: None, "refunds", wanted="refunds"),
    row("city", lambda city, request_text: None, "New York", Q),
    row("prompt list str", lambda prompts: None, [Q]),
    row("agent input", lambda agent, input_: None, object(), Q),
    row("role, content", lambda role, content: None, "user", Q),
    row("content, role", lambda content, role: None, Q, "user"),
    row("language full", lambda target_language, txt: None, "Brazilian Portuguese", Q),
    row("answer_style", lambda answer_style, ask: None, "short and sweet", Q),
    row("previous_answer", lambda previous_answer, follow_up: None, "We sell lamps.", Q),
    row("prev_question, question", lambda previous_question, question: None, "Do you sell lamps?", Q),
    row(
        "original_question, rewritten_question",
        lambda rewritten_query, original_question: None,
        "refund duration",
        Q,
    ),
    row("file_name, instruction?", lambda file_name, request: None, "my report", Q),
    row("summary_of_memory", lambda memory, said: None, "User likes lamps. Lives in Rome.", Q),
    row("facts", lambda facts, said: None, "User likes lamps. Lives in Rome.", Q),
]


@pytest.mark.parametrize(
    "signature", REPORTED + HELD_OUT + HELD_OUT_LATER + HELD_OUT_LAST, ids=lambda signature: signature[0]
)
def test_the_question_is_the_right_argument(recorded: Any, signature: Signature) -> None:
    _, function, args, kwargs, wanted = signature
    decorated = function if hasattr(function, "__wrapped__") else ragtrace.rag(function)
    decorated(*args, **kwargs)
    assert recorded.question == wanted


class Result(BaseModel):
    response_text: str = A
    sources: list[str] = ["faq-12"]


class Status(BaseModel):
    status: str = "ok"
    data: dict[str, str] = {"answer": A}


@dataclass
class Reply:
    id: str
    bot_reply: str


ANSWERS = {
    "final_answer": {"question": Q, "final_answer": A},
    "generated_text": {"generated_text": A, "model": "m"},
    "list of generated_text": [{"generated_text": A}],
    "summary": {"summary": A, "sources": ["faq-12"]},
    "response_text": {"response_text": A, "session_id": "s1"},
    "sources, text": (["faq-12"], A),
    "text, sources": (A, ["faq-12"]),
    "documents, mapping": ([{"id": "faq-12", "text": "Refunds."}], {"answer": A}),
    "bot_reply": {"bot_reply": A, "user": "u1"},
    "markdown": {"markdown": A, "title": "Refunds"},
    "status, data": {"status": "ok", "data": {"answer": A}},
    "pydantic": Result(),
    "nested pydantic": Status(),
    "dataclass": Reply(UUID, A),
    "ok, mapping": (True, {"reply": A}),
    "id, text": (UUID, A),
    "assistant_message": {"assistant_message": {"role": "assistant", "content": A}},
    "llmOutput": {"llmOutput": A, "latencyMs": 12},
    "state of a graph": {"messages": [ASKED, {"role": "assistant", "content": A}], "session_id": "s1"},
    "result of a chain": {"query": Q, "result": A, "source_documents": []},
    "answer_text beside context": {"context": "Refunds.", "prompt": "Answer:", "answer_text": A},
    "output with text": {"output": {"text": A}},
    "result with answer": {"result": {"answer": A, "confidence": 0.9}, "text": "raw"},
    "Gemini": {"candidates": [{"content": {"parts": [{"text": A}]}}]},
    "success, data": {"message": "success", "data": {"reply": A}},
    "code, msg, data": {"code": 0, "msg": "ok", "data": {"content": A}},
    "message ok": {"message": "ok", "data": {"content": A}},
    "success, response": {"success": True, "response": {"message": A}},
    "answer with citations": {"answer": {"content": A, "citations": ["faq-12"]}},
    "final": {"final": A},
    "chat_response": {"chat_response": A, "thread_id": "t1"},
    "ai_message": {"ai_message": A},
    "outputText": {"outputText": A},
    "llm_response": {"llm_response": {"text": A}},
    "generation": {"generation": A, "documents": [{"text": "Refunds."}]},
    "assistant": {"user": Q, "assistant": A},
    "answer_html": {"answer_html": "<p>Refunds</p>", "answer": A},
    "score, text": (0.93, A),
    "documents, text, usage": ([{"text": "Refunds."}], A, {"tokens": 3}),
    "ok, text": ("ok", A),
    "answer_type first": {"answer_type": "short text", "answer_text": A},
    "expected_answer first": {"expected_answer": "Two weeks it is.", "actual_answer": A},
    "fulfillmentText": {"fulfillmentText": A},
    "summary_text": [{"summary_text": A}],
    "payload": {"ok": True, "payload": {"final_response": A, "trace_id": "x"}},
    "speech": {"speech": A, "card": None},
    "documents, object": ([{"text": "Refunds."}], Plain(answer=A)),
    "answers": {"answers": [{"answer": A, "score": 0.9}, {"answer": "No.", "score": 0.1}]},
    "object with final_output": Plain(final_output=A, raw_responses=[]),
    "objects": Plain(result=Plain(final_answer=A)),
    "outputs": {"outputs": [{"text": A}]},
    "generations": {"generations": [[{"text": A}]]},
    "messages, state": ([ASKED, {"role": "assistant", "content": A}], ""),
    "pairs": ([("user", Q), ("assistant", A)],),
    "title, body": {"title": "Refunds at ACME", "body": A},
    "choices": {"id": "x", "choices": [{"message": {"role": "assistant", "content": A}}]},
}


@pytest.mark.parametrize("result", ANSWERS.values(), ids=ANSWERS)
def test_the_answer_is_the_right_part_of_the_result(recorded: Any, result: object) -> None:
    ragtrace.rag(lambda question: result)(Q)
    assert recorded.answer == A


NO_ANSWERS = {
    "ids": {"session_id": "s1", "model": "gpt-4o"},
    "sources": {"sources": ["faq-12"], "context": "Refunds take 14 days."},
    "question": {"question": Q, "status": "ok"},
}


@pytest.mark.parametrize("result", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_what_is_no_answer_is_not_recorded_as_one(recorded: Any, result: object) -> None:
    ragtrace.rag(lambda question: result)(Q)
    assert recorded.answer is None


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (lambda index, text: [], ("my index", Q)),
        (lambda collection_name, query_text: [], ("my collection", Q)),
        (lambda question, query: [], (STATEMENT, Q)),
        (lambda store, needle: [], (Plain(), Q)),
    ],
)
def test_the_query_is_the_right_argument(recorded: Any, function: Callable[..., Any], args: Any) -> None:
    ragtrace.retrieval(function)(*args)
    assert recorded.span("retrieval").attributes[semconv.RETRIEVAL_QUERY] == Q


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (lambda model, user_prompt: A, ("gpt 4o", Q)),
        (lambda system_prompt, user_prompt: A, ("You are a clerk.", Q)),
        (lambda payload: A, ({"model": "gpt-4o", "messages": CHAT},)),
        (lambda model, contents: A, ("gpt 4o", Q)),
        (lambda question, messages: A, (STATEMENT, CHAT)),
    ],
)
def test_the_prompt_is_the_right_argument(recorded: Any, function: Callable[..., Any], args: Any) -> None:
    ragtrace.generation(function)(*args)
    messages = json.loads(recorded.span("generation").attributes[semconv.INPUT_MESSAGES])
    assert messages[-1]["parts"][0]["content"] == Q
