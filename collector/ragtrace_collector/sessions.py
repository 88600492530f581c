"""The stage that judges sessions: when one is over, its turns are put together, and a span tells of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ragtrace.answers.summary import SessionSummary, session_summary_of
from ragtrace.conversations import (
    SessionName,
    Turn,
    TurnCheck,
    check_of_json,
    check_turn,
    digest_of,
    judge_session,
    session_span,
    turn_of_json,
)
from ragtrace.errors import JudgeError
from ragtrace.ports import Clock
from ragtrace.traces.otlp import decode, encode
from ragtrace_collector.config.values import nanoseconds
from ragtrace_collector.judge import Live, LiveConfig
from ragtrace_collector.store.records import StoredSession, StoredTurn, StoreUnavailable
from ragtrace_collector.store.store import Store
from ragtrace_collector.telemetry.counters import Counters, Counts
from ragtrace_collector.telemetry.logs import event, place_of

log = logging.getLogger("ragtrace.collector")


_RETRY_DELAYS: Final = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 30, 120, 360))
"""After them a session is told without what could not be checked."""


class _Later(Exception):
    """The judge cannot be asked now."""

    def __init__(self, until_ns: int) -> None:
        super().__init__(until_ns)
        self.until_ns = until_ns


@dataclass(slots=True, kw_only=True)
class SessionStage:
    """Judges sessions that are over, one after the other."""

    store: Store
    live: LiveConfig
    sinks: tuple[str, ...]
    """As in the stage that judges answers."""
    counters: Counters
    clock: Clock
    done: asyncio.Event
    """Set when there are new items to deliver."""

    async def step(self) -> bool:
        """Judge some sessions; say whether there were any."""
        config, now_ns = self.live.now.config.sessions, self.clock.now_ns()
        if not config.enabled:
            return False
        names = await self.store.sessions.due(
            quiet_before_ns=now_ns - nanoseconds(config.idle),
            opened_before_ns=now_ns - nanoseconds(config.max_length),
            now_ns=now_ns,
        )
        for name in names:
            await self._attempt(name)
        forgotten = await self.store.sessions.forget(before_ns=now_ns - nanoseconds(config.max_length))
        return bool(names or forgotten)

    async def _attempt(self, name: SessionName) -> None:
        session = await self.store.sessions.session(name)
        if session is None:
            return
        live = self.live.now
        try:
            async with live.guarded.evaluation():
                await self._judge(session, live)
        except _Later as later:
            await self.store.sessions.postpone(name, until_ns=later.until_ns)
        except StoreUnavailable:
            raise
        except Exception as exc:  # noqa: BLE001 -- one session must not keep the others waiting
            self.counters.add(Counts.STAGE_ERRORS)
            log.error("a session: %s", place_of(exc), extra=event("session_failed"))  # noqa: TRY400
            await self.store.sessions.postpone(name, until_ns=self._retry_ns(session))

    async def _judge(self, session: StoredSession, live: Live) -> None:
        if not session.turns:
            await self._end(session, span_id="", items={})
            return
        turns = [turn_of_json(stored.turn) for stored in session.turns]
        stored_by_key = {turn.key: stored for turn, stored in zip(turns, session.turns, strict=True)}

        async def ask(turn: Turn, earlier: Sequence[Turn]) -> TurnCheck | None:
            return await self._check(session, stored_by_key[turn.key], turn, earlier, live)

        findings = await judge_session(turns, ask)
        (last,) = decode(session.turns[-1].place)
        span = session_span(
            findings,
            session.name,
            last=last,
            now_ns=self.clock.now_ns(),
            supersedes=session.span_id,
            options=live.attach,
        )
        is_new = span.span_id != session.span_id
        items = dict.fromkeys(self.sinks, encode([span])) if is_new else {}
        summary = session_summary_of(span, tenant=session.name.tenant) if is_new else None
        await self._end(session, span_id=span.span_id, items=items, summary=summary)

    async def _end(
        self,
        session: StoredSession,
        *,
        span_id: str,
        items: Mapping[str, bytes],
        summary: SessionSummary | None = None,
    ) -> None:
        is_ended = await self.store.sessions.end(
            session.name,
            revision=session.revision,
            span_id=span_id,
            outbox_items=items,
            summary=summary,
        )
        if is_ended and items:
            self.counters.add(Counts.SESSIONS_JUDGED)
            self.done.set()

    async def _check(
        self, session: StoredSession, stored: StoredTurn, turn: Turn, earlier: Sequence[Turn], live: Live
    ) -> TurnCheck | None:
        """Check a turn against those before it; what is known already is not asked again.

        Raises:
            _Later: the judge cannot be asked now.
        """
        digest = digest_of(turn, earlier)
        if stored.checked is not None and stored.digest == digest:
            return check_of_json(stored.checked)
        guarded = live.guarded
        if not guarded.evaluator.judge.identity.contradicts:
            return None
        closed = guarded.closed()
        if closed is not None:
            self._wait(session, at_least_ns=closed.until_ns)
            return None
        try:
            async with asyncio.timeout(live.config.judge.attempt_s):
                check = await check_turn(turn, earlier, guarded.evaluator)
        except (JudgeError, TimeoutError):
            self._wait(session)
            return None
        await self.store.sessions.keep_check(
            session.name, turn.carrier_span_id, digest=digest, checked=check.to_json()
        )
        return check

    def _wait(self, session: StoredSession, *, at_least_ns: int = 0) -> None:
        """Let the session wait, unless it has waited too often: then this check is left out.

        Raises:
            _Later: it waits.
        """
        if session.attempts < len(_RETRY_DELAYS):
            raise _Later(max(self._retry_ns(session), at_least_ns))

    def _retry_ns(self, session: StoredSession) -> int:
        delay = _RETRY_DELAYS[min(session.attempts, len(_RETRY_DELAYS) - 1)]
        return self.clock.now_ns() + nanoseconds(delay)
