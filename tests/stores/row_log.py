"""A log of rows in memory, with what a broker does: owners fence each other, writes fail, old values go."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from ragtrace_collector.store.changelog.log import (
    LogDamaged,
    LoggedRow,
    LogLost,
    LogState,
    LogUnavailable,
    RowBatch,
)
from ragtrace_collector.store.changelog.messages import decode, encode_key, encode_values

DAY_S = 24 * 3600.0


class Failure(Enum):
    """How a write fails."""

    REFUSED = "nothing was written"
    UNKNOWN = "it was written, and nobody said so"
    UNKNOWN_AND_GONE = "it was not written, and nobody said so"
    CRASHED = "the client of the log fails in a way that nobody foresaw"


@dataclass(slots=True)
class MemoryTopic:
    """A partition: messages as Kafka would have them, each with its offset."""

    id: str = "a topic"
    messages: list[tuple[int, bytes, bytes | None]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    owner: int = 0
    deletions_kept_s: float = DAY_S
    failures: list[Failure | None] = field(default_factory=list)
    """How the next writes fail; ``None``: one that does not."""
    is_away: bool = False
    most_row_bytes: int = 8 << 20
    writes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def copied(self) -> MemoryTopic:
        """Return a topic with the same messages, as it is now."""
        with self.lock:
            return MemoryTopic(self.id, list(self.messages), self.start, self.end)

    def compacted(self, *, keeps_deletions: bool = False) -> MemoryTopic:
        """Return what compaction leaves: the last message of each key, where it was."""
        left = self.copied()
        last = {key: offset for offset, key, _ in left.messages}
        left.messages = [
            (offset, key, value)
            for offset, key, value in left.messages
            if last[key] == offset and (keeps_deletions or value is not None)
        ]
        return left


class MemoryReader:
    """Reads a topic in memory."""

    def __init__(self, topic: MemoryTopic, *, at_once: int = 1_000) -> None:
        self.topic = topic
        self._at_once = at_once

    @property
    def name(self) -> str:
        return f"{self.topic.id}[0]"

    def look(self) -> LogState:
        self._reach()
        topic = self.topic
        return LogState(
            id=topic.id, start=topic.start, end=topic.end, deletions_kept_s=topic.deletions_kept_s
        )

    def read(self, after: int) -> Iterator[RowBatch]:
        self._reach()
        with self.topic.lock:
            end = self.topic.end
            found = [message for message in self.topic.messages if message[0] >= after]
        for first in range(0, len(found), self._at_once):
            part = found[first : first + self._at_once]
            rows = [self._row(*message) for message in part]
            offsets = [offset for offset, _, _ in part]
            yield RowBatch(rows, offsets, offsets[-1] + 1)
        yield RowBatch((), (), end)

    def close(self) -> None:
        pass

    def _row(self, offset: int, key: bytes, value: bytes | None) -> LoggedRow:
        try:
            return decode(key, value)
        except ValueError as exc:
            raise LogDamaged(f"{self.name}: the message at offset {offset} is no row: {exc}") from exc

    def _reach(self) -> None:
        if self.topic.is_away:
            raise LogUnavailable("the log in memory is away")


class MemoryLog(MemoryReader):
    """Owns a topic in memory."""

    def __init__(self, topic: MemoryTopic, *, at_once: int = 1_000) -> None:
        super().__init__(topic, at_once=at_once)
        self._epoch = 0

    @property
    def most_row_bytes(self) -> int:
        return self.topic.most_row_bytes

    def open(self) -> None:
        self._reach()
        with self.topic.lock:
            self.topic.owner += 1
            self._epoch = self.topic.owner

    def write(self, rows: Iterable[LoggedRow]) -> int:
        messages = [(encode_key(row), encode_values(row)) for row in rows]
        self._reach()
        topic = self.topic
        with topic.lock:
            if self._epoch != topic.owner:
                raise LogLost("another process owns the log in memory")
            failure = topic.failures.pop(0) if topic.failures else None
            if failure is Failure.REFUSED:
                raise LogUnavailable("the log in memory refuses")
            if failure is Failure.CRASHED:
                raise SystemError("returned NULL without setting an exception")
            if failure is not Failure.UNKNOWN_AND_GONE:
                topic.writes += 1
                for key, value in messages:
                    topic.messages.append((topic.end, key, value))
                    topic.end += 1
            if failure is not None:
                raise LogLost("nobody knows whether the rows were written")
            position = topic.end
            topic.end += 1  # as the marker at the end of a transaction
            return position
