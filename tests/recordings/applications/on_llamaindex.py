"""Applications on LlamaIndex."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from itertools import product
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

    async def run(question: str) -> str:
        from llama_index.core.agent.workflow import FunctionAgent

        async def retrieve(query: str) -> str:
            """Find passages of the handbook."""
            found = await _llamaindex().as_retriever(similarity_top_k=3).aretrieve(query)
            return "\n\n".join(each.text for each in found)

        return str(await FunctionAgent(name="handbook", tools=[retrieve], llm=_model()).run(question))

    return Application(
        question=TWO_QUESTIONS,
        prepare=_llamaindex,
        ask=lambda question: asyncio.run(run(question)),
        chunks=lambda question: union(
            nodes_of(_llamaindex().as_retriever(similarity_top_k=3).retrieve(part))
            for part in parts(question)
        ),
    )


def llamaindex_streaming() -> Application:
    engine = functools.cache(lambda: _engine(_llamaindex(), streaming=True))
    return _llamaindex_with(engine, question="When does a refund reach my account?")


def llamaindex_reranker() -> Application:
    """Five nodes are found, a postprocessor keeps two."""
    engine = functools.cache(lambda: _engine(_llamaindex(), node_postprocessors=[_shortest_first()]))
    return _llamaindex_with(engine, question="What does the warranty cover?")


def llamaindex_many() -> Application:
    """Forty-eight nodes: in attributes of their own, more than the 128 that the SDK keeps."""
    return _llamaindex_with(_many, question="How long do repairs take in branch 7?")


def llamaindex_fusion() -> Application:
    """Two retrievers under one."""
    return _llamaindex_with(_fusion, question="What does shipping cost?")


def llamaindex_chat() -> Application:
    """A chat: the question is rewritten before it is searched for."""

    def chat(question: str) -> Any:
        from llama_index.core.llms import ChatMessage

        turns = zip(("user", "assistant"), HISTORY, strict=True)
        history = [ChatMessage(role=role, content=text) for role, text in turns]
        mode = "condense_plus_context"
        engine = _llamaindex().as_chat_engine(chat_mode=mode, llm=_model(), similarity_top_k=3)
        return engine.chat(question, chat_history=history)

    return Application(
        question=FOLLOW_UP,
        prepare=_llamaindex,
        ask=lambda question: str(chat(question)),
        chunks=lambda question: nodes_of(chat(question).source_nodes),
    )


def _llamaindex_with(engine: Callable[[], Any], *, question: str) -> Application:
    return Application(
        question=question,
        prepare=engine,
        ask=lambda asked: str(engine().query(asked)),
        chunks=lambda asked: nodes_of(engine().query(asked).source_nodes),
    )


@functools.cache
def _llamaindex() -> Any:
    return _index(import_module("llamaindex_app").CHUNKS)


def _index(chunks: Mapping[str, str]) -> Any:
    app = import_module("llamaindex_app")
    nodes = [app.TextNode(id_=name, text=text) for name, text in chunks.items()]
    embedder = app.OpenAIEmbedding(model="text-embedding-3-small", api_base=app.BASE_URL)
    return app.VectorStoreIndex(nodes, embed_model=embedder)


def _model() -> Any:
    app = import_module("llamaindex_app")
    return app.OpenAI(model=MODEL, api_base=app.BASE_URL)


def _engine(index: Any, top_k: int = 5, **options: Any) -> Any:
    return index.as_query_engine(llm=_model(), similarity_top_k=top_k, **options)


@functools.cache
def _many() -> Any:
    chunks = import_module("llamaindex_app").CHUNKS.items()
    branches = product(range(1, 9), chunks)
    return _engine(
        _index({f"{name}-{branch}": f"Branch {branch}: {text}" for branch, (name, text) in branches}), 48
    )


@functools.cache
def _fusion() -> Any:
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.retrievers import QueryFusionRetriever

    retrievers = [_llamaindex().as_retriever(similarity_top_k=count) for count in (2, 3)]
    fused = QueryFusionRetriever(retrievers, llm=_model(), num_queries=1, similarity_top_k=3, use_async=False)
    return RetrieverQueryEngine.from_args(fused, llm=_model())


def _shortest_first() -> Any:
    from llama_index.core.postprocessor.types import BaseNodePostprocessor

    class ShortestFirst(BaseNodePostprocessor):
        def _postprocessnodes_of(self, nodes: Any, query_bundle: Any = None) -> Any:
            return sorted(nodes, key=lambda found: len(found.text))[:2]

    return ShortestFirst()


def nodes_of(found: Iterable[Any]) -> list[Json]:
    return [chunk(each.node.node_id, each.text, each.score) for each in found]
