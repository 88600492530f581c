"""The ledger: what happened to every answer that was seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ragtrace_collector.ledger.account import AnswerStatus, Ledger


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
    held_since_ns: int | None
    """When its own spans were held back to wait for their scores; None if they are not."""
    poison: str = ""
    """Why it was set aside; empty if it was not."""
    crashes: int = 0
    """How many processes crashed while they read it."""
    payloads: tuple[bytes, ...] | None = ()
    """Its spans as ``StoredSpans.payloads``, if it is open. None if they cannot be decrypted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport:
    """A trace and its answers, read at one moment."""

    trace: StoredTrace | None
    """None if its spans were deleted, or never came."""
    answers: tuple[AnswerStatus, ...] = ()
    """In the order in which they were seen. They stay longer than the trace."""


class LedgerStore(Protocol):
    """Counts every answer and outbox item with the transaction that changes it, and outlives their rows.

    Each method reads one moment, sees what earlier calls changed, and keeps no writer waiting.
    """

    async def ledger(self, tenant: str | None = None, *, since_ns: int | None = None) -> Ledger:
        """Return the whole ledger, or that of one tenant's answers. It adds up at every moment.

        With ``since_ns``, it counts the answers that were seen since that time and are still stored, by
        service too.
        """
        ...

    async def find_traces(self, begin: str, *, limit: int, tenant: str | None = None) -> tuple[str, ...]:
        """Return the keys of traces, stored or with answers, whose ids begin so, in order.

        ``begin`` is made of hex digits, as trace ids are; every id begins with the empty string. With
        ``tenant``, only that tenant's traces count.
        """
        ...

    async def trace_report(self, trace_id: str) -> TraceReport:
        """Return what is known about a trace, by its whole key."""
        ...
