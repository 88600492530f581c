"""Run work concurrently and emit results in order, with bounded concurrency and memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Final, TypeVar

from ragtrace.errors import RagtraceError

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

_WINDOW: Final = 4
"""Items held per concurrent slot, so that one slow item does not idle the other slots at once."""


async def map_in_order(
    items: AsyncIterable[ItemT],
    work: Callable[[ItemT], Awaitable[ResultT]],
    emit: Callable[[ResultT], Awaitable[None]],
    *,
    concurrency: int,
) -> None:
    """Work on up to ``concurrency`` items at once and emit the results in the order of the items.

    It reads items only when there is room, so an endless source needs bounded memory.

    Raises:
        RagtraceError: the source failed; all earlier items were processed and emitted.
        Exception: the first failure of ``work`` or ``emit``, unwrapped; the rest was cancelled.
    """
    window: asyncio.Queue[asyncio.Task[ResultT] | None] = asyncio.Queue(_WINDOW * concurrency)
    gate = asyncio.Semaphore(concurrency)

    async def one(item: ItemT) -> ResultT:
        async with gate:
            return await work(item)

    async def feed() -> RagtraceError | None:
        failure = None
        try:
            async for item in items:
                await window.put(tasks.create_task(one(item)))
        except RagtraceError as exc:
            failure = exc
        await window.put(None)
        return failure

    try:
        async with asyncio.TaskGroup() as tasks:
            feeding = tasks.create_task(feed())
            while (task := await window.get()) is not None:
                await emit(await task)
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    if failure := feeding.result():
        raise failure
