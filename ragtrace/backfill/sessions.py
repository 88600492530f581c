"""Sessions in a back-fill: their turns are collected while it runs, and judged together at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ragtrace._ordered import map_in_order
from ragtrace.backfill._kept_turns import KeptTurns, KnownTurn, WrittenSpan
from ragtrace.backfill.evaluator import OutgoingCarrier, finish_unless_left, may_begin
from ragtrace.backfill.report import RunCounts
from ragtrace.backfill.resume import ResumableRun
from ragtrace.conversations.findings import SessionFindings, TurnCheck, check_of_json, check_turn
from ragtrace.conversations.judging import SessionName, judge_session, session_span, span_id_of
from ragtrace.conversations.turns import SessionSettings, Turn, digest_of
from ragtrace.errors import JudgeError, JudgeOverBudget
from ragtrace.pipeline.evaluator import Evaluator
from ragtrace.ports import Clock
from ragtrace.traces.attach import AttachOptions
from ragtrace.traces.otlp import encode

Send = Callable[[OutgoingCarrier], Awaitable[None]]


class _JudgedSession(NamedTuple):
    findings: SessionFindings
    outgoing: OutgoingCarrier


class _Outcome(NamedTuple):
    """What became of the sessions under one id."""

    judged: Sequence[_JudgedSession] = ()
    known: int = 0
    failure: JudgeError | None = None
    is_left: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBackfill:
    """Judges the sessions that are over, as the collector does, and sends a span for each."""

    evaluator: Evaluator
    settings: SessionSettings
    attach: AttachOptions
    kept: KeptTurns
    run: ResumableRun
    ledger: RunCounts
    clock: Clock

    async def carry_out(self, send: Send, *, end_ns: int, concurrency: int) -> None:
        """Judge the sessions that were idle at the end of what was searched, several at once.

        What a judge's failure, the budget or a stop leaves is judged by a later run.

        Raises:
            SendRetryable: the destination took nothing in several attempts.
        """

        async def names() -> AsyncIterator[SessionName]:
            for name in self.kept.open(before_ns=end_ns - self.settings.idle_ns):
                yield name

        async def take(outcome: _Outcome) -> None:
            self._count(outcome)
            for judged in outcome.judged:
                await send(judged.outgoing)

        await map_in_order(names(), self._work, take, concurrency=concurrency)
        await self.kept.forget(before_ns=end_ns - self.settings.keep_ns)
        self.ledger.sessions_open = (
            self.kept.number_open() - self.ledger.sessions_left - self.ledger.sessions_failed.total()
        )

    async def _work(self, name: SessionName) -> _Outcome:
        if not await may_begin(self.run, self.ledger):
            return _Outcome(is_left=True)
        outcome = await finish_unless_left(self._judge_all(name), self.run)
        if outcome is None:
            return _Outcome(is_left=True)
        if isinstance(outcome.failure, JudgeOverBudget):
            self.ledger.over_budget = self.ledger.over_budget or str(outcome.failure)
        return outcome

    def _count(self, outcome: _Outcome) -> None:
        self.ledger.sessions.update(str(judged.findings.label) for judged in outcome.judged)
        self.ledger.sessions_known += outcome.known
        if isinstance(outcome.failure, JudgeOverBudget) or outcome.is_left:
            self.ledger.sessions_left += 1
        elif outcome.failure is not None:
            self.ledger.usage += outcome.failure.usage
            self.ledger.sessions_failed[outcome.failure.error_type] += 1

    async def _judge_all(self, name: SessionName) -> _Outcome:
        judged: list[_JudgedSession] = []
        known = 0
        for turns in self.kept.sessions(name, self.settings):
            try:
                found = await self._judge(name, turns)
            except JudgeError as exc:
                return _Outcome(judged, known, exc)
            if found is None:
                known += 1
            else:
                judged.append(found)
        await self.kept.end(name)
        return _Outcome(judged, known)

    async def _judge(self, name: SessionName, kept: Sequence[KnownTurn]) -> _JudgedSession | None:
        """Judge a session; ``None`` if a span of these very turns was written before."""
        by_key = {one.turn.key: one for one in kept}
        turns, written = [one.turn for one in kept], [span for one in kept for span in one.written]
        if any(span.span_id == span_id_of(name, turns, unchecked=span.unchecked) for span in written):
            return None

        async def ask(turn: Turn, earlier: Sequence[Turn]) -> TurnCheck | None:
            return await self._check(name, by_key[turn.key], earlier)

        findings = await judge_session(turns, ask, self.settings)
        span = session_span(
            findings,
            name,
            last=kept[-1].last_span,
            options=self.attach,
            now_ns=self.clock.now_ns(),
            supersedes=_latest(written),
        )
        outgoing = OutgoingCarrier(span.trace_id, span.span_id, encode([span]))
        await self.kept.written(name, kept[-1], span, outgoing.payload)
        return _JudgedSession(findings, outgoing)

    async def _check(self, name: SessionName, kept: KnownTurn, earlier: Sequence[Turn]) -> TurnCheck | None:
        digest = digest_of(kept.turn, earlier)
        if kept.checked is not None and kept.digest == digest:
            return check_of_json(kept.checked)
        if not self.evaluator.judge.identity.contradicts:
            return None
        check = await check_turn(kept.turn, earlier, self.evaluator)
        self.ledger.usage += check.usage
        await self.kept.keep_check(name, kept.turn, digest=digest, checked=check.to_json())
        return check


def _latest(written: Sequence[WrittenSpan]) -> str:
    """Return the last span of a session that was written before: of several, one that none supersedes."""
    replaced = {span.supersedes for span in written}
    return next((span.span_id for span in reversed(written) if span.span_id not in replaced), "")
