"""OpenAI's asynchronous client, with a retriever written by hand.

    python examples/frameworks/openai_async.py "What does the warranty cover?"

The one line captures the chat. ``@ragtrace.rag`` marks the call as a whole and ``@ragtrace.retrieval`` its
retriever: in code written by hand, no library can know which functions these are.
"""

import asyncio
import sys

from corpus import CHUNKS
from handbook import prompt
from openai import AsyncOpenAI

import ragtrace


@ragtrace.rag
async def answer(question: str) -> str:
    async with AsyncOpenAI() as client:
        chunks = await search(client, question)
        completion = await client.chat.completions.create(
            model="gpt-4.1-mini",
            messages=[
                {"role": "system", "content": prompt(chunks)},
                {"role": "user", "content": question},
            ],
        )
    return completion.choices[0].message.content


@ragtrace.retrieval(data_source="handbook", top_k=3)
async def search(client: AsyncOpenAI, question: str) -> list[ragtrace.Chunk]:
    found = await client.embeddings.create(model="text-embedding-3-small", input=[question, *CHUNKS.values()])
    asked, *vectors = [item.embedding for item in found.data]
    chunks = [
        ragtrace.Chunk(id=name, text=text, score=sum(a * b for a, b in zip(asked, vector, strict=True)))
        for (name, text), vector in zip(CHUNKS.items(), vectors, strict=True)
    ]
    return sorted(chunks, key=lambda chunk: chunk.score, reverse=True)[:3]


def ask(question: str) -> str:
    return asyncio.run(answer(question))


if __name__ == "__main__":
    ragtrace.instrument(service_name="openai-async")
    print(ask(" ".join(sys.argv[1:]) or "What does the warranty cover?"))
