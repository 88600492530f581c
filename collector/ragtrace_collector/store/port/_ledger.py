"""The ledger: what happened to every answer that was seen."""

from __future__ import annotations

from typing import Protocol

from ragtrace_collector.ledger.account import Ledger


class LedgerStore(Protocol):
    """Counts every answer and outbox item with the transaction that changes it, and outlives their rows."""

    async def ledger(self, tenant: str | None = None) -> Ledger:
        """Return the whole ledger, or that of one tenant's answers, read at one moment.

        It adds up at every moment. It sees what earlier calls changed, and keeps no writer waiting.
        """
        ...
