"""A log in memory that several ledgers share; each end of it is given what it reads, when a test says so."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from ragtrace_collector.store.budget_log.log import BudgetLogReader
from ragtrace_collector.store.budget_log.replica import BudgetEntry
from ragtrace_collector.store.port import StoreUnavailable


@dataclass(slots=True)
class MemoryLog:
    """Messages, of which the first may be gone."""

    entries: list[BudgetEntry] = field(default_factory=list)
    end: int = 0
    is_away: bool = False
    """Whether nothing can be appended or read."""
    ends: list[MemoryLogEnd] = field(default_factory=list)
    is_prompt: bool = True
    """Whether what is appended is read at once."""

    @property
    def first(self) -> int:
        return self.entries[0].offset if self.entries else self.end

    def append(self, value: bytes | None) -> None:
        self.entries.append(BudgetEntry(offset=self.end, value=value))
        self.end += 1
        for each in self.ends:
            each.notice()

    def delete_before(self, offset: int) -> None:
        self.entries = [entry for entry in self.entries if entry.offset >= offset]

    def open(self) -> MemoryLogEnd:
        opened = MemoryLogEnd(self)
        self.ends.append(opened)
        return opened


class MemoryLogEnd:
    """One process's end of a log; a `BudgetLog`."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.next = -1
        self.deleted: list[int] = []
        self.lost: dict[int, bytes] = {}
        """What the next appends are lost with, by number: for tests."""
        self._is_closed = False

    def start(self, reader: BudgetLogReader) -> None:
        self.reader = reader
        self._loop = asyncio.get_running_loop()
        self.begin()

    def begin(self) -> None:
        self.next = self.log.first
        self.reader.begin(self.next)
        self.notice()

    def append(self, number: int, value: bytes) -> None:
        if self.log.is_away or self._is_closed:
            raise StoreUnavailable("the log is away")
        self.log.append(value)

    def delete_before(self, offset: int) -> None:
        self.deleted.append(offset)
        self.log.delete_before(offset)

    def doubt(self) -> None:
        if not self.log.is_away:
            self._loop.call_soon(self.reader.tell, None)

    async def aclose(self) -> None:
        self._is_closed = True
        if self in self.log.ends:
            self.log.ends.remove(self)

    def notice(self) -> None:
        """Read what is new soon, in a prompt log."""
        if self.log.is_prompt:
            self._loop.call_soon(self.deliver)

    def deliver(self, most: int = 1 << 30) -> None:
        """Give the reader what comes next, as a client of Kafka does."""
        if self._is_closed or self.log.is_away:
            return
        if self.next < self.log.first:
            self.begin()
        found = [entry for entry in self.log.entries if entry.offset >= self.next][:most]
        if found:
            self.next = found[-1].offset + 1
            self.reader.read(found)
        if self.next == self.log.end:
            self.reader.reach_end()
