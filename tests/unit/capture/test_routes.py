"""Routes of FastAPI and Starlette under `@ragtrace.rag`: what is recorded, and that nothing else changes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Callable, Iterator
from typing import Annotated, Any

import httpx
import pytest
from fastapi import BackgroundTasks, Body, Depends, FastAPI, Header
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from pydantic import BaseModel
from starlette.requests import Request

import ragtrace
from ragtrace import semconv

QUESTION, ANSWER = "Who?", "Ada"


class Ask(BaseModel):
    prompt: str


class Told(BaseModel):
    answer: str


def tenant() -> str:
    return "tenant"


def events(pieces: str) -> Iterator[str]:
    for piece in pieces:
        yield f"data: {json.dumps({'choices': [{'delta': {'content': piece}}]})}\n\n"
    yield "data: [DONE]\n\n"


def from_model(body: Ask) -> Told:
    return Told(answer=ANSWER)


def from_mapping(body: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
    return {"result": ANSWER, "sources": []}


async def from_request(request: Request) -> JSONResponse:
    return JSONResponse({"answer": ANSWER, "asked": await request.json()})


def beside_others(
    user: Annotated[str, Header()], body: Ask, tenant: Annotated[str, Depends(tenant)]
) -> PlainTextResponse:
    return PlainTextResponse(ANSWER, headers={"x-user": user, "x-tenant": tenant})


def streamed(body: Ask) -> StreamingResponse:
    return StreamingResponse(iter(ANSWER), media_type="text/plain", headers={"x-user": "a"})


async def streamed_events(body: Ask) -> StreamingResponse:
    return StreamingResponse(events(ANSWER), media_type="text/event-stream")


async def yielded(body: Ask) -> AsyncIterable[Told]:
    for piece in ANSWER:
        yield Told(answer=piece)


ASKED = {"prompt": QUESTION}
CHAT = {"messages": [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": "?"}]}


async def post(route: Callable[..., Any], asked: Any, *, traced: bool = True) -> httpx.Response:
    app = FastAPI()
    app.post("/", response_model=None if route is not from_model else Told)(
        ragtrace.rag(route) if traced else route
    )
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
        return await client.post("/", json=asked, headers={"user": "a"})


@pytest.mark.parametrize(
    ("route", "asked"),
    [
        (from_model, ASKED),
        (from_mapping, {"query": QUESTION}),
        (from_request, {"question": QUESTION}),
        (from_request, CHAT),
        (beside_others, ASKED),
        (streamed, ASKED),
        (streamed_events, ASKED),
        (yielded, ASKED),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_route_records_its_question_and_answer_and_answers_as_before(
    recorded: Any, route: Callable[..., Any], asked: Any
) -> None:
    before = await post(route, asked, traced=False)
    after = await post(route, asked)
    assert (recorded.question, recorded.answer) == (QUESTION, ANSWER)
    assert (after.status_code, after.content, after.headers) == (200, before.content, before.headers)
    assert recorded.span("rag").attributes.get(semconv.RAG_STREAM_COMPLETE, True) is True


async def get(app: Any, **asked: str) -> str:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client:
        return (await client.get("/", params=asked)).text


async def test_background_tasks_still_run_and_what_a_body_retrieves_belongs_to_the_route(
    recorded: Any,
) -> None:
    ran: list[str] = []

    def ask(question: str, tasks: BackgroundTasks) -> StreamingResponse:
        def pieces() -> Iterator[str]:
            with ragtrace.retrieval(query=question):
                yield ANSWER

        tasks.add_task(ran.append, question)
        return StreamingResponse(pieces(), background=tasks)

    app = FastAPI()
    app.get("/")(ragtrace.rag(ask))
    assert await get(app, question=QUESTION) == ANSWER
    assert ran == [QUESTION]
    assert recorded.span("retrieval").parent == recorded.span("rag").context


async def test_an_error_of_a_route_is_no_answer(recorded: Any, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(body: Ask) -> JSONResponse:
        return JSONResponse({"message": "no"}, status_code=500)

    assert (await post(refuse, ASKED)).status_code == 500
    assert (recorded.question, recorded.answer) == (QUESTION, None)
    assert [record.message for record in caplog.records if record.name.startswith("ragtrace")] == []


async def test_a_request_without_a_question_is_told_once_and_counted(
    recorded: Any, caplog: pytest.LogCaptureFixture
) -> None:
    counted = ragtrace.statistics().values_unread
    for _ in range(2):
        await post(from_request, {"secret": 7})
    assert ragtrace.statistics().values_unread == counted + 2
    assert [message for message in caplog.messages if "ragtrace" in message] == [
        (
            "ragtrace: no argument of from_request is surely the question, so none is recorded: name it with "
            "@ragtrace.rag(question=…), as a parameter's name or a function of the arguments"
        )
    ]


@pytest.mark.parametrize(
    ("pieces", "answer"),
    [
        (["data: A\n\n", "data: da\n\n"], "Ada"),
        ([b"data: \xc3", b"\xa9t", b"\xc3\xa9\n", b"\ndata: !\r\n\r\n"], "été!"),
        (["event: sources\ndata: [1]\n\n", "event: token\ndata: Ada\n\n", ": ping\n\n"], "Ada"),
        (['data: {"type":"response.output_text.delta","delta":"Ada"}\n\n'] * 1, "Ada"),
        (['data: {"type":"reasoning-delta","delta":"hm"}\n\n', 'data: "Ada"\n\n'], "Ada"),
        (["data: {no json\n\n"], "{no json"),
        (["data:", " is a word"], "data: is a word"),
    ],
)
def test_server_sent_events_are_read_and_passed_on_unchanged(
    recorded: Any, pieces: list[Any], answer: str
) -> None:
    @ragtrace.rag
    def ask(question: str) -> Iterator[Any]:
        yield from pieces

    assert list(ask(QUESTION)) == pieces
    assert recorded.answer == answer
