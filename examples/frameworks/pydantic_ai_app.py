"""pydantic-ai: an agent that retrieves by a tool.

    python examples/frameworks/pydantic_ai_app.py "What does the warranty cover?"

The one line captures the agent's run with its tools and its model.
"""

import functools
import sys

from corpus import CHUNKS
from openai import OpenAI
from pydantic_ai import Agent

import ragtrace


def ask(question: str) -> str:
    return agent().run_sync(question).output


@functools.cache
def agent() -> Agent[None, str]:
    return Agent(
        "openai:gpt-4.1-mini",
        name="handbook",
        instructions="Look the question up with `retrieve`, and answer from what it returns only.",
        tools=[retrieve],
    )


def retrieve(query: str) -> list[dict[str, str | float]]:
    """Find passages of the handbook.

    Args:
        query: What to look for.
    """
    asked = embed([query])[0]
    found = [
        {"id": name, "text": CHUNKS[name], "score": sum(a * b for a, b in zip(asked, vector, strict=True))}
        for name, vector in index().items()
    ]
    return sorted(found, key=lambda chunk: chunk["score"], reverse=True)[:3]


@functools.cache
def index() -> dict[str, list[float]]:
    return dict(zip(CHUNKS, embed(list(CHUNKS.values())), strict=True))


def embed(texts: list[str]) -> list[list[float]]:
    found = OpenAI().embeddings.create(model="text-embedding-3-small", input=texts)
    return [item.embedding for item in found.data]


if __name__ == "__main__":
    ragtrace.instrument(service_name="pydantic-ai-app")
    print(ask(" ".join(sys.argv[1:]) or "What does the warranty cover?"))
