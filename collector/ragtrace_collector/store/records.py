"""What goes into the store and comes out of it, by the key of its trace. Times are Unix nanoseconds.

A key is the trace's id and the tenant of the sender's token. Anyone who knows a trace id can send spans with
it. If the id alone were the key, a span of another tenant could replace an answer, or end a wait. So one id
under two tenants is two traces, from first span to verdict.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from ragtrace.answers.summary import AnswerSummary
from ragtrace.conversations import SessionName
from ragtrace.errors import RagtraceError, ReadError
from ragtrace.model import RagRecord, Sample
from ragtrace_collector.ledger import AnswerStatus

BEHIND_ID: Final = "@"
"""Never part of a trace id."""
TRACE_ID_LENGTH: Final = 32
"""Hexadecimal digits."""


def trace_key(trace_id: str, tenant: str | None) -> str:
    """Return the key of a trace; without a tenant, its id."""
    return f"{trace_id}{BEHIND_ID}{tenant}" if tenant else trace_id


def trace_id_of(key: str) -> str:
    """Return the trace id that the application, the judge's trace and back ends use."""
    return key.partition(BEHIND_ID)[0]


def tenant_of(key: str) -> str:
    """Return the tenant whose token sent the trace; empty if there is none."""
    return key.partition(BEHIND_ID)[2]


class StoreUnavailable(RagtraceError):
    """The store is full or its disk fails: senders should try again later."""


class StoreUnreadable(ReadError, StoreUnavailable):
    """The store cannot be read: it is away or damaged, or holds something else."""


class UnfitFile(sqlite3.DatabaseError):
    """It is a database that this ragtrace cannot use."""

    def __init__(self, why: str, advice: str) -> None:
        super().__init__(why)
        self.advice = advice


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTurn:
    """A turn that is read back."""

    carrier_span_id: str
    turn: bytes
    place: bytes
    checked: bytes | None = None
    """What the judge said of it against earlier turns."""
    digest: str = ""
    """What was checked; another digest needs another check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """A session, as it is now."""

    name: SessionName
    revision: int
    """Grows with each turn that comes or changes."""
    attempts: int
    """How often judging it has failed since the last turn came."""
    span_id: str
    """The last span that was written of it; empty if none was."""
    turns: tuple[StoredTurn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCarrier:
    """What the store keeps of one evaluation."""

    summary: AnswerSummary
    """Its row. It stays as long as the index allows."""
    payload: bytes
    """The carrier as serialized ``TracesData``."""
    record: RagRecord | None = None
    """What was judged. With it, both stay as long as the row; else the carrier goes with the spans."""


class IndexSize(NamedTuple):
    """How much the index holds."""

    rows: int
    """With those of superseded evaluations."""
    oldest_ns: int | None
    """When the oldest judged span began; ``None`` without a row."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxItem:
    """An OTLP request on its way to one sink."""

    id: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrace:
    """What a store has about one trace."""

    last_arrival_ns: int
    """Unix time in nanoseconds, like all times here."""
    is_open: bool
    """Whether it waits for a decision, for the first time or because spans joined it."""
    decided_ns: int | None
    """When its last decision was made."""
    is_cut: bool
    """Whether spans were dropped because there were too many."""
    poison: str
    """Why it was set aside: ``crashes`` of the process, or ``cpu``. Empty if it was not."""
    crashes: int
    """How many processes crashed while they read it."""
    held_since_ns: int | None
    """When its own spans were held back to wait for their scores; None if they are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport:
    """A trace and its answers, read at one moment."""

    trace: StoredTrace | None
    """None if its spans were deleted, or never came."""
    payloads: tuple[bytes, ...] | None = ()
    """Its spans as ``StoredSpans.payloads``, if it is open. None if they cannot be decrypted."""
    answers: tuple[AnswerStatus, ...] = ()
    """In the order in which they were seen. They stay longer than the trace."""
