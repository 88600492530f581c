"""What is kept of sessions until they are judged as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ragtrace.answers.sessions import SessionSummary
from ragtrace.conversations.span import SessionName


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTurn:
    """A judged answer as a turn of its session. `JobStore.finish` adds it."""

    name: SessionName
    trace_id: str
    """Of the answer, without the tenant."""
    span_id: str
    start_ns: int
    """When the judged span began."""
    carrier_span_id: str
    supersedes: str = ""
    """The carrier that this one replaces, at this span or at another: its turn goes."""
    turn: bytes
    """The turn, as `ragtrace.conversations.turns` writes it. It has content."""
    place: bytes
    """The carrier without attributes and events, as ``TracesData``: where a session's span goes."""
    most_turns: int = 1_000
    """Beyond them the session's oldest turns go."""


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


class SessionStore(Protocol):
    """Keeps the turns of sessions, by tenant and id.

    A session is open from a turn that comes or changes until `end`. Each method is one transaction, and all
    raise StoreUnavailable.
    """

    async def due(
        self, *, quiet_before_ns: int, opened_before_ns: int, now_ns: int, limit: int = 20
    ) -> tuple[SessionName, ...]:
        """Return open sessions without a turn since a time, or that were opened before one.

        Those that are postponed beyond ``now_ns`` are left out.
        """
        ...

    async def session(self, name: SessionName) -> StoredSession | None:
        """Return a session with its turns; ``None`` if it is not known."""
        ...

    async def before(
        self, name: SessionName, *, start_ns: int, trace_id: str, span_id: str, limit: int
    ) -> tuple[bytes, ...]:
        """Return the last turns of a session that began before an answer, the oldest first.

        Of turns that began with it, those count whose ids are smaller.
        """
        ...

    async def keep_check(
        self, name: SessionName, carrier_span_id: str, *, digest: str, checked: bytes
    ) -> None:
        """Keep what the judge said of a turn, so that it is not asked again."""
        ...

    async def postpone(self, name: SessionName, *, until_ns: int) -> None:
        """Let an open session wait, and count an attempt."""
        ...

    async def end(
        self,
        name: SessionName,
        *,
        revision: int,
        span_id: str,
        outbox_items: Mapping[str, bytes],
        summary: SessionSummary | None = None,
    ) -> bool:
        """Note the span of a session, put it into the outbox and its summary into the index.

        Nothing is done if a turn came meanwhile.

        Returns:
            Whether the session was as ``revision`` says. If not, nothing has changed.
        """
        ...

    async def forget(self, *, before_ns: int) -> int:
        """Delete ended sessions without a turn since a time. Return how many, some at a time."""
        ...
