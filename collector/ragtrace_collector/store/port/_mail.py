"""Mail: what a shard of a cluster sends to another, because it concerns traces of several shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ragtrace_collector.store.port._sessions import KeptTurn


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """What one shard tells another, once in effect, however often it comes."""

    id: str
    """The same whenever it is sent again, and of no other mail."""
    to: int
    """The number of the shard that gets it."""
    turn: KeptTurn | None = None
    """A judged answer of a session that the receiver keeps."""


class MailStore(Protocol):
    """Takes in what other shards sent.

    Mail waits at its sender in the outbox under the name `MAIL`, encoded, and is put there by the transaction
    that it belongs to: `JobStore.finish`.
    """

    async def receive_mail(self, mail: Sequence[Mail], *, now_ns: int) -> int:
        """Keep turns in their sessions, in order; return how many were new.

        What came before is left out, until `MaintenanceStore.expire` has forgotten that it came.
        """
        ...
