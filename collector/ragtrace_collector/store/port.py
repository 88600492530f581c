"""The port of the work store: what survives a crash, from the acknowledged span to the delivered carrier."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol

from ragtrace.errors import RagtraceError
from ragtrace.traces.attach import Sample
from ragtrace.traces.otlp import TraceSlice
from ragtrace_collector.ledger.account import Ledger
from ragtrace_collector.store.trace_key import trace_id_of


class StoreUnavailable(RagtraceError):
    """The store is full or its disk fails: senders should try again later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One RAG answer to judge. Its spans stay in the store until it has ended."""

    trace_id: str
    """The trace's key in the store: its id, and the tenant whose token brought it."""
    span_id: str
    """The span under judgment."""
    sample: Sample
    attempts: int = 0
    """Failed attempts so far."""
    crashes: int = 0
    """How many processes crashed while they judged it."""
    reason: str = ""
    """Why it was last postponed."""
    seen_ns: int = 0
    """When it was first queued."""
    tenant: str = ""
    service: str = ""
    """``service.name`` of the span under judgment."""
    record_sha256: str = ""
    """Digest of the record, as of the decision."""
    revisions_left: int = 0
    """How often it may be judged again if its record changes."""
    carriers: int = 0
    """How many carriers the answer has at this span; from the second on, they are revisions."""
    replaces: str = ""
    """Span id of the carrier that the next one supersedes, at this span or at another."""
    slices: int = 0
    """How many slices its trace had when it was leased."""
    is_cut: bool = False
    """Whether spans of its trace were dropped until then."""

    @property
    def in_trace(self) -> str:
        """The trace id, without the tenant."""
        return trace_id_of(self.trace_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an answer ended that was never queued."""

    span_id: str
    outcome: str
    """A final `State`, with its reason."""
    sample: Sample | None = None
    """The rule that decided, and its rate."""
    tenant: str = ""
    service: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxItem:
    """An OTLP request on its way to one sink."""

    id: int
    payload: bytes


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


class QuarantineReason(StrEnum):
    """Why a trace was set aside."""

    CRASHES = "crashes"
    """The process crashed each time it read the trace."""
    CPU = "cpu"
    """Assembling and reading it took too much CPU time."""


class QuarantineRecord(NamedTuple):
    """The suspicion against a trace."""

    crashes: int
    """How many processes crashed while they read it."""
    poison: str
    """Why it was set aside (a `QuarantineReason`); empty if it was not."""


class JudgedInput(NamedTuple):
    """Which record was judged."""

    record_sha256: str
    slices: int
    """How many slices it was read from."""


class TraceDecided(NamedTuple):
    """What the decision about a trace changed."""

    queued: int
    """Newly queued answers."""
    ended: int
    """New outcomes."""
    brought_back: int = 0
    """Queued answers that had been sampled out."""
    revised: int = 0
    """Answers queued again, because late spans changed what was judged."""
    moved: int = 0
    """Answers that late spans moved to other spans."""


class WorkStore(Protocol):
    """Every method is one transaction: when it returns, all or nothing of it is on disk.

    A trace id here is a key with the tenant (`trace_key`).

    Every method raises StoreUnavailable if the disk is full or fails.
    """

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
        """Return the traces that wait for a decision, to be read again after a restart."""
        ...

    async def spans(self, trace_id: str) -> StoredSpans:
        """Return the spans of a trace, and its known answers."""
        ...

    async def look(self, trace_ids: Collection[str]) -> Mapping[str, QuarantineRecord]:
        """Note that traces are being read, except suspects, which are returned.

        A look ends with the decision, or with ``end_look``. A trace that is being read when the process
        crashes becomes a suspect.
        """
        ...

    async def look_alone(self, trace_id: str) -> bool:
        """Note that a suspect is being read; return False while another suspect (trace or answer) is."""
        ...

    async def end_look(self, trace_ids: Collection[str]) -> None:
        """Note that traces were read."""
        ...

    async def set_aside(self, trace_id: str, *, poison: str, now_ns: int) -> int:
        """Set a trace aside without reading it. Its queued answers end; return how many."""
        ...

    async def decide_trace(
        self,
        trace_id: str,
        *,
        jobs: Sequence[Job],
        outcomes: Sequence[Outcome],
        keep_spans: bool,
        now_ns: int,
        slices: int | None = None,
        moved: Mapping[str, str | None] = MappingProxyType({}),
        goes_on: bool = False,
    ) -> TraceDecided:
        """Queue the jobs and record the outcomes of a trace; known ones stay as they are.

        But an answer that was sampled out is queued, if a rule matched a later span. And a judged answer is
        queued again, if its record changed and it has revisions left.

        Args:
            trace_id: The trace.
            jobs: Answers to judge.
            outcomes: Answers that end without being queued.
            keep_spans: Whether later spans could still make a record of this trace.
            now_ns: The time.
            slices: How many slices of the trace were read for this; ``None`` for all.
            moved: Spans whose answers moved, and the spans that have them now.
            goes_on: Only some calls of the trace are decided, not the trace.
        """
        ...

    async def take_jobs(
        self, limit: int, *, now_ns: int, seen_before_ns: int | None = None
    ) -> tuple[Job, ...]:
        """Lease up to ``limit`` jobs that are due, or that were queued before ``seen_before_ns``.

        A lease ends with the process. A job that was leased when a process crashed is leased alone.
        """
        ...

    async def finish(
        self,
        job: Job,
        outcome: str,
        *,
        outbox_items: Mapping[str, bytes],
        now_ns: int,
        carrier: str = "",
        evaluator: str = "",
        addition: bytes = b"",
        judged: JudgedInput | None = None,
    ) -> bool:
        """End a job and put its payloads, by sink, into the outbox.

        An answer that moved to another span meanwhile adds nothing. If the record changed since it was
        ``judged``, the answer is queued again.

        If the trace is held, the ``addition`` is written on the answer span at its release, and only sinks
        that don't get the originals get an outbox item. Return whether that is so.

        ``outcome`` is a final `State` with its reason, ``carrier`` the span id of the carrier in the items,
        and ``evaluator`` its evaluator's version: `ragtrace why` shows both.

        Raises:
            ValueError: the state is unknown.
        """
        ...

    async def postpone(self, job: Job, *, due_ns: int, reason: str, failed: bool = True) -> None:
        """Give a leased job back for a retry; ``failed`` says whether the attempt counts."""
        ...

    async def give_back(self, job: Job) -> None:
        """Give a leased job back unchanged, because its worker was stopped."""
        ...

    async def release(
        self, *, before_ns: int, now_ns: int, most_bytes: int, limit: int = 64
    ) -> ReleasedTraces:
        """Release traces held since ``before_ns`` or earlier, and the oldest while more bytes are held."""
        ...

    async def outbox_items(
        self, sink: str, limit: int, *, most_bytes: int = 2 << 20
    ) -> tuple[OutboxItem, ...]:
        """Return the oldest items for a sink, in order, up to ``most_bytes`` but at least one."""
        ...

    async def delivered(self, outbox_items: Sequence[OutboxItem], *, unconfirmed: str = "") -> None:
        """Delete items that their sink has, or may have: ``unconfirmed`` says why that is not known."""
        ...

    async def reject(self, outbox_items: Sequence[OutboxItem], *, reason: str, now_ns: int) -> None:
        """Set items aside that their sink refused for good; they stay readable until they expire."""
        ...

    async def unfinished(self, *, now_ns: int) -> int:
        """Return how many jobs are due or leased, plus how many outbox items wait."""
        ...

    async def ledger(self, tenant: str | None = None) -> Ledger:
        """Return the whole ledger, or that of one tenant's answers, read at one moment."""
        ...

    async def expire(self, *, decided_before_ns: int, ended_before_ns: int) -> int:
        """Delete the spans of decided traces, ended jobs and rejected items that are older.

        A trace stays while one of its jobs has not ended. Return how many traces were deleted.
        """
        ...

    async def latest_ns(self) -> int:
        """Return the latest time in the store, 0 if it is empty."""
        ...

    async def aclose(self) -> None:
        """Commit what is under way and close."""
        ...
