"""Applications on OpenAI's agents."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import replace
from importlib import import_module
from typing import Any

from tests.recordings.applications.application import (
    MODEL,
    TWO_QUESTIONS,
    Application,
    parts,
    plain_search,
    union,
)

__all__ = ["openai_agents", "openai_agents_streaming"]


def openai_agents() -> Application:
    """An agent that retrieves by a tool, twice."""
    from agents import Runner

    return Application(
        question=TWO_QUESTIONS,
        prepare=import_module("handbook").index,
        ask=lambda question: str(Runner.run_sync(_agent(), question).final_output),
        chunks=lambda question: union(plain_search(part) for part in parts(question)),
    )


def openai_agents_streaming() -> Application:
    """The same, whose answer is read as it is streamed."""
    from agents import Runner

    async def read(question: str) -> str:
        run = Runner.run_streamed(_agent(), question)
        async for _ in run.stream_events():
            pass
        return str(run.final_output)

    return replace(openai_agents(), ask=lambda question: asyncio.run(read(question)))


@functools.cache
def _agent() -> Any:
    from agents import Agent, function_tool

    @function_tool
    def retrieve(query: str) -> str:
        """Find passages of the handbook."""
        return "\n\n".join(found["text"] for found in plain_search(query))

    return Agent(
        name="handbook", instructions="Answer from the handbook only.", model=MODEL, tools=[retrieve]
    )
