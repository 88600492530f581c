"""The tenants that the ledger counts answers under."""

from __future__ import annotations

from typing import Final

from ragtrace.sql import Db

OTHERS: Final = "(others)"
"""Tenants beyond the first thousand: senders name them, and the ledger must not grow without limit."""
_MOST_TENANTS: Final = 1_000


class Accounts:
    """The tenants that have accounts, as this process knows them; once one has, it always will."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def of(self, db: Db, tenant: str) -> str:
        """Return the account of a tenant that an answer was seen of."""
        if tenant not in self._known:
            self._known.update(row[0] for row in db.execute("SELECT DISTINCT tenant FROM ledger"))
            if len(self._known - {OTHERS}) >= _MOST_TENANTS and tenant not in self._known:
                return OTHERS
        return tenant
