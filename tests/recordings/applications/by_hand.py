"""Applications on a provider's SDK, without a framework."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from importlib import import_module
from typing import Any

from tests.recordings.applications.application import (
    MODEL,
    TWO_QUESTIONS,
    Application,
    Json,
    chunk,
    complete,
    parts,
    plain,
    plain_search,
    union,
)


def openai_chat() -> Application:
    return _by_hand("openai_chat", "How long does the warranty last?")


def openai_responses() -> Application:
    return _by_hand("openai_responses", "Who pays for the shipping of a return?")


def openai_streaming() -> Application:
    return _by_hand("openai_streaming", "When does a refund reach my account?")


def anthropic() -> Application:
    return _by_hand("anthropic_app", "How long do repairs take?", model="claude-sonnet-5")


def anthropic_streaming() -> Application:
    handbook = import_module("handbook")

    def ask(question: str) -> str:
        from anthropic import Anthropic

        with Anthropic().messages.stream(**_to_claude(handbook, question)) as stream:
            return "".join(stream.text_stream)

    return replace(anthropic(), ask=ask)


def anthropic_async() -> Application:
    handbook = import_module("handbook")

    async def answer(question: str) -> str:
        from anthropic import AsyncAnthropic

        async with AsyncAnthropic() as client:
            message = await client.messages.create(**_to_claude(handbook, question))
        return str(message.content[0].text)

    return replace(anthropic(), ask=lambda question: asyncio.run(answer(question)))


def anthropic_tools() -> Application:
    """A loop that calls the tool as often as the model asks for it, which is twice."""
    from anthropic import Anthropic

    schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    tool = {"name": "retrieve", "description": "Find passages of the handbook.", "input_schema": schema}

    def ask(question: str) -> str:
        messages: list[Json] = [{"role": "user", "content": question}]
        while True:
            reply = Anthropic().messages.create(
                model="claude-sonnet-5", max_tokens=500, tools=[tool], messages=messages
            )
            calls = [block for block in reply.content if block.type == "tool_use"]
            if not calls:
                return str(reply.content[0].text)
            messages.append({"role": "assistant", "content": [call.to_dict() for call in calls]})
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": _passages(call.input["query"])}
                for call in calls
            ]
            messages.append({"role": "user", "content": results})

    return replace(_tools(ask), model="claude-sonnet-5")


def openai_tools() -> Application:
    """A loop that calls the tool as often as the model asks for it, which is twice."""
    from openai import OpenAI

    schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    function = {"name": "retrieve", "description": "Find passages of the handbook.", "parameters": schema}

    def ask(question: str) -> str:
        messages: list[Any] = [{"role": "user", "content": question}]
        while True:
            reply = OpenAI().chat.completions.create(
                model=MODEL, messages=messages, tools=[{"type": "function", "function": function}]
            )
            message = reply.choices[0].message
            if not message.tool_calls:
                return str(message.content)
            messages.append(message.to_dict())
            messages += [
                {
                    "role": "tool",
                    "tool_call_id": call.id,
                    "content": _passages(json.loads(call.function.arguments)["query"]),
                }
                for call in message.tool_calls
            ]

    return _tools(ask)


def _tools(ask: Any) -> Application:
    return replace(
        plain(ask, is_rooted=False),
        question=TWO_QUESTIONS,
        chunks=lambda question: union(plain_search(part) for part in parts(question)),
    )


def _passages(query: str) -> str:
    return "\n\n".join(found["text"] for found in plain_search(query))


def _to_claude(handbook: Any, question: str) -> Any:
    return {
        "model": "claude-sonnet-5",
        "max_tokens": 500,
        "system": handbook.prompt(handbook.search(question)),
        "messages": [{"role": "user", "content": question}],
    }


def _by_hand(name: str, question: str, *, model: str = MODEL) -> Application:
    return replace(plain(import_module(name).ask, is_rooted=False), question=question, model=model)


def openai_async() -> Application:
    app = import_module("openai_async")

    async def search(question: str) -> list[Json]:
        async with app.AsyncOpenAI() as client:
            return [chunk(found.id, found.text, found.score) for found in await app.search(client, question)]

    return Application(
        question="What does the warranty cover?",
        prepare=lambda: None,
        ask=app.ask,
        chunks=lambda question: asyncio.run(search(question)),
        is_rooted=False,
    )


def openai_choices() -> Application:
    """Two choices, the first of which is the answer."""
    return plain(lambda question: complete(question, plain_search(question), n=2), is_rooted=False)


def openai_abandoned() -> Application:
    """A streamed answer that nobody reads to its end."""
    app = import_module("openai_streaming")

    def ask(question: str) -> str:
        stream = app.stream(question)
        words = [next(stream), next(stream), next(stream)]
        stream.close()
        return "".join(words)

    return replace(openai_streaming(), ask=ask)


def openai_closed() -> Application:
    """A streamed answer whose reader closes the SDK's stream after three words."""
    app = import_module("handbook")

    def ask(question: str) -> str:
        from openai import OpenAI

        messages = [
            {"role": "system", "content": app.prompt(app.search(question))},
            {"role": "user", "content": question},
        ]
        words: list[str] = []
        with OpenAI().chat.completions.create(model=MODEL, messages=messages, stream=True) as stream:
            for event in stream:
                words.append(event.choices[0].delta.content or "")
                if len(words) > 3:
                    break
        return "".join(words)

    return replace(openai_streaming(), ask=ask)


def openai_talk() -> Application:
    """A conversation: nothing is retrieved, and the prompt holds instructions and what was said."""
    system = "You are the assistant of a shop for lamps.\n\n# Rules\n- Be polite.\n- Answer in one sentence."

    def ask(question: str) -> str:
        from openai import OpenAI

        messages = [
            {"role": "system", "content": system},
            {"role": "user", "content": "I bought a lamp on Monday. It flickers."},
            {"role": "assistant", "content": "I am sorry to hear that. Flickering is often a loose bulb."},
            {"role": "user", "content": question},
        ]
        completion = OpenAI().chat.completions.create(model=MODEL, messages=messages)
        return str(completion.choices[0].message.content)

    return Application(
        question="Which bulb should I buy for it?",
        prepare=lambda: None,
        ask=ask,
        chunks=lambda _: [],
        is_rooted=False,
    )


def chroma() -> Application:
    app = import_module("chroma_app")

    def chunks(question: str) -> list[Json]:
        found = app.collection().query(query_texts=[question], n_results=3)
        rows = zip(found["ids"][0], found["documents"][0], found["distances"][0], strict=True)
        return [{"id": id_, "text": text, "distance": distance} for id_, text, distance in rows]

    return Application(
        question="Can I return a lamp?", prepare=app.collection, ask=app.ask, chunks=chunks, is_rooted=False
    )


def qdrant() -> Application:
    app = import_module("qdrant_app")

    def chunks(question: str) -> list[Json]:
        found = app.store().query_points("handbook", query=app.embed([question])[0], limit=3)
        return [chunk(str(point.id), point.payload["text"], point.score) for point in found.points]

    return Application(
        question="What does shipping cost?", prepare=app.store, ask=app.ask, chunks=chunks, is_rooted=False
    )
