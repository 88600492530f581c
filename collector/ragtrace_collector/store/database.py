"""What the store needs of the engine that keeps it."""

from __future__ import annotations

import asyncio
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from ragtrace.sql import Db
from ragtrace_collector.store.cipher import PayloadCipher
from ragtrace_collector.store.records import StoreUnavailable

T = TypeVar("T")


class Submission(NamedTuple):
    """Work for a transaction, and who waits for it. `Commits.submit` says what it is told."""

    work: Callable[[Db], Any]
    future: asyncio.Future[Any] | None = None
    is_acknowledged: bool = False
    traces: Collection[str] = ()
    is_last: bool = False


class Commits(ABC):
    """A thread that owns a connection and commits submissions in groups, in order.

    A commit costs a write to the disk whatever it holds, so callers share it: each transaction takes what was
    submitted meanwhile. An engine says how it begins, runs a group and ends.
    """

    _idle_s: float | None = None
    """How long to wait for a submission before an empty group is run; ``None`` for ever."""

    def __init__(self) -> None:
        self._is_closed = False
        self._submissions: queue.SimpleQueue[Submission | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="ragtrace-store", daemon=True)

    async def open(self) -> None:
        """Connect, and create the tables in an empty place. It raises what the engine does."""
        self._thread.start()
        await self._opened

    async def submit(
        self,
        work: Callable[[Db], T],
        *,
        is_acknowledged: bool = False,
        traces: Collection[str] = (),
        is_last: bool = False,
    ) -> T:
        """Run ``work`` inside a transaction; when it returns, it is durable. If it raises, nothing is kept.

        Submitted work is committed even if the caller is canceled.

        Args:
            work: What is to be done.
            is_acknowledged: A sender will be told that the data is safe: then it also raises if one of a
                file's companions was lost during the commit. Other work gets the result of the open database,
                as later work will: a lease that was committed but reported as failed would have no owner.
            traces: The known traces that it changes. No other writer changes them until it is committed.
            is_last: It calls `lock_shared`, so it runs behind the rest of its group.

        Raises:
            StoreUnavailable: the database is full, away, damaged or closed: nothing is kept.
        """
        if self._is_closed:
            raise StoreUnavailable("the store cannot be used: it is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._submissions.put(Submission(work, future, is_acknowledged, traces, is_last))
        try:
            return await future
        except Exception as exc:
            if (trouble := self._trouble(exc)) is None:
                raise
            raise trouble from exc

    async def aclose(self) -> None:
        """Commit what was submitted, then close."""
        self._is_closed = True
        self._submissions.put(None)
        await asyncio.to_thread(self._thread.join)

    @abstractmethod
    def shrink(self, db: Db) -> bool:
        """Return some unused room to the disk; say whether there is more."""

    @abstractmethod
    def is_alone(self, db: Db) -> bool:
        """Say whether no other collector has the store open."""

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _results(self, group: Sequence[Submission]) -> Sequence[Any]:
        """Run and commit a group; return what is told of each, an exception if it failed."""

    @abstractmethod
    def _end(self) -> None: ...

    @abstractmethod
    def _trouble(self, exc: Exception) -> StoreUnavailable | None:
        """Return what a caller is told of an error of the database; ``None`` if the work itself raised it."""

    def _run(self) -> None:
        try:
            self._begin()
        except Exception as exc:  # noqa: BLE001 -- whoever opens it must hear of it, and says what it is
            self._tell([(self._opened, exc)])
            return
        self._tell([(self._opened, None)])
        try:
            for group in self._groups():
                results = self._results(group)
                self._tell(list(zip((each.future for each in group), results, strict=True)))
        finally:
            self._end()

    def _groups(self) -> Iterator[list[Submission]]:
        is_last = False
        while not is_last:
            group: list[Submission] = []
            with suppress(queue.Empty):
                while len(group) < _MOST_A_COMMIT:
                    # once there is one, only those are taken that wait already
                    following = self._submissions.get(timeout=0 if group else self._idle_s)
                    if following is None:
                        is_last = True
                        break
                    group.append(following)
            if group or not is_last:
                yield sorted(group, key=attrgetter("is_last"))

    def _tell(self, results: Sequence[tuple[asyncio.Future[Any] | None, Any]]) -> None:
        with suppress(RuntimeError):  # the loop is closed: no caller waits any more
            self._loop.call_soon_threadsafe(_settle, results)


_MOST_A_COMMIT: Final = 256


def lock_shared(db: Db) -> None:
    """Let no other writer change what is counted for all of them at once, until the transaction ends.

    There is one such lock, and it is taken last: so who has it waits for nobody.
    """
    if db.writer:
        db.execute("SELECT 1 FROM store_version FOR UPDATE")


def _settle(results: Sequence[tuple[asyncio.Future[Any] | None, Any]]) -> None:
    for future, result in results:
        if future is None or future.done():  # the caller was canceled
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)


class Database(Protocol):
    """A place for one store."""

    @property
    def name(self) -> str:
        """What people call it, without secrets."""
        ...

    def reading(self) -> AbstractContextManager[Db]:
        """Open it for reading, while collectors run or are stopped. All reads see one moment.

        Raises:
            ReadError: it is away, or holds no store of this version.
        """
        ...

    async def open(self, cipher: PayloadCipher, *, is_collector: bool) -> Commits:
        """Open it for writing, and create its tables if it is empty.

        A collector on a file excludes others; the commands beside it do not ask.

        Raises:
            ConfigError: it cannot be used, holds something else, or was encrypted with another key.
        """
        ...

    def used_bytes(self, db: Db) -> int:
        """Return how much of ``store.max_bytes`` is in use, read on a connection of ``reading``."""
        ...
