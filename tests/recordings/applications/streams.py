"""Streamed answers: read whole, left after the first piece, cancelled there, or broken off in the middle."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

from tests.recordings.applications.agents import pydantic_ai
from tests.recordings.applications.application import MODEL, Application, Json, plain_search
from tests.recordings.applications.on_langchain import langchain
from tests.recordings.applications.on_llamaindex import nodes_of

Pieces = AsyncGenerator[str, None]
ENDINGS = ("whole", "left", "cancelled", "broken")
_QUESTION = "How long does the warranty last?"


def _openai_chat(ending: str) -> Application:
    import ragtrace

    handbook = import_module("handbook")

    @ragtrace.rag
    async def answer(question: str) -> Pieces:
        from openai import AsyncOpenAI

        async with AsyncOpenAI(base_url=_url(ending)) as client:
            stream = await client.chat.completions.create(
                model=MODEL,
                messages=[
                    {"role": "system", "content": handbook.prompt(handbook.search(question))},
                    {"role": "user", "content": question},
                ],
                stream=True,
            )
            async for event in stream:
                if event.choices and event.choices[0].delta.content:
                    yield event.choices[0].delta.content

    return _streamed(answer, ending)


def _openai_responses(ending: str) -> Application:
    import ragtrace

    handbook = import_module("handbook")

    @ragtrace.rag
    async def answer(question: str) -> Pieces:
        from openai import AsyncOpenAI

        async with AsyncOpenAI(base_url=_url(ending)) as client:
            stream = await client.responses.create(
                model=MODEL,
                instructions=handbook.prompt(handbook.search(question)),
                input=question,
                stream=True,
            )
            async for event in stream:
                if event.type == "response.output_text.delta":
                    yield event.delta

    return _streamed(answer, ending)


def _langchain(ending: str) -> Application:
    app = import_module("langchain_app")

    @functools.cache
    def chain() -> Any:
        found = {"context": app.retriever() | app.in_one_text, "question": app.RunnablePassthrough()}
        return found | app.PROMPT | app.ChatOpenAI(model=MODEL, base_url=_url(ending)) | app.StrOutputParser()

    answered = _streamed(lambda question: chain().astream(question), ending)
    return replace(answered, prepare=chain, chunks=langchain().chunks)


def _llamaindex(ending: str) -> Application:
    app = import_module("llamaindex_app")

    @functools.cache
    def index() -> Any:
        nodes = [app.TextNode(id_=name, text=text) for name, text in app.CHUNKS.items()]
        embedder = app.OpenAIEmbedding(model="text-embedding-3-small", api_base=_url(ending))
        return app.VectorStoreIndex(nodes, embed_model=embedder)

    async def answer(question: str) -> Pieces:
        model = app.OpenAI(model=MODEL, api_base=_url(ending))
        engine = index().as_query_engine(llm=model, similarity_top_k=3, streaming=True)
        response = await engine.aquery(question)
        async for piece in response.async_response_gen():
            yield piece

    def chunks(question: str) -> list[Json]:
        return nodes_of(index().as_retriever(similarity_top_k=3).retrieve(question))

    return replace(_streamed(answer, ending), prepare=index, chunks=chunks)


def _pydantic_ai(ending: str) -> Application:
    app = import_module("pydantic_ai_app")

    @functools.cache
    def agent() -> Any:
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=_url(ending)))
        return app.Agent(model, name="handbook", tools=[app.retrieve])

    async def answer(question: str) -> Pieces:
        async with agent().run_stream(question) as run:
            async for piece in run.stream_text(delta=True, debounce_by=None):
                yield piece

    return replace(
        _streamed(answer, ending), prepare=lambda: (agent(), app.index()), chunks=pydantic_ai().chunks
    )


def _streamed(answer: Callable[[str], Pieces], ending: str) -> Application:
    return Application(
        question=_QUESTION,
        prepare=import_module("handbook").index,
        ask=lambda question: _asked(answer(question), ending),
        chunks=plain_search,
    )


def _asked(pieces: Pieces, ending: str) -> str:
    """Read a stream to its ending, and let go of everything, as a server does that goes on."""
    read: list[str] = []
    asyncio.run(_read(pieces, read, ending))
    gc.collect()
    return "".join(read)


async def _read(pieces: Pieces, read: list[str], ending: str) -> None:
    first = asyncio.Event()

    async def consume() -> None:
        with suppress(GeneratorExit):  # pydantic-ai raises it again
            async with aclosing(pieces):
                async for piece in pieces:
                    read.append(piece)
                    if not piece:  # LangChain's first, before there is a word
                        continue
                    first.set()
                    if ending == "left":
                        break
                    if ending == "cancelled":
                        await asyncio.Event().wait()

    task = asyncio.create_task(consume())
    if ending == "cancelled":
        await first.wait()
        task.cancel()
    with suppress(Exception if ending == "broken" else asyncio.CancelledError):
        await task


def _url(ending: str) -> str:
    url = os.environ["OPENAI_BASE_URL"]
    return url.replace("/v1", "/breaking/v1") if ending == "broken" else url


STREAMS: dict[str, Callable[[], Application]] = {
    f"{producer}-{ending}": functools.partial(made, ending)
    for producer, made in (
        ("openai-chat", _openai_chat),
        ("openai-responses", _openai_responses),
        ("langchain", _langchain),
        ("llamaindex", _llamaindex),
        ("pydantic-ai", _pydantic_ai),
    )
    for ending in ENDINGS
}
