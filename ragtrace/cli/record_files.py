"""Records from files and standard input: report what is left out, and read in the background."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import CancelledError
from typing import Final, TypeVar

from ragtrace._row_files import RowNotices
from ragtrace.cli.render import many, one_line, talk
from ragtrace.errors import InputError
from ragtrace.reports import RunEnd, SkippedAnswers

T = TypeVar("T")

_AHEAD: Final = 64
_MOST_SAID: Final = 20


class LeftOutRows(RowNotices):
    """Says on stderr which rows and fields of a file are left out, and counts the rows."""

    def __init__(self) -> None:
        self.number = 0

    def row_refused(self, fault: InputError) -> None:
        """Say it of the first rows; the others are only counted."""
        self.number += 1
        if self.number <= _MOST_SAID:
            talk(f"left out: {one_line(str(fault))}")
        elif self.number == _MOST_SAID + 1:
            talk("left out: more rows, counted at the end")

    def fields_ignored(self, warning: str) -> None:
        """Say it."""
        talk(f"warning: {one_line(warning)}")

    def check_any(self, path: str, read: int) -> None:
        """Say that there was no row; raise if there were some and none is readable.

        Raises:
            InputError: no row could be read.
        """
        if read:
            return
        name = shown_path(path)
        if self.number:
            raise InputError(f"{name}: {many(self.number, 'row')}, and none is readable")
        talk(f"{name} has no records")

    def ending(self) -> RunEnd:
        """Return what reports are to say of it."""
        why = "They are not records: stderr says what is wrong with each."
        unreadable = SkippedAnswers(what="unreadable", number=self.number, unit="row", why=why)
        return RunEnd(left_out=(unreadable,) if self.number else ())

    def exit_code(self) -> int:
        """Return 2, and say why, where rows were left out."""
        if not self.number:
            return 0
        talk(f"failed: {many(self.number, 'row')} could not be read and are in no number")
        return 2


class UnreadableParts:
    """Tells the first of them on stderr, and counts them all."""

    def __init__(self) -> None:
        self.number = 0
        self._told: set[str] = set()

    def tell(self, fault: InputError) -> None:
        """Take note of what is left out; what is read twice is told once."""
        told = str(fault)
        if told in self._told:
            return
        self.number += 1
        if len(self._told) < _MOST_SAID:
            self._told.add(told)
            talk(f"left out: {told}")

    def tell_rest(self) -> None:
        """Say how many were not told."""
        if self.number > _MOST_SAID:
            talk(f"left out: {many(self.number - _MOST_SAID, 'other piece')} that cannot be read")


def shown_path(path: str) -> str:
    """Name a file, or standard input, for people."""
    return "standard input" if path == "-" else path


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
        except Exception as exc:  # noqa: BLE001 -- it is raised again where the items are read
            put(exc)

    threading.Thread(target=pump, name="reader", daemon=True).start()
    while (item := await queue.get()) is not None:
        if isinstance(item, Exception):
            raise item
        yield item
