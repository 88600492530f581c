"""Applications on Haystack."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from tests.recordings.applications.application import MODEL, Application, Json, chunk


def haystack() -> Application:
    app = import_module("haystack_app")

    def chunks(question: str) -> list[Json]:
        given = {"embedder": {"text": question}, "prompt": {"question": question}}
        found = app.pipeline().run(given, include_outputs_from={"retriever"})
        return _contents(found["retriever"]["documents"])

    return Application(
        question="When does a refund reach my account?", prepare=app.pipeline, ask=app.ask, chunks=chunks
    )


def haystack_hybrid() -> Application:
    """Two retrievers, a joiner, a ranker: the ranker's three documents are what the model gets."""
    app = import_module("haystack_app")

    @functools.cache
    def pipeline() -> Any:
        from haystack.components.joiners import DocumentJoiner
        from haystack.components.rankers import LostInTheMiddleRanker
        from haystack.components.retrievers.in_memory import InMemoryBM25Retriever

        made = app.Pipeline()
        made.add_component("embedder", app.OpenAITextEmbedder(model="text-embedding-3-small"))
        made.add_component("by_vector", app.InMemoryEmbeddingRetriever(app.store(), top_k=3))
        made.add_component("by_words", InMemoryBM25Retriever(app.store(), top_k=3))
        made.add_component("joiner", DocumentJoiner(join_mode="reciprocal_rank_fusion"))
        made.add_component("ranker", LostInTheMiddleRanker(top_k=3))
        made.add_component("prompt", app.ChatPromptBuilder(template=app.TEMPLATE, required_variables="*"))
        made.add_component("llm", app.OpenAIChatGenerator(model=MODEL))
        made.connect("embedder.embedding", "by_vector.query_embedding")
        made.connect("by_vector", "joiner")
        made.connect("by_words", "joiner")
        made.connect("joiner.documents", "ranker.documents")
        made.connect("ranker.documents", "prompt.documents")
        made.connect("prompt.prompt", "llm.messages")
        return made

    def run(question: str) -> Any:
        given = {
            "embedder": {"text": question},
            "by_words": {"query": question},
            "prompt": {"question": question},
        }
        return pipeline().run(given, include_outputs_from={"ranker"})

    return Application(
        question="Who pays for the shipping of a return?",
        prepare=pipeline,
        ask=lambda question: run(question)["llm"]["replies"][0].text,
        chunks=lambda question: _contents(run(question)["ranker"]["documents"]),
    )


def _contents(found: Iterable[Any]) -> list[Json]:
    return [chunk(document.id, document.content, document.score) for document in found]
