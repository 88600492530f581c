"""Many at once, in order: bounded in what is worked on and in what is held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Final, TypeVar

from ragtrace.errors import RagtraceError

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

_WINDOW: Final = 4
"""Items held for each one worked on: a slow one must not idle the others at once."""


async def map_in_order(
    items: AsyncIterable[ItemT],
    work: Callable[[ItemT], Awaitable[ResultT]],
    emit: Callable[[ResultT], Awaitable[None]],
    *,
    concurrency: int,
) -> None:
    """Work on up to ``concurrency`` items at once, and emit the results in the order of the items.

    Items are read as room comes free, so that an endless source needs bounded memory.

    Raises:
        RagtraceError: the source failed; what came before was worked on and emitted.
        Exception: the first failure of ``work`` or ``emit``, bare; the rest was cancelled.
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
