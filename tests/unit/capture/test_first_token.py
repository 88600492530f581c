"""A captured stream passes each piece on as it comes, and what is recorded is the whole of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import ragtrace

DECORATORS = {"rag": ragtrace.rag, "generation": ragtrace.generation}
decorated = pytest.mark.parametrize("decorator", DECORATORS.values(), ids=DECORATORS)


@decorated
def test_a_piece_is_passed_on_before_the_next_is_made(recorded: Any, decorator: Callable[..., Any]) -> None:
    made: list[str] = []

    @decorator
    def answer(question: str) -> Iterator[str]:
        for piece in ("Two ", "years."):
            made.append(piece)
            yield piece

    stream = answer("How long?")
    assert not made
    assert next(stream) == "Two "
    assert made == ["Two "]
    assert list(stream) == ["years."]


@decorated
async def test_an_async_piece_is_passed_on_before_the_next_is_made(
    recorded: Any, decorator: Callable[..., Any]
) -> None:
    read = asyncio.Event()

    @decorator
    async def answer(question: str) -> AsyncIterator[str]:
        yield "Two "
        await read.wait()  # for ever, were the first piece kept back
        yield "years."

    stream = answer("How long?")
    assert await anext(stream) == "Two "
    read.set()
    assert [piece async for piece in stream] == ["years."]
