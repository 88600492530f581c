"""Jobs: answers that wait for the judge, are being judged, or have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol

from ragtrace.traces.attach import Sample
from ragtrace.traces.extract import Unread
from ragtrace_collector.store.port._index import KeptCarrier
from ragtrace_collector.store.port._sessions import KeptTurn
from ragtrace_collector.store.trace_key import trace_id_of


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


class JobStore(Protocol):
    """Queues answers, leases them to workers, and keeps how each ended.

    A job is pending until it ends: ``queued`` until it is due, ``leased`` while it is judged.
    """

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
        feedback: Mapping[str, str] = MappingProxyType({}),
        unread: Unread | None = None,
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
            feedback: The last feedback on answers, for the index; by span, or by the empty text if it is on
                the trace and names no span.
            unread: What the trace holds if nothing in it was read: counted by its producer.
        """
        ...

    async def take_jobs(
        self, limit: int, *, now_ns: int, seen_before_ns: int | None = None
    ) -> tuple[Job, ...]:
        """Lease up to ``limit`` jobs that are due, or that were queued before ``seen_before_ns``.

        No job is leased twice at once. Those that have been due longest, or were queued first, are taken;
        they come in any order. A lease ends with the process. A job that was leased when a process crashed
        is leased alone: while no other job is leased and no suspect trace is read.
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
        kept: KeptCarrier | None = None,
        turn: KeptTurn | None = None,
    ) -> bool | None:
        """End a job and put its payloads, by sink, into the outbox.

        An answer that moved to another span meanwhile adds nothing, and then this returns ``None``. If the
        record changed since it was ``judged``, the answer is queued again.

        If the trace is held, the ``addition`` is written on the answer span at its release, and only sinks
        that don't get the originals get an outbox item. Return whether that is so.

        ``outcome`` is a final `State` with its reason, ``carrier`` the span id of the carrier in the items,
        and ``evaluator`` its evaluator's version: `ragtrace why` shows both. What is ``kept`` goes into the
        index, and a ``turn`` into its session.

        Raises:
            ValueError: the state is unknown.
        """
        ...

    async def postpone(self, job: Job, *, due_ns: int, reason: str, failed: bool = True) -> None:
        """Give a leased job back for a retry; ``failed`` says whether the attempt counts.

        It has crashed no process: the job is no suspect any more. Its trace is not held any longer.
        """
        ...

    async def give_back(self, job: Job) -> None:
        """Give a leased job back unchanged, because its worker was stopped; one that has ended stays so."""
        ...

    async def unfinished(self, *, now_ns: int) -> int:
        """Return how many jobs are due or leased, plus how many outbox items wait."""
        ...
