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
    row("chat_history, question", lambda chat_history, question: None, PAST, Q),
    row("prompt", lambda prompt: None, Q),
    row("state", lambda state: None, {"question": Q, "documents": []}),
]

# invented before the rules were written
HELD_OUT = [
    row("session_id, text", lambda session_id, text: None, "s1", Q),
    row("user, message", lambda user, message: None, "ada", Q),
    row("api_key, text", lambda api_key, text: None, "sk-proj-1a2b3c", Q),
    row("conversationId, userInput", lambda conversationId, userInput: None, "c9", Q),  # noqa: N803
    row("url, what", lambda url, what: None, "https://example.org/v1", Q),
    row("a UUID, b", lambda a, b: None, UUID, Q),
    row("db, k, question", lambda db, k, question: None, object(), 4, Q),
    row("Lambda event", lambda event, context: None, {"body": json.dumps({"question": Q})}, object()),
    row(
        "LangGraph state, config",
        lambda state, config: None,
        {"messages": [Said("human", Q)]},
        {"configurable": {"thread_id": "t1"}},
    ),
    row("**kw model, messages", with_names, model="gpt-4o", messages=CHAT),
    row("*args", with_rest, "s1", Q),
    row(
        "two text parts",
        lambda messages: None,
        [{"role": "user", "content": [{"type": "text", "text": "My lamp is broken."}, {"text": Q}]}],
        wanted=f"My lamp is broken.\n{Q}",
    ),
    row("Gemini contents", lambda contents: None, [{"role": "user", "parts": [{"text": Q}]}]),
    row("Gradio message, history", lambda message, history: None, Q, [["Do you sell lamps?", "Yes."]]),
    row("Gradio history", lambda history: None, [["Do you sell lamps?", "Yes."], [Q, None]]),
    row("prompt, messages", lambda prompt, messages: None, "You are a helpful clerk.", CHAT),
    row("template, variables", lambda template, variables: None, "Answer {question}", {"question": Q}),
    row("pydantic", lambda req: None, Body()),
    row("nested pydantic", lambda payload: None, Outer()),
    row("nested dataclass", lambda turn: None, Envelope("ada", Words(Q))),
    row("named tuple", lambda row: None, Row("s1", Q)),
    row("OpenAI body", lambda body: None, {"model": "gpt-4o", "user": "u1", "messages": CHAT}),
    row("inputs of a chain", lambda inputs: None, {"chat_history": PAST, "input": Q}),
    row("nested input", lambda event: None, {"input": {"messages": CHAT}, "config": {"model": "m"}}),
    row("method", Desk().ask, "s1", Q),
    row("class method", Desk.of_class, "c9", CHAT),
    row("static method", Desk.static, "u1", Q),
    row("bound method", Desk().thread, "t1", Q),
    row("partial", functools.partial(lambda k, user_id, msg: None, 3), "u1", Q),
    row("callable object", Called(), "s1", Q),
    row("email, body", lambda email, body: None, "ada@example.org", Q),
    row("region, topic", lambda region, topic: None, "eu-west-1", "refund policy", wanted="refund policy"),
    row("lang, Chinese", lambda lang, body: None, "zh", CHINESE, wanted=CHINESE),
    row("sprache, frage", lambda sprache, frage: None, "de", "Wie lange?", wanted="Wie lange?"),
    row("sessionid, inp", lambda sessionid, inp: None, "My Session", Q),
    row("parts of LangChain", lambda messages: None, [Said("human", [{"type": "text", "text": Q}])]),
    row("roles as enums", lambda messages: None, [Said(Role.USER, Q), Said(Role.ASSISTANT, "Yes.")]),
    row("pairs of role and text", lambda messages: None, [("system", "Be brief."), ("user", Q)]),
    row("object with messages", lambda chat: None, Chat()),
    row("chain, words", lambda chain, words: None, Chain(), Q),
    row("UUID object, Path, asked", lambda ident, where, asked: None, uuid.uuid4(), Path("/tmp"), Q),
    row("bytes", lambda user_id, raw: None, "u1", Q.encode()),
    row("defaults", lambda session_id="s", ask=Q: None),
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
    row("Telegram update", lambda update, context: None, Plain(message=Plain(text=Q)), object()),
    row("Chainlit message", lambda message: None, Plain(content=Q, author="ada")),
    row("query string", lambda event, context: None, {"queryStringParameters": {"q": Q}}, None),
    row(
        "senders",
        lambda req: None,
        {"conversation": [{"sender": "bot", "text": "Hi."}, {"sender": "user", "text": Q}]},
    ),
    row("question_type, question_text", lambda question_type, question_text: None, "open ended", Q),
    row("query_embedding, query_text", lambda query_embedding, query_text: None, [0.1, 0.2], Q),
    row("sql, question", lambda sql, question: None, "select * from faq", Q),
    row(
        "model, input",
        lambda model, input: None,  # noqa: A006
        "m",
        [{"role": "user", "content": [{"type": "input_text", "text": Q}]}],
    ),
    row("who, what", lambda who, what: None, "Ada Lovelace", Q),
    row("user object, text", lambda user, text: None, Plain(name="Ada", text="no"), Q),
    row("apiKey, ragQuery", lambda apiKey, ragQuery: None, "sk-1", Q),  # noqa: N803
    row("bytes of JSON", lambda request: None, Plain2(json.dumps({"question": Q}).encode())),
    row("JSON under any name", lambda raw: None, json.dumps({"question": Q})),
    row("user and bot", lambda turns: None, [{"user": "Hi", "bot": "Hello"}, {"user": Q, "bot": None}]),
    row("MCP arguments", lambda params: None, {"name": "ask", "arguments": {"query": Q}}),
    row("question None", lambda question=None, messages=None: None, None, CHAT),
    row("question blank", lambda question="", messages=None: None, "", CHAT),
    row("answer, question", lambda answer, question: None, A, Q),
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
    row("company,statement", lambda company, statement: None, "ACME Ltd", STATEMENT, wanted=STATEMENT),
    row("msg, ctx: dict", lambda msg, ctx: None, STATEMENT, {"question": "old one"}, wanted=STATEMENT),
    row("ws json", lambda ws, frame: None, object(), f'{{"type":"ask","text":"{Q}"}}'),
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
    row("user_agent", lambda user_agent, t: None, "Mozilla/5.0 (X11; Linux)", STATEMENT, wanted=STATEMENT),
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
    row("subject+body", lambda subject, body: None, "Refund please now", STATEMENT, wanted=STATEMENT),
    row("topic,k", lambda topic, k=5: None, "refund policy", wanted="refund policy"),
    row("one word q", lambda keyword: None, "refunds", wanted="refunds"),
    row("prompt list str", lambda prompts: None, [Q]),
    row("role, content", lambda role, content: None, "user", Q),
    row("previous_answer", lambda previous_answer, follow_up: None, "We sell lamps.", Q),
    row(
        "original_question, rewritten_question",
        lambda rewritten_query, original_question: None,
        "refund duration",
        Q,
    ),
    row("summary_of_memory", lambda memory, said: None, "User likes lamps. Lives in Rome.", Q),
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
    "list of generated_text": [{"generated_text": A}],
    "response_text": {"response_text": A, "session_id": "s1"},
    "sources, text": (["faq-12"], A),
    "text, sources": (A, ["faq-12"]),
    "documents, mapping": ([{"id": "faq-12", "text": "Refunds."}], {"answer": A}),
    "status, data": {"status": "ok", "data": {"answer": A}},
    "nested pydantic": Status(),
    "id, text": (UUID, A),
    "assistant_message": {"assistant_message": {"role": "assistant", "content": A}},
    "state of a graph": {"messages": [ASKED, {"role": "assistant", "content": A}], "session_id": "s1"},
    "answer_text beside context": {"context": "Refunds.", "prompt": "Answer:", "answer_text": A},
    "output with text": {"output": {"text": A}},
    "result with answer": {"result": {"answer": A, "confidence": 0.9}, "text": "raw"},
    "Gemini": {"candidates": [{"content": {"parts": [{"text": A}]}}]},
    "success, data": {"message": "success", "data": {"reply": A}},
    "answer with citations": {"answer": {"content": A, "citations": ["faq-12"]}},
    "generation": {"generation": A, "documents": [{"text": "Refunds."}]},
    "answer_html": {"answer_html": "<p>Refunds</p>", "answer": A},
    "score, text": (0.93, A),
    "answer_type first": {"answer_type": "short text", "answer_text": A},
    "expected_answer first": {"expected_answer": "Two weeks it is.", "actual_answer": A},
    "payload": {"ok": True, "payload": {"final_response": A, "trace_id": "x"}},
    "documents, object": ([{"text": "Refunds."}], Plain(answer=A)),
    "answers": {"answers": [{"answer": A, "score": 0.9}, {"answer": "No.", "score": 0.1}]},
    "object with final_output": Plain(final_output=A, raw_responses=[]),
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
