"""Many at once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ragtrace.pipeline import map_in_order


async def numbers(count: int, *, then: Exception | None = None) -> AsyncIterator[int]:
    for number in range(count):
        yield number
    if then is not None:
        raise then


async def test_no_more_run_at_once_than_allowed_and_few_are_read_ahead() -> None:
    running, most, read = 0, 0, 0

    async def source() -> AsyncIterator[int]:
        nonlocal read
        async for number in numbers(500):
            read += 1
            yield number

    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number

    async def emit(number: int) -> None:
        assert read - number <= 20

    await map_in_order(source(), work, emit, concurrency=3)
    assert (most, read) == (3, 500)


@pytest.mark.parametrize("place", ["work", "emit"])
async def test_a_failure_comes_out_bare_and_ends_an_endless_source(place: str) -> None:
    async def endless() -> AsyncIterator[int]:
        while True:
            yield 1

    async def work(number: int) -> int:
        if place == "work":
            raise BrokenPipeError
        return number

    async def emit(_number: int) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await map_in_order(endless(), work, emit, concurrency=2)
