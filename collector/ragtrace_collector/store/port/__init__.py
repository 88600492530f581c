"""The port of the work store: what the collector needs of it, and nothing of SQL.

`WorkStore` is the whole. Its parts are Protocols of their own, so that a stage can name what it uses.
"""

from __future__ import annotations

from ragtrace_collector.store.port._dead_letters import DeadLetter, DeadLetterStore
from ragtrace_collector.store.port._drift import DriftStore
from ragtrace_collector.store.port._errors import StoreUnavailable
from ragtrace_collector.store.port._index import IndexSize, IndexStore, KeptCarrier, StoredContent
from ragtrace_collector.store.port._jobs import Job, JobStore, JudgedInput, Outcome, TraceDecided
from ragtrace_collector.store.port._ledger import LedgerStore, StoredTrace, TraceReport
from ragtrace_collector.store.port._maintenance import MaintenanceStore
from ragtrace_collector.store.port._outbox import OutboxItem, OutboxStore
from ragtrace_collector.store.port._quarantine import QuarantineReason, QuarantineRecord, QuarantineStore
from ragtrace_collector.store.port._sampling import RelatedAnswer, SamplingStore
from ragtrace_collector.store.port._sessions import KeptTurn, SessionStore, StoredSession, StoredTurn
from ragtrace_collector.store.port._spans import HoldMode, ReleasedTraces, SpanStore, StoredSpans
from ragtrace_collector.store.port._work_store import WorkStore

__all__ = [
    "DeadLetter",
    "DeadLetterStore",
    "DriftStore",
    "HoldMode",
    "IndexSize",
    "IndexStore",
    "Job",
    "JobStore",
    "JudgedInput",
    "KeptCarrier",
    "KeptTurn",
    "LedgerStore",
    "MaintenanceStore",
    "OutboxItem",
    "OutboxStore",
    "Outcome",
    "QuarantineReason",
    "QuarantineRecord",
    "QuarantineStore",
    "RelatedAnswer",
    "ReleasedTraces",
    "SamplingStore",
    "SessionStore",
    "SpanStore",
    "StoreUnavailable",
    "StoredContent",
    "StoredSession",
    "StoredSpans",
    "StoredTrace",
    "StoredTurn",
    "TraceDecided",
    "TraceReport",
    "WorkStore",
]
