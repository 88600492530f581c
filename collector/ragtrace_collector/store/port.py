"""The work store: what must survive a crash, from the acknowledged span to the delivered carrier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from ragtrace.errors import RagtraceError
from ragtrace.traces.attach import Sample
from ragtrace.traces.otlp import TraceSlice
from ragtrace_collector.ledger import Ledger

__all__ = [
    "Holding",
    "Job",
    "Outcome",
    "Parcel",
    "Released",
    "Settled",
    "StoreUnavailable",
    "StoredTrace",
    "WorkStore",
]


class StoreUnavailable(RagtraceError):
    """The store takes nothing now, being full or on a failing disk: senders should try again later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One RAG answer to judge. Its spans stay in the store until it has ended."""

    trace_id: str
    span_id: str
    """The span under judgment."""
    sample: Sample
    attempts: int = 0
    """How many failed so far."""
    crashes: int = 0
    """How many processes ended, and not in order, while they judged it."""
    reason: str = ""
    """Why it was postponed last."""
    seen_ns: int = 0
    """When it was queued first."""
    tenant: str = ""
    service: str = ""
    """``service.name`` of the span under judgment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one RAG answer that was seen ended, without having been queued."""

    span_id: str
    outcome: str
    """A [`State`][ragtrace_collector.outcomes.State] that ends, with its reason."""
    sample: Sample | None = None
    """The rule that decided, and its rate."""
    tenant: str = ""
    service: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrace:
    """A trace that was not settled, or had spans join it since."""

    trace_id: str
    last_arrival_ns: int
    settled_before: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """An OTLP request on its way to one sink."""

    id: int
    payload: bytes


class Holding(StrEnum):
    """What becomes of spans that are kept for judging, beside that."""

    OFF = "off"
    """Nothing: if originals are forwarded, then whole."""
    NEW = "new"
    """A trace that is held, or was never seen, waits for its scores; spans of others are forwarded."""
    KNOWN = "known"
    """A trace that is held goes on waiting; spans of others are forwarded."""


class Released(NamedTuple):
    """How many held traces went on without waiting any longer."""

    overdue: int
    surplus: int
    """Because more was held than may be."""


class Settled(NamedTuple):
    """What settling a trace changed."""

    queued: int
    """Answers that are to be judged now and were not before."""
    ended: int
    """Outcomes that are new."""
    brought_back: int = 0
    """Of those queued, how many had been sampled out."""


class WorkStore(Protocol):
    """Every method is one transaction: on return it is on disk, or nothing of it is.

    Each raises StoreUnavailable where the disk is full or fails.
    """

    async def append(
        self,
        slices: Sequence[TraceSlice],
        *,
        forward: Mapping[str, bytes],
        now_ns: int,
        holding: Holding = Holding.OFF,
    ) -> frozenset[str]:
        """Keep spans, and originals to forward by sink. Return the trace ids that had been settled before.

        A trace is held until all its answers have ended or one is postponed, or until ``release``.

        Where the store is full, it forgets what is finished before its time.

        Raises:
            StoreUnavailable: nothing was kept.
        """
        ...

    async def check(self) -> None:
        """See whether spans would be kept now: there is room for them, and the disk takes writes.

        Raises:
            StoreUnavailable: they would not; its text says why.
        """
        ...

    async def unsettled(self) -> tuple[StoredTrace, ...]:
        """Return the traces that a restart has to look at again."""
        ...

    async def payloads(self, trace_id: str) -> tuple[bytes, ...]:
        """Return the spans of a trace, as serialized ``TracesData``, in order of arrival."""
        ...

    async def settle(
        self,
        trace_id: str,
        *,
        jobs: Sequence[Job],
        outcomes: Sequence[Outcome],
        keep_spans: bool,
        now_ns: int,
    ) -> Settled:
        """Queue the jobs and record the outcomes of a trace; those known already stay as they are.

        But a job whose answer was sampled out is queued: a rule matched a span that came later.
        ``keep_spans`` says whether spans that come later could still make a record of this trace.
        """
        ...

    async def take_jobs(
        self, limit: int, *, now_ns: int, seen_before_ns: int | None = None, alone_from: int = 2
    ) -> tuple[Job, ...]:
        """Lease up to ``limit`` jobs that are due. A lease ends with the process.

        Args:
            limit: How many.
            now_ns: The time.
            seen_before_ns: Instead of those that are due, the jobs that were queued before.
            alone_from: A job in whose hands so many processes ended is leased alone, and nothing beside it.
        """
        ...

    async def finish(
        self,
        job: Job,
        outcome: str,
        *,
        parcels: Mapping[str, bytes],
        now_ns: int,
        carrier: str = "",
        evaluator: str = "",
        addition: bytes = b"",
    ) -> bool:
        """End a job and put what it yields, by sink, into the outbox.

        If the trace is held, the ``addition`` is written onto the answer span when it is released, and only
        sinks that do not get the originals get a parcel. Return whether it is so.

        ``outcome`` is a [`State`][ragtrace_collector.outcomes.State] that ends, with its reason; ``carrier``
        the span id of the carrier in the parcels, ``evaluator`` who wrote it: `ragtrace why` tells both.

        Raises:
            ValueError: no such state is in the vocabulary.
        """
        ...

    async def postpone(self, job: Job, *, due_ns: int, reason: str, failed: bool = True) -> None:
        """Give a leased job back, to be tried again; ``failed`` says whether the attempt counts."""
        ...

    async def give_back(self, job: Job) -> None:
        """Give a leased job back as it was: whoever had it was told to stop."""
        ...

    async def release(
        self, *, before_ns: int, now_ns: int, most_bytes: int, limit: int = 64
    ) -> Released:
        """Forward traces held since ``before_ns`` or earlier, and the oldest while more bytes are held."""
        ...

    async def parcels(self, sink: str, limit: int, *, most_bytes: int = 2 << 20) -> tuple[Parcel, ...]:
        """Return the oldest parcels for a sink, in order; of more than ``most_bytes``, only the first."""
        ...

    async def delivered(self, parcels: Sequence[Parcel]) -> None:
        """Forget parcels that their sink has."""
        ...

    async def reject(self, parcels: Sequence[Parcel], *, reason: str, now_ns: int) -> None:
        """Set parcels aside that their sink will never take; they stay readable until they expire."""
        ...

    async def unfinished(self, *, now_ns: int) -> int:
        """Return how many jobs are due or leased, and how many parcels wait."""
        ...

    async def ledger(self) -> Ledger:
        """Return the whole account, read at once."""
        ...

    async def counts(self) -> Mapping[str, int]:
        """Return the account by name: outcomes, ``queued``, ``open_traces``, ``undelivered``, …"""
        ...

    async def expire(self, *, settled_before_ns: int, ended_before_ns: int) -> int:
        """Forget the spans of traces that were settled, and jobs and rejected parcels that ended, before.

        A trace stays while one of its jobs has not ended. Return how many traces were forgotten.
        """
        ...

    async def latest_ns(self) -> int:
        """Return the latest time that anything in the store was written at, 0 for an empty one."""
        ...

    async def aclose(self) -> None:
        """Commit what is under way and close."""
        ...
