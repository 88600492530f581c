"""Standard input, read in a thread that can be called off."""

from __future__ import annotations

import os
import select
import sys
import threading
from io import BufferedReader, RawIOBase
from typing import BinaryIO, Final, cast

_POLL_S: Final = 0.2

_left = threading.Event()


def open_standard_input() -> BinaryIO:
    """Return a reader of its own over standard input: it ends where the input does, or at `leave`.

    A thread that waits in ``sys.stdin`` itself keeps its lock, without which the interpreter cannot end.
    """
    _left.clear()
    try:
        return cast("BinaryIO", BufferedReader(_Polled(sys.stdin.fileno())))
    except (AttributeError, OSError):  # a replacement stream without a descriptor
        return sys.stdin.buffer


def leave() -> None:
    """Let every reader of standard input end at once, because the program does."""
    _left.set()


class _Polled(RawIOBase):
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not _left.is_set():
            if not _can_wait or select.select([self._descriptor], [], [], _POLL_S)[0]:
                data = os.read(self._descriptor, len(buffer))
                buffer[: len(data)] = data
                return len(data)
        return 0


_can_wait: Final = sys.platform != "win32"
"""Windows waits for sockets alone."""
