"""The work store: what must survive a crash, from the acknowledged span to the delivered carrier."""

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
    """The store takes nothing now, being full or on a failing disk: senders should try again later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One RAG answer to judge. Its spans stay in the store until it has ended."""

    trace_id: str
    """The trace's key in the store: its id, and the tenant whose token brought it."""
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
    record_sha256: str = ""
    """Digest of the record, as it was settled."""
    revisions_left: int = 0
    """How often it may be judged again when its record changes."""
    carriers: int = 0
    """How many the answer has at this span: from the second on, they are revisions."""
    replaces: str = ""
    """Span id of the carrier that the next one supersedes: of this answer, at this span or at another."""
    slices: int = 0
    """How many slices of its trace had come when it was leased."""
    is_cut: bool = False
    """Whether spans of its trace were not kept, until then."""

    @property
    def in_trace(self) -> str:
        """The trace's id, as everybody else knows it."""
        return trace_id_of(self.trace_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one RAG answer that was seen ended, without having been queued."""

    span_id: str
    outcome: str
    """A `State` that ends, with its reason."""
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
    """What becomes of spans that are kept for judging, beside that."""

    OFF = "off"
    """Nothing: if originals are forwarded, then whole."""
    NEW = "new"
    """A trace that is held, or was never seen, waits for its scores; spans of others are forwarded."""
    KNOWN = "known"
    """A trace that is held goes on waiting; spans of others are forwarded."""


class ReleasedTraces(NamedTuple):
    """How many held traces went on without waiting any longer, and what the others wait for."""

    overdue: int
    surplus: int
    """Because more was held than may be."""
    queue_ns: int = 0
    """How long the next answer to be judged has been due."""


class StoredSpans(NamedTuple):
    """What the store holds of a trace."""

    payloads: tuple[bytes, ...]
    """Serialized ``TracesData``, in order of arrival."""
    slices: int = 0
    """How many came, also those that are not kept any more."""
    is_cut: bool = False
    """Whether spans were not kept, because there were too many."""
    answers: tuple[str, ...] = ()
    """Spans that hold the answers known so far, or held one whose carrier nothing supersedes yet."""
    has_jobs: bool = False
    """Whether something was decided about answers of this trace before."""


class QuarantineReason(StrEnum):
    """Why a trace was set aside."""

    CRASHES = "crashes"
    """The process ended each time it looked at it."""
    CPU = "cpu"
    """To put it together and read it took too much CPU time."""


class QuarantineRecord(NamedTuple):
    """What is known against a trace."""

    crashes: int
    """How many processes ended, and not in order, while they looked at it."""
    poison: str
    """Why it was set aside (a `QuarantineReason`); empty if it was not."""


class JudgedInput(NamedTuple):
    """Which record was judged."""

    record_sha256: str
    slices: int
    """How many slices it was read from."""


class TraceDecided(NamedTuple):
    """What settling a trace changed."""

    queued: int
    """Answers that are to be judged now and were not before."""
    ended: int
    """Outcomes that are new."""
    brought_back: int = 0
    """Of those queued, how many had been sampled out."""
    revised: int = 0
    """Answers that are to be judged again, because late spans changed what was judged."""
    moved: int = 0
    """Answers that late spans moved to other spans."""


class WorkStore(Protocol):
    """Every method is one transaction: on return it is on disk, or nothing of it is.

    A trace id is a key here (`trace_key`), and no tenant's alone.

    Each raises StoreUnavailable where the disk is full or fails.
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
        """Keep spans, and originals to forward by sink. Return the traces of which others came before.

        ``cut`` names traces of which spans are not kept, because there are too many.

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

    async def undecided(self) -> tuple[str, ...]:
        """Return the traces that a restart has to look at again."""
        ...

    async def spans(self, trace_id: str) -> StoredSpans:
        """Return the spans of a trace, and what is known of its answers."""
        ...

    async def look(self, trace_ids: Collection[str]) -> Mapping[str, QuarantineRecord]:
        """Note that traces are looked at, but for those that something is known against, which are returned.

        A look ends when the trace is settled, or with ``end_look``. What is looked at when the process ends,
        and not in order, is suspect.
        """
        ...

    async def look_alone(self, trace_id: str) -> bool:
        """Note that a suspect is looked at; say no while another one is, be it a trace or an answer."""
        ...

    async def end_look(self, trace_ids: Collection[str]) -> None:
        """Note that traces are looked at no more."""
        ...

    async def set_aside(self, trace_id: str, *, poison: str, now_ns: int) -> int:
        """Settle a trace without a look at it. Answers that were queued end; return how many."""
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
        """Queue the jobs and record the outcomes of a trace; those known already stay as they are.

        But a job whose answer was sampled out is queued: a rule matched a span that came later. And one
        that was judged is queued again, if another record was judged and it has revisions left.

        Args:
            trace_id: The trace.
            jobs: Answers to judge.
            outcomes: Answers that end so.
            keep_spans: Whether spans that come later could still make a record of this trace.
            now_ns: The time.
            slices: How many slices of the trace all this was found in; ``None`` for all there are.
            moved: Spans whose answers are no more, and the spans that have them now.
            goes_on: Some calls of the trace are settled, not the trace.
        """
        ...

    async def take_jobs(
        self, limit: int, *, now_ns: int, seen_before_ns: int | None = None
    ) -> tuple[Job, ...]:
        """Lease up to ``limit`` jobs that are due, or that were queued before ``seen_before_ns``.

        A lease ends with the process. A job that was leased when a process ended, and not in order, is leased
        alone, and nothing beside it.
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
        """End a job and put what it yields, by sink, into the outbox.

        An answer that moved to another span meanwhile yields nothing, and one whose record changed since it
        was ``judged`` is queued again.

        If the trace is held, the ``addition`` is written onto the answer span when it is released, and only
        sinks that do not get the originals get a parcel. Return whether it is so.

        ``outcome`` is a `State` that ends, with its reason; ``carrier``
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
    ) -> ReleasedTraces:
        """Forward traces held since ``before_ns`` or earlier, and the oldest while more bytes are held."""
        ...

    async def outbox_items(
        self, sink: str, limit: int, *, most_bytes: int = 2 << 20
    ) -> tuple[OutboxItem, ...]:
        """Return the oldest parcels for a sink, in order; of more than ``most_bytes``, only the first."""
        ...

    async def delivered(self, outbox_items: Sequence[OutboxItem], *, unconfirmed: str = "") -> None:
        """Forget parcels that their sink has, or may have: ``unconfirmed`` says why that is not known."""
        ...

    async def reject(self, outbox_items: Sequence[OutboxItem], *, reason: str, now_ns: int) -> None:
        """Set parcels aside that their sink will never take; they stay readable until they expire."""
        ...

    async def unfinished(self, *, now_ns: int) -> int:
        """Return how many jobs are due or leased, and how many parcels wait."""
        ...

    async def ledger(self, tenant: str | None = None) -> Ledger:
        """Return the whole account, or that of one tenant's answers, read at once."""
        ...

    async def expire(self, *, decided_before_ns: int, ended_before_ns: int) -> int:
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
