"""What every method of a store raises."""

from __future__ import annotations

from ragtrace.errors import RagtraceError


class StoreUnavailable(RagtraceError):
    """The store is full or its disk fails: senders should try again later."""
