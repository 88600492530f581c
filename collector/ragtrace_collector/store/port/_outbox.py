"""The outbox: requests on their way to the sinks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxItem:
    """An OTLP request on its way to one sink."""

    id: int
    payload: bytes


class OutboxStore(Protocol):
    """A queue for each sink. Items are put there by the transaction that they belong to."""

    async def outbox_items(
        self, sink: str, limit: int, *, most_bytes: int = 2 << 20
    ) -> tuple[OutboxItem, ...]:
        """Return the oldest items for a sink, in order, up to ``most_bytes`` but at least one.

        They stay in the queue until they are ``delivered`` or rejected: after a crash they come again.
        """
        ...

    async def delivered(self, outbox_items: Sequence[OutboxItem], *, unconfirmed: str = "") -> None:
        """Delete items that their sink has, or may have: ``unconfirmed`` says why that is not known."""
        ...

    async def reject(self, outbox_items: Sequence[OutboxItem], *, reason: str, now_ns: int) -> None:
        """Set items aside that their sink refused for good; they stay readable until they expire."""
        ...
