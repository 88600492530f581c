"""The memory limit of requests under way, shared by both receivers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

from ragtrace_collector.store.records import StoreUnavailable
from ragtrace_collector.telemetry.counters import Counters, Counts

_SLOW_S: Final = 1.0
"""A request that takes longer than this may be ended in favor of waiting ones."""
_WAIT_S: Final = 5.0
"""How long a request waits for memory."""
_LOOK_S: Final = 0.1


class TooSlow(TimeoutError):
    """A request was ended because it was slow and others waited."""


class MemoryReservation:
    """The memory that one request takes."""

    def __init__(self, room: RequestMemory, who: str) -> None:
        self.who = who
        """The sender's token name, else its address."""
        self.held_bytes = 0
        self.since_s = 0.0
        self.is_put_out = False
        self._room = room
        self._limit: asyncio.Timeout | None = None

    async def reserve(self, number_of_bytes: int) -> None:
        """Reserve more bytes. Slow requests are ended to free them.

        Raises:
            StoreUnavailable: there is no memory.
        """
        await self._room.take(self, number_of_bytes)

    @asynccontextmanager
    async def receiving(self, within_s: float) -> AsyncIterator[None]:
        """Receive a request inside the block.

        Raises:
            TooSlow: it was ended in favor of others.
            TimeoutError: it did not come in time.
        """
        self.since_s = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(within_s) as self._limit:
                yield
        except TimeoutError:
            if self.is_put_out:
                raise TooSlow from None
            raise
        finally:
            self._limit = None

    def is_slow(self, now_s: float) -> bool:
        """Say whether it has been received for too long."""
        return self._limit is not None and not self.is_put_out and now_s - self.since_s >= _SLOW_S

    def put_out(self) -> None:
        """Stop receiving it."""
        if self._limit is not None:
            self.is_put_out = True
            self._limit.reschedule(asyncio.get_running_loop().time())


class RequestMemory:
    """Bytes of requests under way, and places for messages whose size is unknown until they are whole."""

    def __init__(self, most_bytes: int, counters: Counters, *, most_unread: int) -> None:
        self._free_bytes = most_bytes
        self._counters = counters
        self._places: dict[MemoryReservation, None] = {}
        self._unread: dict[MemoryReservation, None] = {}
        self._free_unread = asyncio.Semaphore(most_unread)
        self._freed = asyncio.Event()

    @contextmanager
    def for_request(self, who: str = "") -> Iterator[MemoryReservation]:
        """Hold the memory of one request until it is answered."""
        place = MemoryReservation(self, who)
        self._places[place] = None
        try:
            yield place
        finally:
            del self._places[place]
            self._free_bytes += place.held_bytes
            self._freed.set()

    @asynccontextmanager
    async def for_unread(self, place: MemoryReservation, within_s: float) -> AsyncIterator[None]:
        """Wait for a place for a message of any size, and hold it while the message is received.

        Raises:
            StoreUnavailable: no place became free.
            TooSlow: it was ended in favor of others.
            TimeoutError: it did not come in time.
        """
        await self._await_unread()
        self._unread[place] = None
        try:
            async with place.receiving(within_s):
                yield
        finally:
            del self._unread[place]
            self._free_unread.release()

    async def take(self, place: MemoryReservation, number_of_bytes: int) -> None:
        """Take bytes for a request under way.

        Raises:
            StoreUnavailable: too few are free.
        """
        waits_until_s = asyncio.get_running_loop().time() + _WAIT_S
        while number_of_bytes > self._free_bytes:
            left_s = waits_until_s - asyncio.get_running_loop().time()
            if left_s <= 0 or not self._is_making_room(place):
                raise self._full()
            self._freed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._freed.wait()
        self._free_bytes -= number_of_bytes
        place.held_bytes += number_of_bytes

    async def _await_unread(self) -> None:
        if not self._free_unread.locked():
            await self._free_unread.acquire()
            return
        acquired = asyncio.ensure_future(self._free_unread.acquire())
        waits_until_s = asyncio.get_running_loop().time() + _WAIT_S
        try:
            while not acquired.done():
                await asyncio.wait({acquired}, timeout=_LOOK_S)
                if not acquired.done():
                    self._put_out_slowest(self._unread)
                if asyncio.get_running_loop().time() >= waits_until_s and not acquired.done():
                    raise self._full()
        except BaseException:
            if not acquired.cancel():  # it was acquired meanwhile
                self._free_unread.release()
            raise

    def _is_making_room(self, place: MemoryReservation) -> bool:
        others = [other for other in self._places if other is not place]
        return self._put_out_slowest(others) or any(other.is_put_out and other.held_bytes for other in others)

    def _put_out_slowest(self, places: Iterable[MemoryReservation]) -> bool:
        """End one slow request: the oldest of the sender with the most slow requests."""
        now_s = asyncio.get_running_loop().time()
        slow = [place for place in places if place.is_slow(now_s)]
        if not slow:
            return False
        number = Counter(place.who for place in slow)
        max(slow, key=lambda place: (number[place.who], -place.since_s)).put_out()
        self._counters.add(Counts.REQUESTS_PUT_OFF)
        return True

    def _full(self) -> StoreUnavailable:
        self._counters.add(Counts.REQUESTS_PUT_OFF)
        return StoreUnavailable("too many large requests at once")
