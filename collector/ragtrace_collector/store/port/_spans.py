"""Spans: accepted, held back for their scores, and read again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from ragtrace.traces.otlp import TraceSlice


class HoldMode(StrEnum):
    """How spans that are kept for judging are also forwarded."""

    OFF = "off"
    """No holding: if originals are forwarded, then whole requests."""
    NEW = "new"
    """A held or new trace waits for its scores; spans of other traces are forwarded."""
    KNOWN = "known"
    """A held trace goes on waiting; spans of other traces are forwarded."""


class ReleasedTraces(NamedTuple):
    """How many held traces were released, and how long the queue is."""

    overdue: int
    surplus: int
    """Released because the held bytes exceeded the limit."""
    queue_ns: int = 0
    """How long the next answer has been due."""


class StoredSpans(NamedTuple):
    """A trace as stored."""

    payloads: tuple[bytes, ...]
    """Serialized ``TracesData``, in order of arrival."""
    slices: int = 0
    """How many came, including deleted ones."""
    is_cut: bool = False
    """Whether spans were dropped because there were too many."""
    answers: tuple[str, ...] = ()
    """Spans with known answers, or with a former answer whose carrier is not superseded yet."""
    has_jobs: bool = False
    """Whether answers of this trace were decided about before."""


class SpanStore(Protocol):
    """Keeps spans from the acknowledgment to the last verdict about their trace."""

    async def append(
        self,
        slices: Sequence[TraceSlice],
        *,
        forward: Mapping[str, bytes],
        now_ns: int,
        holding: HoldMode = HoldMode.OFF,
        cut: Collection[str] = (),
    ) -> frozenset[str]:
        """Store spans, and originals to forward by sink. Return the traces that had spans before.

        ``cut`` names traces with dropped spans, because there are too many.

        A trace is held until all its answers have ended or one is postponed, or until ``release``.

        If the store is full, it deletes finished work before its time.

        Raises:
            StoreUnavailable: nothing was stored.
        """
        ...

    async def check(self) -> None:
        """Check whether spans could be stored now: there is room, and the disk accepts writes.

        Raises:
            StoreUnavailable: they could not; its text says why.
        """
        ...

    async def undecided(self) -> tuple[str, ...]:
        """Return the traces that wait for a decision, to be read again after a restart.

        They come in the order in which their last spans arrived.
        """
        ...

    async def spans(self, trace_id: str) -> StoredSpans:
        """Return the spans of a trace, and its known answers; an unknown trace has none."""
        ...

    async def release(
        self, *, before_ns: int, now_ns: int, most_bytes: int, limit: int = 64
    ) -> ReleasedTraces:
        """Release traces held since ``before_ns`` or earlier, and the oldest while more bytes are held.

        A trace that is held since after ``now_ns`` is overdue too, because the clock was set back. At most
        ``limit`` traces are released for each of the two reasons.

        A released trace goes to the sinks that get originals, slice by slice in order of arrival, with what
        ``finish`` added to its answer spans. It is released once, even after a crash.
        """
        ...
