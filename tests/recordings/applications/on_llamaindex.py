"""Applications on LlamaIndex."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from typing import Any

from tests.recordings.applications.application import (
    FOLLOW_UP,
    HISTORY,
    MODEL,
    TWO_QUESTIONS,
    Application,
    Json,
    chunk,
    parts,
    union,
)


def llamaindex() -> Application:
    app = import_module("llamaindex_app")
    return _llamaindex_with(app.query_engine, question="Who pays for the shipping of a return?")


def llamaindex_async() -> Application:
    app = import_module("llamaindex_app")

    async def read(question: str) -> str:
        return str(await app.query_engine().aquery(question))

    return replace(llamaindex(), ask=lambda question: asyncio.run(read(question)))


def llamaindex_agent() -> Application:
    """An agent that retrieves by a tool, twice."""
    app = import_module("llamaindex_app")

    async def run(question: str) -> str:
        from llama_index.core.agent.workflow import FunctionAgent

        async def retrieve(query: str) -> str:
            """Find passages of the handbook."""
            found = await _llamaindex().as_retriever(similarity_top_k=3).aretrieve(query)
            return "\n\n".join(each.text for each in found)

        agent = FunctionAgent(
            name="handbook", tools=[retrieve], llm=app.OpenAI(model=MODEL, api_base=app.BASE_URL)
        )
        return str(await agent.run(question))

    return Application(
        question=TWO_QUESTIONS,
        prepare=_llamaindex,
        ask=lambda question: asyncio.run(run(question)),
        chunks=lambda question: union(
            _nodes(_llamaindex().as_retriever(similarity_top_k=3).retrieve(part)) for part in parts(question)
        ),
    )


def llamaindex_streaming() -> Application:
    return _llamaindex_with(
        functools.cache(lambda: _llamaindex_engine(streaming=True)),
        question="When does a refund reach my account?",
    )


def llamaindex_reranker() -> Application:
    """Five nodes are found, a postprocessor keeps two."""
    return _llamaindex_with(
        functools.cache(lambda: _llamaindex_engine(node_postprocessors=[_shortest_first()])),
        question="What does the warranty cover?",
    )


def llamaindex_many() -> Application:
    """Forty-eight nodes: in attributes of their own, more than the 128 that the SDK keeps."""
    return _llamaindex_with(
        functools.cache(_llamaindex_many), question="How long do repairs take in branch 7?"
    )


def llamaindex_fusion() -> Application:
    """Two retrievers under one."""
    return _llamaindex_with(functools.cache(_llamaindex_fusion), question="What does shipping cost?")


def llamaindex_chat() -> Application:
    """A chat: the question is rewritten before it is searched for."""
    app = import_module("llamaindex_app")

    def chat(question: str) -> Any:
        from llama_index.core.llms import ChatMessage

        history = [
            ChatMessage(role="user", content=HISTORY[0]),
            ChatMessage(role="assistant", content=HISTORY[1]),
        ]
        model = app.OpenAI(model=MODEL, api_base=app.BASE_URL)
        engine = _llamaindex().as_chat_engine(
            chat_mode="condense_plus_context", llm=model, similarity_top_k=3
        )
        return engine.chat(question, chat_history=history)

    return Application(
        question=FOLLOW_UP,
        prepare=_llamaindex,
        ask=lambda question: str(chat(question)),
        chunks=lambda question: _nodes(chat(question).source_nodes),
    )


def _llamaindex_with(engine: Callable[[], Any], *, question: str) -> Application:
    return Application(
        question=question,
        prepare=engine,
        ask=lambda asked: str(engine().query(asked)),
        chunks=lambda asked: _nodes(engine().query(asked).source_nodes),
    )


@functools.cache
def _llamaindex() -> Any:
    app = import_module("llamaindex_app")
    nodes = [app.TextNode(id_=name, text=text) for name, text in app.CHUNKS.items()]
    embedder = app.OpenAIEmbedding(model="text-embedding-3-small", api_base=app.BASE_URL)
    return app.VectorStoreIndex(nodes, embed_model=embedder)


def _llamaindex_engine(**options: Any) -> Any:
    app = import_module("llamaindex_app")
    model = app.OpenAI(model=MODEL, api_base=app.BASE_URL)
    return _llamaindex().as_query_engine(llm=model, similarity_top_k=5, **options)


def _llamaindex_many() -> Any:
    app = import_module("llamaindex_app")
    nodes = [
        app.TextNode(id_=f"{name}-{branch}", text=f"Branch {branch}: {text}")
        for branch in range(1, 9)
        for name, text in app.CHUNKS.items()
    ]
    embedder = app.OpenAIEmbedding(model="text-embedding-3-small", api_base=app.BASE_URL)
    model = app.OpenAI(model=MODEL, api_base=app.BASE_URL)
    return app.VectorStoreIndex(nodes, embed_model=embedder).as_query_engine(llm=model, similarity_top_k=48)


def _llamaindex_fusion() -> Any:
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.retrievers import QueryFusionRetriever

    app = import_module("llamaindex_app")
    model = app.OpenAI(model=MODEL, api_base=app.BASE_URL)
    retrievers = [_llamaindex().as_retriever(similarity_top_k=count) for count in (2, 3)]
    fused = QueryFusionRetriever(retrievers, llm=model, num_queries=1, similarity_top_k=3, use_async=False)
    return RetrieverQueryEngine.from_args(fused, llm=model)


def _shortest_first() -> Any:
    from llama_index.core.postprocessor.types import BaseNodePostprocessor

    class ShortestFirst(BaseNodePostprocessor):
        def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
            return sorted(nodes, key=lambda found: len(found.text))[:2]

    return ShortestFirst()


def _nodes(found: Iterable[Any]) -> list[Json]:
    return [chunk(each.node.node_id, each.text, each.score) for each in found]
