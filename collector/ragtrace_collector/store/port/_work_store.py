"""The whole port."""

from __future__ import annotations

from typing import Protocol

from ragtrace.budget import SpendLedger
from ragtrace_collector.store.port._dead_letters import DeadLetterStore
from ragtrace_collector.store.port._drift import DriftStore
from ragtrace_collector.store.port._index import IndexStore
from ragtrace_collector.store.port._jobs import JobStore
from ragtrace_collector.store.port._ledger import LedgerStore
from ragtrace_collector.store.port._maintenance import MaintenanceStore
from ragtrace_collector.store.port._outbox import OutboxStore
from ragtrace_collector.store.port._quarantine import QuarantineStore
from ragtrace_collector.store.port._sampling import SamplingStore
from ragtrace_collector.store.port._sessions import SessionStore
from ragtrace_collector.store.port._spans import SpanStore


class WorkStore(
    SpanStore,
    QuarantineStore,
    JobStore,
    IndexStore,
    OutboxStore,
    LedgerStore,
    DeadLetterStore,
    MaintenanceStore,
    Protocol,
):
    """What survives a crash, from the acknowledged span to the delivered carrier.

    **Transactions.** Every method is one: when it returns, all or nothing of it is durable, also if the
    caller is canceled meanwhile. Transactions follow one another in the order in which the methods were
    called, and each sees those before it.

    **Keys.** A trace id here is a key with the tenant (``store.trace_key``). Times are Unix nanoseconds; the
    caller passes them in, and they may go back.

    **One process.** A store that is opened again was closed or has crashed: leases and looks that are left
    end then, and count against their answers and traces.

    **Errors.** Every method raises StoreUnavailable if the disk is full or fails.
    """

    @property
    def budget(self) -> SpendLedger:
        """What was spent on judging, in the same place."""
        ...

    @property
    def sessions(self) -> SessionStore:
        """The turns of sessions, in the same place."""
        ...

    @property
    def drift(self) -> DriftStore:
        """What the drift check found, in the same place."""
        ...

    @property
    def sampling(self) -> SamplingStore:
        """The state of sampling, in the same place."""
        ...
