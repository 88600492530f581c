"""The pipeline of a run: from stored traces to carriers at their destination."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ragtrace._ordered import map_in_order
from ragtrace.backfill._earlier_turns import earlier_turns
from ragtrace.backfill._record_selection import Item, choose, session_turns
from ragtrace.backfill._selection import Selection, SpanId
from ragtrace.backfill._trace_search import SearchedUpTo
from ragtrace.backfill.evaluator import BackfillEvaluator, EvaluatedRecord, OutgoingCarrier, may_begin
from ragtrace.backfill.report import BackfillReport, RunCounts
from ragtrace.backfill.resume import ResumableRun
from ragtrace.backfill.sessions import SessionBackfill
from ragtrace.clock import SystemClock
from ragtrace.conversations.turns import SessionSettings
from ragtrace.errors import SendError, SendRejected, SendRetryable, SendUnconfirmed
from ragtrace.http.retry import ReadRetries, Sleep
from ragtrace.model import JudgedAnswer
from ragtrace.pipeline.evaluator import Evaluator
from ragtrace.ports import Clock, SpanSink, TraceReader
from ragtrace.traces.attach import AttachOptions

_END_NS: Final = 2**63 - 1


async def backfill(
    reader: TraceReader,
    sink: SpanSink,
    *,
    evaluator: Evaluator,
    selection: Selection | None = None,
    attach: AttachOptions | None = None,
    concurrency: int = 8,
    on_evaluated: Callable[[JudgedAnswer], None] | None = None,
    run: ResumableRun | None = None,
    sessions: SessionSettings | None = None,
    clock: Clock | None = None,
    sleep: Sleep = asyncio.sleep,
) -> BackfillReport:
    """Judge the selected records and send a carrier for each that has an outcome.

    The carriers are those that a collector with this evaluator sends, but for mode, run id and times.

    ``on_evaluated`` is called in the order of the source. If the judge fails, the record gets no carrier, so
    that a second run tries it again. A chat answer without a retrieval gets none either. After a judge raises
    ``JudgeOverBudget``, no new record begins; the rest is only counted. With ``run``, carriers are stored on
    disk at once, and those that an earlier run left are sent first.

    With ``sessions``, which need a run, the sessions of the answers are judged at the end, if the source was
    read to its end: each that was idle by then gets the span that a collector writes of it.

    Raises:
        ConfigError: there are ``sessions`` and no ``run``.
        ReadError: no trace of the source could be read. If it breaks off later, the report says so.
        SendRetryable: the destination took nothing in several attempts; what was sent before stays sent.
    """
    selection, attach, clock = selection or Selection(), attach or AttachOptions(), clock or SystemClock()
    ledger = RunCounts()
    if run is not None:
        run.watch(ledger)
    turns = session_turns(run, evaluator, sessions)
    kept = turns.kept if turns else None
    latest_ns = selection.query.until_ns - 1 if kept and selection.query else _END_NS
    delivery = _Delivery(
        sink=sink, ledger=ledger, run=run, sleep=sleep, on_evaluated=on_evaluated, latest_ns=latest_ns
    )
    await delivery.send_what_waits()
    opened = earlier_turns(reader, selection, evaluator, run=run, turns=turns, settings=sessions)
    async with opened as earlier:
        judging = BackfillEvaluator(
            evaluator=evaluator, attach=attach, run=run, clock=clock, turns=kept, earlier=earlier
        )
        chosen = choose(reader, selection, ledger, evaluator.id, run, turns)
        work = partial(_work, judging=judging, ledger=ledger)
        await map_in_order(chosen, work, delivery.take, concurrency=concurrency)
    if sessions is not None:
        await _judge_sessions(judging, delivery, selection, sessions, concurrency)
    ledger.is_stopped = run is not None and run.stop.is_set()
    return ledger.report()


async def _work(
    item: Item, *, judging: BackfillEvaluator, ledger: RunCounts
) -> EvaluatedRecord | SearchedUpTo | None:
    if isinstance(item, SearchedUpTo):
        return item
    if not await may_begin(judging.run, ledger):
        return None
    judged = await judging.judge_one(item)
    if judged is not None:
        ledger.over_budget = ledger.over_budget or judged.exceeded_limit
    return judged


async def _judge_sessions(
    judging: BackfillEvaluator,
    delivery: _Delivery,
    selection: Selection,
    settings: SessionSettings,
    concurrency: int,
) -> None:
    """Judge the sessions, unless the source was not read to its end: then a later run does."""
    ledger, run, kept = delivery.ledger, judging.run, judging.turns
    assert run is not None  # `session_turns` has seen to it
    assert kept is not None
    if run.stop.is_set() or ledger.over_budget or ledger.broken_off:
        ledger.sessions_left = kept.number_open()
    elif ledger.is_limited:
        ledger.sessions_open = kept.number_open()
    else:
        sessions = SessionBackfill(
            evaluator=judging.evaluator,
            settings=settings,
            attach=judging.attach,
            kept=kept,
            run=run,
            ledger=ledger,
            clock=judging.clock,
        )
        end_ns = selection.query.until_ns if selection.query else judging.clock.now_ns()
        await sessions.carry_out(delivery.send, end_ns=end_ns, concurrency=concurrency)
    if ledger.reached_ns:  # it was a search
        await replace(delivery, latest_ns=_END_NS).reached(SearchedUpTo(ledger.reached_ns))


async def span_ids(reader: TraceReader) -> frozenset[SpanId]:
    """Collect the ids of all spans of a source.

    Raises:
        ReadError: it could not be read.
    """
    return frozenset(
        [SpanId(span.trace_id, span.span_id) async for trace in reader.traces() for span in trace.spans]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Delivery:
    """Sends carriers, and counts them."""

    sink: SpanSink
    ledger: RunCounts
    run: ResumableRun | None
    sleep: Sleep
    on_evaluated: Callable[[JudgedAnswer], None] | None
    latest_ns: int = _END_NS
    """A run has not reached its end before its sessions are judged."""

    async def take(self, done: EvaluatedRecord | SearchedUpTo | None) -> None:
        """Count the outcome of an item, and send its carrier if it has one."""
        if done is None:
            self.ledger.left += 1
            return
        if isinstance(done, SearchedUpTo):
            self.ledger.reached_ns = done.time_ns
            await self.reached(done)
            return
        if done.exceeded_limit:
            self.ledger.leave(done.evaluation)
            return
        self.ledger.count(done.evaluation)
        if self.on_evaluated is not None:
            self.on_evaluated(done.answer)
        if done.outgoing is not None:
            await self.send(done.outgoing)

    async def send_what_waits(self) -> None:
        """Send the carriers that an earlier run left."""
        if self.run is not None:
            for waiting in self.run.progress.waiting():
                await self.send(OutgoingCarrier(*waiting))

    async def send(self, outgoing: OutgoingCarrier) -> None:
        """Send a carrier, with retries.

        Raises:
            SendRetryable: the destination took nothing in several attempts.
        """
        retries = ReadRetries()
        while True:
            try:
                await self.sink.send(outgoing.payload)
            except SendRejected as exc:
                self.ledger.rejected[str(exc)] += 1
                break
            except (SendRetryable, SendUnconfirmed) as exc:  # resending is safe: the ids stay the same
                asked_for_s = exc.retry_after_s if isinstance(exc, SendRetryable) else None
                pause_s = retries.pause_s(asked_for_s)
                if pause_s is None:
                    raise _given_up(exc, retries, self.ledger) from exc
                await self.sleep(pause_s)
            else:
                self.ledger.sent += 1
                break
        if self.run is not None:
            await self.run.progress.sent(outgoing.trace_id, outgoing.span_id)

    async def reached(self, mark: SearchedUpTo) -> None:
        """Record that everything before this moment is judged and sent."""
        if self.run is not None and not self.ledger.is_behind:
            await self.run.progress.reached(self.run.name, min(mark.time_ns, self.latest_ns))


def _given_up(exc: SendError, retries: ReadRetries, ledger: RunCounts) -> SendRetryable:
    return SendRetryable(
        f"{exc} ({retries}; carriers sent before: {ledger.sent}). "
        "Run it again when the destination answers: the span ids will be the same"
    )
