"""Many at once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ragtrace.errors import InputError
from ragtrace.pipeline import map_in_order


async def numbers(count: int, *, then: Exception | None = None) -> AsyncIterator[int]:
    for number in range(count):
        yield number
    if then is not None:
        raise then


async def test_results_come_in_the_order_of_the_items_whoever_is_first() -> None:
    turns = [asyncio.Event() for _ in range(4)]
    turns[3].set()
    results: list[int] = []

    async def work(number: int) -> int:
        await turns[number].wait()
        if number:
            turns[number - 1].set()
        return number

    async def emit(number: int) -> None:
        results.append(number)

    await map_in_order(numbers(4), work, emit, concurrency=4)
    assert results == [0, 1, 2, 3]


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


async def test_a_result_is_emitted_while_the_source_waits_for_its_next_item() -> None:
    seen = asyncio.Event()

    async def source() -> AsyncIterator[int]:
        yield 1
        await seen.wait()

    async def work(number: int) -> int:
        return number

    async def emit(_number: int) -> None:
        seen.set()

    await map_in_order(source(), work, emit, concurrency=1)
    assert seen.is_set()


async def test_what_came_before_a_bad_item_is_emitted_before_the_error() -> None:
    results: list[int] = []

    async def work(number: int) -> int:
        return number

    async def emit(number: int) -> None:
        results.append(number)

    with pytest.raises(InputError, match="line 3"):
        await map_in_order(numbers(2, then=InputError("line 3")), work, emit, concurrency=8)
    assert results == [0, 1]


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
