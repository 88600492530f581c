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

from pydantic import BaseModel

import ragtrace
from ragtrace import semconv
from tests.unit.capture.conftest import recording_with

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


class Body(BaseModel):
    user_id: str = "u1"
    query: str = Q


class Ticket(BaseModel):
    id: str = "T1"
    customer: str = "ACME Ltd"
    question_text: str = Q
    priority: str = "very high"


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


class Desk:
    @classmethod
    @ragtrace.rag
    def of_class(cls, conversation_id, messages):
        pass


class Called:
    def __call__(self, session, words):
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
    row("Gradio history", lambda history: None, [["Do you sell lamps?", "Yes."], [Q, None]]),
    row("api_key, text", lambda api_key, text: None, "sk-proj-1a2b3c", Q),
    row("conversationId, userInput", lambda conversationId, userInput: None, "c9", Q),  # noqa: N803
    row("db, k, question", lambda db, k, question: None, object(), 4, Q),
    row("Lambda event", lambda event, context: None, {"body": json.dumps({"question": Q})}, object()),
    row(
        "LangGraph state, config",
        lambda state, config: None,
        {"messages": [Said("human", Q)]},
        {"configurable": {"thread_id": "t1"}},
    ),
    row(
        "two text parts",
        lambda messages: None,
        [{"role": "user", "content": [{"type": "text", "text": "My lamp is broken."}, {"text": Q}]}],
        wanted=f"My lamp is broken.\n{Q}",
    ),
    row("Gradio message, history", lambda message, history: None, Q, [["Do you sell lamps?", "Yes."]]),
    row("pydantic", lambda req: None, Body()),
    row("nested pydantic", lambda payload: None, Outer()),
    row("named tuple", lambda row: None, Row("s1", Q)),
    row("OpenAI body", lambda body: None, {"model": "gpt-4o", "user": "u1", "messages": CHAT}),
    row("class method", Desk.of_class, "c9", CHAT),
    row("partial", functools.partial(lambda k, user_id, msg: None, 3), "u1", Q),
    row("callable object", Called(), "s1", Q),
    row("lang, Chinese", lambda lang, body: None, "zh", CHINESE, wanted=CHINESE),
    row("roles as enums", lambda messages: None, [Said(Role.USER, Q), Said(Role.ASSISTANT, "Yes.")]),
    row("pairs of role and text", lambda messages: None, [("system", "Be brief."), ("user", Q)]),
    row("UUID object, Path, asked", lambda ident, where, asked: None, uuid.uuid4(), Path("/tmp"), Q),
    row("context, problem", lambda context, problem: None, "Refunds take 14 days.", Q),
    row("only an id", lambda session_id: None, "s1", wanted=None),
    row("two texts", lambda left, right: None, "The lamp is red.", "The lamp is blue.", wanted=None),
]


# invented after the rules were written, to count how many they read


# the same again, after those were mended


def test_the_question_is_the_right_argument() -> None:
    for name, function, args, kwargs, wanted in REPORTED + HELD_OUT:
        decorated = function if hasattr(function, "__wrapped__") else ragtrace.rag(function)
        with recording_with() as recorded:
            decorated(*args, **kwargs)
        assert recorded.question == wanted, name


class Status(BaseModel):
    status: str = "ok"
    data: dict[str, str] = {"answer": A}


ANSWERS = (
    {"question": Q, "final_answer": A},
    (["faq-12"], A),
    (A, ["faq-12"]),
    Status(),
    {"messages": [ASKED, {"role": "assistant", "content": A}], "session_id": "s1"},
    {"context": "Refunds.", "prompt": "Answer:", "answer_text": A},
    {"result": {"answer": A, "confidence": 0.9}, "text": "raw"},
    {"generation": A, "documents": [{"text": "Refunds."}]},
    (0.93, A),
    {"expected_answer": "Two weeks it is.", "actual_answer": A},
    {"ok": True, "payload": {"final_response": A, "trace_id": "x"}},
    {"answers": [{"answer": A, "score": 0.9}, {"answer": "No.", "score": 0.1}]},
    ([("user", Q), ("assistant", A)],),
    {"id": "x", "choices": [{"message": {"role": "assistant", "content": A}}]},
)


NO_ANSWERS = (
    {"session_id": "s1", "model": "gpt-4o"},
    {"sources": ["faq-12"], "context": "Refunds take 14 days."},
    {"question": Q, "status": "ok"},
)


def test_the_answer_is_the_right_part_of_the_result_or_nothing() -> None:
    for result, answer in (*((each, A) for each in ANSWERS), *((each, None) for each in NO_ANSWERS)):
        with recording_with() as recorded:
            ragtrace.rag(lambda question, result=result: result)(Q)
        assert recorded.answer == answer, result


def test_the_prompt_is_the_right_argument() -> None:
    prompts: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...] = (
        (lambda model, user_prompt: A, ("gpt 4o", Q)),
        (lambda system_prompt, user_prompt: A, ("You are a clerk.", Q)),
        (lambda payload: A, ({"model": "gpt-4o", "messages": CHAT},)),
        (lambda question, messages: A, (STATEMENT, CHAT)),
    )
    for function, args in prompts:
        with recording_with() as recorded:
            ragtrace.generation(function)(*args)
        messages = json.loads(recorded.span("generation").attributes[semconv.INPUT_MESSAGES])
        assert messages[-1]["parts"][0]["content"] == Q, args
