"""Reading what may make one wait, without holding the program up: neither its work nor its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import CancelledError
from typing import Final, TypeVar

__all__ = ["in_background"]

T = TypeVar("T")

_AHEAD: Final = 64


async def in_background(items: Callable[[], Iterable[T]]) -> AsyncGenerator[T, None]:
    """Yield what an iterable yields that may wait for its next item, reading a bounded number ahead.

    The thread is a daemon: on Ctrl-C nobody waits until somebody types the next line.

    Raises:
        Exception: what the iterable raised.
    """
    queue: asyncio.Queue[T | Exception | None] = asyncio.Queue(_AHEAD)
    loop = asyncio.get_running_loop()

    def put(item: T | Exception | None) -> None:
        waiting = queue.put(item)
        try:
            asyncio.run_coroutine_threadsafe(waiting, loop).result()
        except (CancelledError, RuntimeError):  # cancelled, or the loop is closed: nobody reads any more
            waiting.close()
            raise SystemExit from None

    def pump() -> None:
        try:
            for item in items():
                put(item)
            put(None)
        except Exception as exc:  # noqa: BLE001 -- no wall: it is raised again where the items are read
            put(exc)

    threading.Thread(target=pump, name="reader", daemon=True).start()
    while (item := await queue.get()) is not None:
        if isinstance(item, Exception):
            raise item
        yield item
