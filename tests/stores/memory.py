"""A work store in memory: the second adapter of the port. It shares no code with the first.

It does not survive its process. What would be on disk is its `MemoryState`: the next store gets it handed.
Every method takes its turn first and then changes the state without a pause, so that it is one transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from ragtrace.answers.port import AnswerIndex
from ragtrace.traces.additions import add_to_spans
from ragtrace.traces.otlp import TraceSlice
from ragtrace_collector.ledger.account import Ledger
from ragtrace_collector.ledger.outcomes import POISON, FinalOutcome, State
from ragtrace_collector.store.port import (
    MAIL,
    DeadLetter,
    HoldMode,
    IndexSize,
    Job,
    JudgedInput,
    KeptCarrier,
    KeptTurn,
    Mail,
    OutboxItem,
    Outcome,
    QuarantineRecord,
    ReleasedTraces,
    StoredSpans,
    StoredTrace,
    StoreUnavailable,
    TraceDecided,
    TraceReport,
)
from ragtrace_collector.store.trace_key import tenant_of
from tests.stores.memory_content import MemoryContent
from tests.stores.memory_drift import MemoryDrift
from tests.stores.memory_sampling import MemoryBudget, MemorySampling, select_follow_up
from tests.stores.memory_sessions import MemorySessions, add_turn, forget_sessions
from tests.stores.memory_state import Answer, HeldTrace, MemoryState, StoredTraceRow, Suspect, stored

_ROOM_TO_HOLD: Final = 0.8
_ALWAYS: Final = 1 << 63


class MemoryStore:
    """A [`WorkStore`][ragtrace_collector.store.port.WorkStore] over a state that its owner keeps."""

    def __init__(
        self, state: MemoryState, *, max_bytes: int = 10 << 20, forward_to: Sequence[str] = ()
    ) -> None:
        """Take over a state, and take back what the process before it left."""
        self._state = state
        self._max_bytes = max_bytes
        self._forward_to = tuple(forward_to)
        self._is_closed = False
        self._count_crash()

    @property
    def budget(self) -> MemoryBudget:
        return MemoryBudget(self._state)

    @property
    def drift(self) -> MemoryDrift:
        return MemoryDrift(self._state)

    @property
    def sessions(self) -> MemorySessions:
        return MemorySessions(self._state)

    @property
    def sampling(self) -> MemorySampling:
        return MemorySampling(self._state)

    async def _turn(self) -> MemoryState:
        """Wait for those who came before, as for a writer."""
        await asyncio.sleep(0)
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
        return self._state

    def _count_crash(self) -> None:
        for answer in list(self._state.answers.values()):
            if answer.state == "leased":
                self._state.put(replace(answer, state="queued", crashes=answer.crashes + 1))
        for suspect in self._state.suspects.values():
            suspect.crashes += suspect.is_looked_at
            suspect.is_looked_at = False

    # spans

    async def append(
        self,
        slices: Sequence[TraceSlice],
        *,
        forward: Mapping[str, bytes],
        now_ns: int,
        holding: HoldMode = HoldMode.OFF,
        cut: Collection[str] = (),
    ) -> frozenset[str]:
        state = await self._turn()
        while state.used_bytes() > self._max_bytes:
            if not self._make_room():
                raise StoreUnavailable(
                    f"the store holds more than `store.max_bytes` ({self._max_bytes}), all unfinished"
                )
        if holding is not HoldMode.OFF:
            has_room = state.used_bytes() <= _ROOM_TO_HOLD * self._max_bytes
            for part in slices:
                self._pass_on(part, hold_new=holding is HoldMode.NEW and has_room, now_ns=now_ns)
        reopened = frozenset(part.trace_id for part in slices if self._keep(part, now_ns=now_ns))
        for trace_id in cut:
            unknown = StoredTraceRow(last_arrival_ns=now_ns, decided_ns=now_ns)
            state.traces.setdefault(trace_id, unknown).is_cut = True
        state.post(forward)
        return reopened

    def _pass_on(self, part: TraceSlice, *, hold_new: bool, now_ns: int) -> None:
        if part.trace_id in self._state.held:
            self._state.held[part.trace_id].size += len(part.payload)
        elif hold_new and part.trace_id not in self._state.traces:
            self._state.held[part.trace_id] = HeldTrace(since_ns=now_ns, size=len(part.payload))
        else:
            self._forward(part.payload)

    def _forward(self, payload: bytes) -> None:
        self._state.post(dict.fromkeys(self._forward_to, payload))

    def _keep(self, part: TraceSlice, *, now_ns: int) -> bool:
        self._state.slices.setdefault(part.trace_id, []).append(part.payload)
        trace = self._state.traces.setdefault(part.trace_id, StoredTraceRow(last_arrival_ns=now_ns))
        trace.last_arrival_ns = now_ns
        trace.slices += 1
        return trace.slices > 1

    async def check(self) -> None:
        await self.append((), forward={}, now_ns=0)

    async def undecided(self) -> tuple[str, ...]:
        state = await self._turn()
        found = [(trace.last_arrival_ns, key) for key, trace in state.traces.items() if trace.is_open]
        return tuple(key for _, key in sorted(found))

    async def spans(self, trace_id: str) -> StoredSpans:
        state = await self._turn()
        trace = state.traces.get(trace_id) or StoredTraceRow(last_arrival_ns=0)
        answers = state.of_trace(trace_id)
        return StoredSpans(
            payloads=tuple(state.slices.get(trace_id, ())),
            slices=trace.slices,
            is_cut=trace.is_cut,
            answers=tuple(
                sorted(
                    answer.span_id
                    for answer in answers
                    if not answer.is_past and (not answer.is_superseded or answer.replaces)
                )
            ),
            has_jobs=bool(answers),
        )

    async def release(
        self, *, before_ns: int, now_ns: int, most_bytes: int, limit: int = 64
    ) -> ReleasedTraces:
        state = await self._turn()
        overdue = [
            key for key, held in self._oldest_held() if held.since_ns <= before_ns or held.since_ns > now_ns
        ][:limit]
        for key in overdue:
            self._release(key)
        surplus, newer = [], 0
        for key, held in reversed(self._oldest_held()):
            newer += held.size
            if newer > most_bytes:
                surplus.append(key)
        for key in surplus[::-1][:limit]:
            self._release(key)
        due = [answer.due_ns for answer in state.answers.values() if answer.state == "queued"]
        queue_ns = max(0, now_ns - min(due, default=now_ns))
        return ReleasedTraces(overdue=len(overdue), surplus=min(limit, len(surplus)), queue_ns=queue_ns)

    def _oldest_held(self) -> list[tuple[str, HeldTrace]]:
        return sorted(self._state.held.items(), key=lambda item: item[1].since_ns)

    def _release(self, trace_id: str) -> None:
        if self._state.held.pop(trace_id, None) is None:
            return
        additions = self._state.additions.pop(trace_id, {})
        for payload in self._state.slices.get(trace_id, ()):
            self._forward(add_to_spans(payload, additions))

    def _release_if_done(self, trace_id: str) -> None:
        trace = self._state.traces.get(trace_id)
        is_pending = any(answer.state != "ended" for answer in self._state.of_trace(trace_id))
        if not is_pending and not (trace and trace.is_open):
            self._release(trace_id)

    # quarantine

    async def look(self, trace_ids: Collection[str]) -> Mapping[str, QuarantineRecord]:
        state = await self._turn()
        known = {}
        for trace_id in trace_ids:
            suspect = state.suspects.setdefault(trace_id, Suspect())
            if suspect.crashes or suspect.poison:
                known[trace_id] = QuarantineRecord(crashes=suspect.crashes, poison=suspect.poison)
            else:
                suspect.is_looked_at = True
        return known

    async def look_alone(self, trace_id: str) -> bool:
        state = await self._turn()
        is_answer = any(answer.state == "leased" and answer.crashes for answer in state.answers.values())
        if is_answer or self._reads_suspect():
            return False
        state.suspects.setdefault(trace_id, Suspect()).is_looked_at = True
        return True

    def _reads_suspect(self) -> bool:
        return any(suspect.is_looked_at and suspect.crashes for suspect in self._state.suspects.values())

    async def end_look(self, trace_ids: Collection[str]) -> None:
        state = await self._turn()
        for trace_id in trace_ids:
            suspect = state.suspects.get(trace_id)
            if suspect and (suspect.crashes or suspect.poison):
                suspect.is_looked_at = False
            else:
                state.suspects.pop(trace_id, None)

    async def set_aside(self, trace_id: str, *, poison: str, now_ns: int) -> int:
        state = await self._turn()
        suspect = state.suspects.setdefault(trace_id, Suspect())
        suspect.poison, suspect.is_looked_at = poison, False
        self._decide(trace_id, None, now_ns)
        queued = [answer for answer in state.of_trace(trace_id) if answer.state == "queued"]
        for answer in queued:
            state.put(replace(answer, state="ended", outcome=POISON, ended_ns=now_ns))
        self._release_if_done(trace_id)
        return len(queued)

    # jobs

    async def decide_trace(
        self,
        trace_id: str,
        *,
        jobs: Sequence[Job],
        outcomes: Sequence[Outcome],
        keep_spans: bool,
        now_ns: int,
        slices: int | None = None,
        moved: Mapping[str, str | None] = MappingProxyType({}),
        goes_on: bool = False,
        feedback: Mapping[str, str] = MappingProxyType({}),
    ) -> TraceDecided:
        ends = [(outcome, str(FinalOutcome.of(outcome.outcome))) for outcome in outcomes]
        state = await self._turn()
        is_all = not goes_on and self._decide(trace_id, slices, now_ns)
        ended = sum(self._leave_out(trace_id, outcome, end, now_ns) for outcome, end in ends)
        back = sum(select_follow_up(state, job, now_ns=now_ns) for job in jobs)
        new = sum(self._queue(job, now_ns) for job in jobs)
        again = sum(self._revise(job, slices, now_ns) for job in jobs)
        gone = sum(self._move(trace_id, span_id, to, now_ns) for span_id, to in moved.items())
        tenants = {answer.span_id: answer.tenant for answer in state.of_trace(trace_id)}
        state.index.note(trace_id, tenants, feedback)
        if trace_id in state.suspects and not state.suspects[trace_id].poison:
            del state.suspects[trace_id]
        self._release_if_done(trace_id)
        if is_all and not keep_spans:
            state.slices.pop(trace_id, None)
        return TraceDecided(queued=new + back, ended=ended, brought_back=back, revised=again, moved=gone)

    def _decide(self, trace_id: str, slices: int | None, now_ns: int) -> bool:
        trace = self._state.traces.get(trace_id)
        if trace is None:
            return True
        trace.decided_ns = now_ns
        trace.decided_slices = trace.slices if slices is None else slices
        return not trace.is_open

    def _leave_out(self, trace_id: str, outcome: Outcome, end: str, now_ns: int) -> bool:
        known = self._state.answers.get((trace_id, outcome.span_id))
        if known is not None:
            if known.is_superseded:
                self._state.put(replace(known, outcome=end))
            return known.is_superseded
        self._state.put(
            Answer(
                trace_id=trace_id,
                span_id=outcome.span_id,
                tenant=outcome.tenant,
                service=outcome.service,
                sample=stored(outcome.sample),
                state="ended",
                seen_ns=now_ns,
                due_ns=now_ns,
                ended_ns=now_ns,
                outcome=end,
            )
        )
        return True

    def _queue(self, job: Job, now_ns: int) -> bool:
        if (job.trace_id, job.span_id) in self._state.answers:
            return False
        self._state.put(
            Answer(
                trace_id=job.trace_id,
                span_id=job.span_id,
                tenant=job.tenant,
                service=job.service,
                sample=stored(job.sample),
                state="queued",
                seen_ns=now_ns,
                due_ns=now_ns,
                revisions_left=job.revisions_left,
            )
        )
        return True

    def _revise(self, job: Job, slices: int | None, now_ns: int) -> bool:
        answer = self._state.answers[job.trace_id, job.span_id]
        wanted_slices = answer.wanted_slices if slices is None else slices
        answer = replace(answer, wanted=job.record_sha256, wanted_slices=wanted_slices, is_moved=False)
        is_back = answer.is_superseded and not answer.is_past
        again = answer.queued_again(now_ns) if is_back else self._again(answer, now_ns)
        self._state.put(again or answer)
        return again is not None

    def _again(self, answer: Answer, now_ns: int) -> Answer | None:
        is_due = answer.state == "ended" and not answer.is_past and answer.revisions_left > 0
        if not is_due or answer.judged in ("", answer.wanted):
            return None
        return replace(answer.queued_again(now_ns), revisions_left=answer.revisions_left - 1)

    def _move(self, trace_id: str, span_id: str, to: str | None, now_ns: int) -> bool:
        answer = self._state.answers.get((trace_id, span_id))
        if answer is None:
            return False
        is_moved = False
        if answer.state == "leased":
            answer = replace(answer, is_moved=True)
        elif not answer.is_superseded and not answer.is_past:
            is_moved = True
            answer = replace(answer, state="ended", outcome=State.SUPERSEDED, reason="", ended_ns=now_ns)
        successor = self._state.answers.get((trace_id, to)) if to is not None else None
        if successor is not None and answer.replaces and not successor.replaces:
            self._state.put(replace(successor, replaces=answer.replaces))
            answer = replace(answer, replaces="")
        self._state.put(answer)
        return is_moved

    async def take_jobs(
        self, limit: int, *, now_ns: int, seen_before_ns: int | None = None
    ) -> tuple[Job, ...]:
        state = await self._turn()
        taken = [replace(answer, state="leased") for answer in self._choose(limit, now_ns, seen_before_ns)]
        for answer in taken:
            state.put(answer)
        return tuple(map(state.job, taken))

    def _choose(self, limit: int, now_ns: int, seen_before_ns: int | None) -> Sequence[Answer]:
        queued = [answer for answer in self._state.answers.values() if answer.state == "queued"]
        if seen_before_ns is not None:
            old = [answer for answer in queued if answer.seen_ns < seen_before_ns]
            return sorted(old, key=lambda answer: (answer.seen_ns, answer.key))[:limit]
        due = sorted(
            (answer for answer in queued if answer.due_ns <= now_ns),
            key=lambda answer: (answer.due_ns, answer.key),
        )
        leased = [answer for answer in self._state.answers.values() if answer.state == "leased"]
        suspects = [answer for answer in due if answer.crashes]
        if any(answer.crashes for answer in leased):
            return ()
        if suspects:
            return () if leased or self._reads_suspect() else suspects[:1]
        return due[:limit]

    async def finish(
        self,
        job: Job,
        outcome: str,
        *,
        outbox_items: Mapping[str, bytes],
        now_ns: int,
        carrier: str = "",
        evaluator: str = "",
        addition: bytes = b"",
        judged: JudgedInput | None = None,
        kept: KeptCarrier | None = None,
        turn: KeptTurn | None = None,
        mail: bytes = b"",
    ) -> bool | None:
        end = str(FinalOutcome.of(outcome))
        state = await self._turn()
        answer = state.answers.get((job.trace_id, job.span_id))
        if answer is not None and answer.is_moved:
            superseded = FinalOutcome(State.SUPERSEDED)
            state.put(
                replace(
                    answer, state="ended", outcome=str(superseded), ended_ns=now_ns, carrier="", evaluator=""
                )
            )
            self._release_if_done(job.trace_id)
            return None
        is_added = bool(addition) and job.trace_id in state.held
        if is_added:
            state.additions.setdefault(job.trace_id, {})[job.span_id] = addition
        if answer is not None:
            ended = replace(
                answer, state="ended", outcome=end, ended_ns=now_ns, carrier=carrier, evaluator=evaluator
            )
            ended = replace(ended, is_on_span=is_added)
            state.put(self._judged(ended, judged, job.span_id if is_added else carrier, now_ns))
        if kept is not None:
            state.index.keep(job, kept)
        if turn is not None:
            add_turn(state.sessions, turn, now_ns=now_ns)
        state.post({MAIL: mail} if mail else {})
        others = {sink: item for sink, item in outbox_items.items() if sink not in self._forward_to}
        state.post(others if is_added else outbox_items, (job.trace_id, job.span_id))
        self._release_if_done(job.trace_id)
        return is_added

    def _judged(self, answer: Answer, judged: JudgedInput | None, carrier: str, now_ns: int) -> Answer:
        if judged is None:
            return answer
        self._state.put(answer)  # it has ended, also if it is queued again
        answer = replace(
            answer,
            judged=judged.record_sha256,
            carriers=answer.carriers + bool(carrier),
            replaces=carrier or answer.replaces,
        )
        has_newer = answer.wanted_slices > judged.slices
        return (has_newer and self._again(answer, now_ns)) or answer

    async def postpone(self, job: Job, *, due_ns: int, reason: str, failed: bool = True) -> None:
        state = await self._turn()
        if answer := state.answers.get((job.trace_id, job.span_id)):
            attempts = answer.attempts + failed
            state.put(
                replace(answer, state="queued", due_ns=due_ns, reason=reason, attempts=attempts, crashes=0)
            )
        self._release(job.trace_id)

    async def give_back(self, job: Job) -> None:
        state = await self._turn()
        answer = state.answers.get((job.trace_id, job.span_id))
        if answer and answer.state == "leased":
            state.put(replace(answer, state="queued"))

    async def unfinished(self, *, now_ns: int) -> int:
        state = await self._turn()
        jobs = sum(
            answer.state == "leased" or (answer.state == "queued" and answer.due_ns <= now_ns)
            for answer in state.answers.values()
        )
        return jobs + sum(item.rejected_ns is None for item in state.items.values())

    # the outbox

    async def outbox_items(
        self, sink: str, limit: int, *, most_bytes: int = 2 << 20
    ) -> tuple[OutboxItem, ...]:
        state = await self._turn()
        waiting = [
            OutboxItem(id=number, payload=item.payload)
            for number, item in state.items.items()
            if item.sink == sink and item.rejected_ns is None
        ][:limit]
        size = 0
        for place, item in enumerate(waiting):
            size += len(item.payload)
            if place and size > most_bytes:
                return tuple(waiting[:place])
        return tuple(waiting)

    async def delivered(self, outbox_items: Sequence[OutboxItem], *, unconfirmed: str = "") -> None:
        state = await self._turn()
        for number in [item.id for item in outbox_items if item.id in state.items]:
            if state.items[number].rejected_ns is None:
                state.move_item(number, "unconfirmed" if unconfirmed else "delivered", unconfirmed)
            del state.items[number]

    async def reject(self, outbox_items: Sequence[OutboxItem], *, reason: str, now_ns: int) -> None:
        state = await self._turn()
        for number in [item.id for item in outbox_items if item.id in state.items]:
            if state.items[number].rejected_ns is None:
                state.move_item(number, "rejected", reason)
            state.items[number].rejected_ns = now_ns

    # the ledger

    async def ledger(self, tenant: str | None = None, *, since_ns: int | None = None) -> Ledger:
        return (await self._turn()).ledger(tenant, since_ns)

    async def note_dead_letter(self, letter: DeadLetter, *, now_ns: int) -> bool:
        state = await self._turn()
        place = (letter.topic, letter.partition, letter.offset)
        if place in state.dead_letters:
            return False
        state.dead_letters[place] = (now_ns, letter)
        state.dead_letter_sums[letter.reason] += 1
        return True

    async def dead_letters(self, limit: int) -> tuple[DeadLetter, ...]:
        noted = (await self._turn()).dead_letters.values()
        return tuple(letter for _, letter in reversed(noted))[:limit]

    async def receive_mail(self, mail: Sequence[Mail], *, now_ns: int) -> int:
        state = await self._turn()
        known = len(state.received_mail)
        for each in mail:
            if each.id in state.received_mail:
                continue
            state.received_mail[each.id] = now_ns
            if each.turn is not None:
                add_turn(state.sessions, each.turn, now_ns=now_ns)
        return len(state.received_mail) - known

    async def find_traces(self, begin: str, *, limit: int, tenant: str | None = None) -> tuple[str, ...]:
        state = await self._turn()
        keys = {*state.traces, *(trace_id for trace_id, _ in state.answers)}
        found = (key for key in keys if key.startswith(begin) and tenant in (None, tenant_of(key)))
        return tuple(sorted(found)[:limit])

    async def trace_report(self, trace_id: str) -> TraceReport:
        state = await self._turn()
        trace = state.traces.get(trace_id)
        return TraceReport(
            trace=self._stored_trace(trace_id, trace) if trace else None,
            answers=state.answer_statuses(trace_id),
        )

    def _stored_trace(self, trace_id: str, trace: StoredTraceRow) -> StoredTrace:
        held = self._state.held.get(trace_id)
        suspect = self._state.suspects.get(trace_id, Suspect())
        return StoredTrace(
            last_arrival_ns=trace.last_arrival_ns,
            is_open=trace.is_open,
            decided_ns=trace.decided_ns,
            is_cut=trace.is_cut,
            held_since_ns=held.since_ns if held else None,
            poison=suspect.poison,
            crashes=suspect.crashes,
            payloads=tuple(self._state.slices.get(trace_id, ())) if trace.is_open else (),
        )

    # the index

    @property
    def answers(self) -> AnswerIndex:
        return self._state.index.answers()

    @property
    def content(self) -> MemoryContent:
        return MemoryContent(self._state)

    async def index_size(self) -> IndexSize:
        return (await self._turn()).index.size()

    # maintenance

    async def expire(
        self,
        *,
        decided_before_ns: int,
        ended_before_ns: int,
        began_before_ns: int = 0,
        most_rows: int | None = None,
    ) -> int:
        state = await self._turn()
        number = self._forget_traces(decided_before_ns)
        self._forget_rejected(ended_before_ns)
        self._forget_answers(ended_before_ns)
        state.index.forget(before_ns=began_before_ns, most_rows=most_rows)
        for place in [place for place, (ns, _) in state.dead_letters.items() if ns < ended_before_ns]:
            del state.dead_letters[place]
        received = state.received_mail.items()
        state.received_mail = {id_: ns for id_, ns in received if ns >= ended_before_ns}
        return number

    def _make_room(self) -> int:
        return (
            self._forget_traces(_ALWAYS)
            or self._forget_rejected(_ALWAYS)
            or self._forget_answers(_ALWAYS)
            or forget_sessions(self._state.sessions, before_ns=_ALWAYS)
            or self._state.index.forget(before_ns=_ALWAYS, most_rows=0)
        )

    def _forget_traces(self, before_ns: int) -> int:
        state = self._state
        pending = {answer.trace_id for answer in state.answers.values() if answer.state != "ended"}
        finished = [
            key
            for key, trace in state.traces.items()
            if trace.decided_ns is not None
            and trace.decided_ns < before_ns
            and not (trace.is_open or key in pending or key in state.held)
        ]
        for key in finished:
            for answer in state.of_trace(key):
                state.put(replace(answer, is_past=True))
            for rows in (state.traces, state.slices, state.suspects, state.index.carriers):
                rows.pop(key, None)
        state.left_out = {entry for entry in state.left_out if entry[2] not in finished}
        return len(finished)

    def _forget_rejected(self, before_ns: int) -> int:
        items = self._state.items
        old = [
            key
            for key, item in items.items()
            if item.rejected_ns is not None and item.rejected_ns < before_ns
        ]
        for number in old:
            del items[number]
        return len(old)

    def _forget_answers(self, before_ns: int) -> int:
        old = [
            answer.key
            for answer in self._state.answers.values()
            if answer.state == "ended"
            and (answer.ended_ns or 0) < before_ns
            and answer.trace_id not in self._state.traces
        ]
        for key in old:
            self._state.forget(key)
        return len(old)

    async def latest_ns(self) -> int:
        state = await self._turn()
        arrivals = [trace.last_arrival_ns for trace in state.traces.values()]
        decisions = [trace.decided_ns or 0 for trace in state.traces.values()]
        ends = [answer.ended_ns or 0 for answer in state.answers.values() if answer.state == "ended"]
        rejections = [item.rejected_ns or 0 for item in state.items.values()]
        return max((*arrivals, *decisions, *ends, *rejections), default=0)

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self._is_closed = True
