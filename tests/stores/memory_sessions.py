"""What the store in memory keeps of sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ragtrace.answers.sessions import SessionSummary
from ragtrace.conversations.span import SessionName
from ragtrace_collector.store.port import KeptTurn, StoredSession, StoredTurn

if TYPE_CHECKING:
    from tests.stores.memory_state import MemoryState


@dataclass(slots=True, kw_only=True)
class MemoryTurn:
    """A turn, and what was said of it."""

    kept: KeptTurn
    digest: str = ""
    checked: bytes | None = None


@dataclass(slots=True, kw_only=True)
class MemorySession:
    """A session."""

    opened_ns: int
    newest_ns: int
    not_before_ns: int = 0
    attempts: int = 0
    revision: int = 0
    is_ended: bool = False
    written: str = ""
    turns: dict[tuple[str, str], MemoryTurn] = field(default_factory=dict)

    def in_order(self) -> list[MemoryTurn]:
        return sorted(
            self.turns.values(), key=lambda turn: (turn.kept.start_ns, turn.kept.trace_id, turn.kept.span_id)
        )


def add_turn(sessions: dict[SessionName, MemorySession], kept: KeptTurn, *, now_ns: int) -> None:
    known = sessions.get(kept.name)
    if known is None:
        known = sessions[kept.name] = MemorySession(opened_ns=now_ns, newest_ns=now_ns)
    else:
        known.revision += 1
        known.opened_ns = now_ns if known.is_ended else known.opened_ns
        known.newest_ns = max(known.newest_ns, now_ns)
        known.is_ended, known.attempts, known.not_before_ns = False, 0, 0
    known.turns = {
        key: turn
        for key, turn in known.turns.items()
        if not kept.supersedes or turn.kept.carrier_span_id != kept.supersedes
    }
    known.turns[kept.trace_id, kept.span_id] = MemoryTurn(kept=kept)
    for old in known.in_order()[: -kept.most_turns]:
        del known.turns[old.kept.trace_id, old.kept.span_id]


class MemorySessions:
    """A [`SessionStore`][ragtrace_collector.store.port.SessionStore]."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def due(
        self, *, quiet_before_ns: int, opened_before_ns: int, now_ns: int, limit: int = 20
    ) -> tuple[SessionName, ...]:
        await asyncio.sleep(0)
        found = [
            (known.newest_ns, name)
            for name, known in self._state.sessions.items()
            if not known.is_ended
            and known.not_before_ns <= now_ns
            and (known.newest_ns < quiet_before_ns or known.opened_ns < opened_before_ns)
        ]
        return tuple(name for _, name in sorted(found, key=lambda one: one[0])[:limit])

    async def session(self, name: SessionName) -> StoredSession | None:
        await asyncio.sleep(0)
        known = self._state.sessions.get(name)
        if known is None:
            return None
        return StoredSession(
            name=name,
            revision=known.revision,
            attempts=known.attempts,
            span_id=known.written,
            turns=tuple(
                StoredTurn(
                    carrier_span_id=turn.kept.carrier_span_id,
                    turn=turn.kept.turn,
                    place=turn.kept.place,
                    checked=turn.checked,
                    digest=turn.digest,
                )
                for turn in known.in_order()
            ),
        )

    async def before(
        self, name: SessionName, *, start_ns: int, trace_id: str, span_id: str, limit: int
    ) -> tuple[bytes, ...]:
        await asyncio.sleep(0)
        known = self._state.sessions.get(name)
        kept = [turn.kept for turn in known.in_order()] if known else []
        own = (start_ns, trace_id, span_id)
        earlier = [turn.turn for turn in kept if (turn.start_ns, turn.trace_id, turn.span_id) < own]
        return tuple(earlier[-limit:])

    async def keep_check(
        self, name: SessionName, carrier_span_id: str, *, digest: str, checked: bytes
    ) -> None:
        await asyncio.sleep(0)
        known = self._state.sessions.get(name)
        for turn in known.turns.values() if known else ():
            if turn.kept.carrier_span_id == carrier_span_id:
                turn.digest, turn.checked = digest, checked

    async def postpone(self, name: SessionName, *, until_ns: int) -> None:
        await asyncio.sleep(0)
        known = self._state.sessions[name]
        known.not_before_ns, known.attempts = until_ns, known.attempts + 1

    async def end(
        self,
        name: SessionName,
        *,
        revision: int,
        span_id: str,
        outbox_items: Mapping[str, bytes],
        summary: SessionSummary | None = None,
    ) -> bool:
        await asyncio.sleep(0)
        known = self._state.sessions.get(name)
        if known is None or known.revision != revision or known.is_ended:
            return False
        known.is_ended, known.attempts, known.not_before_ns, known.written = True, 0, 0, span_id
        self._state.post(outbox_items)
        if summary is not None:
            self._state.index.sessions.append(summary)
        return True

    async def forget(self, *, before_ns: int) -> int:
        await asyncio.sleep(0)
        return forget_sessions(self._state.sessions, before_ns=before_ns)


def forget_sessions(sessions: dict[SessionName, MemorySession], *, before_ns: int) -> int:
    old = [name for name, known in sessions.items() if known.is_ended and known.newest_ns < before_ns]
    for name in old:
        del sessions[name]
    return len(old)
