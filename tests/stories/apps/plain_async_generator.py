"""Code of one's own that streams: the helpers are decorators of async generators."""

import asyncio
import sys
from collections.abc import AsyncIterator

import ragtrace

ragtrace.instrument(service_name="support-bot")


@ragtrace.retrieval(data_source="faq", top_k=2)
async def search(query: str) -> list[dict[str, object]]:
    return [{"id": "faq-12", "text": "Refunds take 14 days.", "score": 0.93}]


@ragtrace.generation(model="my-model")
async def complete(prompt: str) -> AsyncIterator[str]:
    yield "Refunds take "
    yield "30 days."


@ragtrace.rag(name="support")
async def ask(question: str) -> AsyncIterator[str]:
    chunks = await search(question)
    async for piece in complete(f"{chunks[0]['text']}\n\n{question}"):
        yield piece


async def main() -> None:
    print("".join([piece async for piece in ask(sys.argv[1])]))


asyncio.run(main())
