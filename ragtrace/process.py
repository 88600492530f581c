"""What a process gives: the time, its event loop or one for callers without, and memory."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

T = TypeVar("T")

_OBJECTS_A_ROUND: Final = (50_000, 20, 20)
"""Measured: with Python's own 700, a twentieth of what it costs to keep a span, and a sixth of what it costs
to evaluate an answer."""
_KEPT_BYTES: Final = 16 << 20
"""Freed memory at the end of a heap that the system does not get back: what usual requests under way take."""
_LARGE_BYTES: Final = 8 << 20
"""Larger blocks are returned at once."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
"""Names of ``mallopt(3)``."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the faster event loop, if there is one, as ``asyncio.run`` does."""
    import asyncio

    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        return runner.run(main)


def _fast_loop() -> Callable[[], AbstractEventLoop] | None:
    """Return the factory of the faster loop; ``None`` if it is not installed, as without ``[collector]``."""
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        return None  # in another thread, uvloop raises where asyncio has no signal to give back
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the shared event loop and return its value.

    All callers share one loop, because a judge's open connections belong to one loop.
    """
    import asyncio

    future = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        return future.result()
    except BaseException:  # Ctrl-C in a notebook must also stop the coroutine
        future.cancel()
        raise


@cache
def _loop() -> AbstractEventLoop:
    import asyncio

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="ragtrace-sync", daemon=True).start()
    return loop


os.register_at_fork(after_in_child=_loop.cache_clear)  # a forked child inherits the loop without its thread


def settle_memory() -> None:
    """Adjust Python's and the C library's memory to a server of requests. Call it once, before the first."""
    look_for_cycles_seldom()
    _keep_freed_memory()


def look_for_cycles_seldom() -> None:
    """Let the collector of cycles seldom run: what a request is made of dies at once, and without it."""
    gc.freeze()
    gc.set_threshold(*_OBJECTS_A_ROUND)


def _keep_freed_memory() -> None:
    """Let glibc keep what a request frees for the next one, which else asks the kernel for zeroed pages.

    Measured: a fifth to a third of the processor time of a span over HTTP that is sampled out. Who sets
    glibc's own variables (``MALLOC_TRIM_THRESHOLD_`` and others) is left alone, and so are other C libraries.
    """
    import ctypes
    import platform

    if platform.libc_ver()[0] != "glibc" or any(name.startswith("MALLOC_") for name in os.environ):
        return
    library = ctypes.CDLL(None)
    library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    library.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


class SystemClock:
    """The system time, the default for every ``clock`` argument."""

    def now_ns(self) -> int:
        """Unix time in nanoseconds."""
        return time.time_ns()
