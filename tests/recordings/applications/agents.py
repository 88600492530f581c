"""Applications on pydantic-ai, OpenAI's agents, DSPy, and Amazon Bedrock."""

from __future__ import annotations

import asyncio
import functools
import os
from dataclasses import replace
from importlib import import_module
from typing import Any

from tests.recordings.applications.application import (
    MODEL,
    SESSION,
    TWO_QUESTIONS,
    Application,
    parts,
    plain,
    plain_search,
    union,
)

_CLAUDE = "anthropic.claude-sonnet-5-v1"


def pydantic_ai() -> Application:
    return _pydantic_agent("What does the warranty cover?")


def pydantic_ai_two_hops() -> Application:
    """The agent calls its tool twice, in a conversation that has an id."""
    app = import_module("pydantic_ai_app")

    def ask(question: str) -> str:
        return str(app.agent().run_sync(question, conversation_id=SESSION).output)

    return replace(_pydantic_agent(TWO_QUESTIONS), ask=ask, session_id=SESSION)


def pydantic_ai_streaming() -> Application:
    app = import_module("pydantic_ai_app")

    def ask(question: str) -> str:
        return "".join(app.agent().run_stream_sync(question).stream_text(delta=True))

    return replace(pydantic_ai(), ask=ask)


def _pydantic_agent(question: str) -> Application:
    app = import_module("pydantic_ai_app")
    return Application(
        question=question,
        prepare=lambda: (app.agent(), app.index()),
        ask=app.ask,
        chunks=lambda asked: union(app.retrieve(part) for part in parts(asked)),
    )


def openai_agents() -> Application:
    """An agent that retrieves by a tool, twice."""
    from agents import Runner

    return replace(
        plain(lambda question: str(Runner.run_sync(_openai_agent(), question).final_output)),
        question=TWO_QUESTIONS,
        chunks=lambda question: union(plain_search(part) for part in parts(question)),
    )


def openai_agents_streaming() -> Application:
    """The same, whose answer is read as it is streamed."""
    from agents import Runner

    async def read(question: str) -> str:
        run = Runner.run_streamed(_openai_agent(), question)
        async for _ in run.stream_events():
            pass
        return str(run.final_output)

    return replace(openai_agents(), ask=lambda question: asyncio.run(read(question)))


@functools.cache
def _openai_agent() -> Any:
    from agents import Agent, function_tool

    @function_tool
    def retrieve(query: str) -> str:
        """Find passages of the handbook."""
        return "\n\n".join(found["text"] for found in plain_search(query))

    return Agent(
        name="handbook", instructions="Answer from the handbook only.", model=MODEL, tools=[retrieve]
    )


def dspy() -> Application:
    """A module that retrieves and predicts."""

    def prepare() -> None:
        import_module("handbook").index()
        _dspy_module()

    return replace(
        plain(lambda question: str(_dspy_module()(question=question).answer)),
        prepare=prepare,
    )


@functools.cache
def _dspy_module() -> Any:
    import dspy as library

    library.configure(lm=library.LM(f"openai/{MODEL}", cache=False))

    class Handbook(library.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.respond = library.Predict("context, question -> answer")

        def forward(self, question: str) -> Any:
            context = [found["text"] for found in plain_search(question)]
            return self.respond(context=context, question=question)

    return Handbook()


def bedrock() -> Application:
    """Bedrock's Converse over a retriever written by hand."""
    handbook = import_module("handbook")

    def ask(question: str) -> str:
        reply = _bedrock_client().converse(
            modelId=_CLAUDE,
            system=[{"text": handbook.prompt(handbook.search(question))}],
            messages=[{"role": "user", "content": [{"text": question}]}],
        )
        return str(reply["output"]["message"]["content"][0]["text"])

    return replace(plain(ask, is_rooted=False), question="How long do repairs take?", model=_CLAUDE)


@functools.cache
def _bedrock_client() -> Any:
    import boto3

    return boto3.client(
        "bedrock-runtime",
        region_name="eu-central-1",
        endpoint_url=os.environ["ANTHROPIC_BASE_URL"],
        aws_access_key_id="not-a-key",
        aws_secret_access_key="not-a-key",
    )
