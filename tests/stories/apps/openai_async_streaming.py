"""OpenAI's asynchronous client, streaming, over a retriever of one's own."""

import asyncio
import sys
from collections.abc import AsyncIterator

from openai import AsyncOpenAI

import ragtrace

ragtrace.instrument(service_name="support-bot")


@ragtrace.retrieval(data_source="faq")
def search(query: str) -> list[str]:
    return ["The warranty on every lamp lasts 24 months. It starts on the day of delivery."]


@ragtrace.rag
async def ask(question: str) -> AsyncIterator[str]:
    async with AsyncOpenAI() as client:
        stream = await client.chat.completions.create(
            model="gpt-4.1-mini",
            messages=[
                {"role": "system", "content": f"Answer from these passages only.\n\n{search(question)[0]}"},
                {"role": "user", "content": question},
            ],
            stream=True,
        )
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content


async def main() -> None:
    async for piece in ask(sys.argv[1]):
        print(piece, end="", flush=True)


asyncio.run(main())
