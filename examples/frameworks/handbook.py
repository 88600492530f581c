"""A retriever written by hand, for the applications that have no framework to retrieve for them.

No library can know that ``search`` is a retriever: ``@ragtrace.retrieval`` says so. It does nothing
until ``ragtrace.instrument()`` was called.
"""

import functools

from corpus import CHUNKS
from openai import OpenAI

import ragtrace


@ragtrace.retrieval(data_source="handbook", top_k=3)
def search(question: str) -> list[ragtrace.Chunk]:
    asked = embed([question])[0]
    found = [
        ragtrace.Chunk(
            id=name, text=CHUNKS[name], score=sum(a * b for a, b in zip(asked, vector, strict=True))
        )
        for name, vector in index().items()
    ]
    return sorted(found, key=lambda chunk: chunk.score, reverse=True)[:3]


@functools.cache
def index() -> dict[str, list[float]]:
    return dict(zip(CHUNKS, embed(list(CHUNKS.values())), strict=True))


def embed(texts: list[str]) -> list[list[float]]:
    found = OpenAI().embeddings.create(model="text-embedding-3-small", input=texts)
    return [item.embedding for item in found.data]


def prompt(chunks: list[ragtrace.Chunk]) -> str:
    passages = "\n".join(f"[{chunk.id}] {chunk.text}" for chunk in chunks)
    return f"Answer from these passages of our handbook only.\n\n{passages}"
