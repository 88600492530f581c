"""Reading what may make one wait, without holding the program up: neither its work nor its end."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from typing import Final, TypeVar

__all__ = ["in_background", "stdin_lines"]

T = TypeVar("T")

_AHEAD: Final = 64
_PIECE_BYTES: Final = 1 << 16


def stdin_lines() -> Iterator[bytes]:
    """Yield the lines of standard input, with their ends.

    Read from the descriptor itself: a thread that waits in Python's own buffered reader breaks the
    interpreter's exit.
    """
    try:
        descriptor = sys.stdin.fileno()
    except (io.UnsupportedOperation, AttributeError):  # a stand-in, as in tests
        yield from sys.stdin.buffer
        return
    rest = b""
    while piece := os.read(descriptor, _PIECE_BYTES):
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if rest:
        yield rest


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
