"""The stage that watches objectives: judged answers in, notices out, each counted once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ragtrace.ports import Clock
from ragtrace_collector.alerts.notices import AnswerLinks, notice_of
from ragtrace_collector.alerts.watch import Alarm, NoticeStatus, SloState, SloWatch
from ragtrace_collector.config import SloConfig
from ragtrace_collector.store.port import Notice, WorkStore
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")

_AT_ONCE: Final = 500


@dataclass(slots=True, kw_only=True)
class AlertStage:
    """Counts judged answers for each objective, and puts notices into the outbox."""

    store: WorkStore
    watches: tuple[SloWatch, ...]
    sinks: tuple[str, ...]
    """The names of the outbox's queues that notices go into."""
    links: AnswerLinks
    clock: Clock
    done: asyncio.Event
    """Set when there are new items to deliver."""
    is_judge_steady: Callable[[], Awaitable[bool]]
    """Checks the judge before an alarm: with another judge, measured quality changes too."""
    _has_begun: bool = False
    """Whether all that was there at the start is counted."""

    async def step(self) -> bool:
        """Count some answers; say whether more may be waiting."""
        if self._has_begun and not self.watches:
            return False
        answers = await self.store.watched(_AT_ONCE)
        if not answers and self._has_begun:
            return False
        known = await self.store.watch_states()
        states, notices = self._begun(known)
        for answer in answers:
            for watch in self.watches:
                name = watch.slo.name
                state, told = watch.after(states[name], answer)
                if told is not None and not await self._may_tell(watch.slo, *told):
                    state, told = watch.begin(), None
                states[name] = state
                if told is not None:
                    notices += self._told(watch.slo, *told, at_ns=answer.summary.judged_ns)
        texts = {name: state.text() for name, state in states.items()}
        gone = {name: None for name in known if name not in states}
        changed = {name: text for name, text in texts.items() if known.get(name) != text}
        await self.store.note_watch(
            states={**changed, **gone}, up_to=answers[-1].id if answers else 0, notices=notices
        )
        self._has_begun = self._has_begun or len(answers) < _AT_ONCE
        if notices:
            self.done.set()
        return len(answers) == _AT_ONCE

    async def active(self) -> Mapping[str, bool]:
        """Say of each objective whether it is broken, as far as is known."""
        known = await self.store.watch_states()
        names = (watch.slo.name for watch in self.watches)
        return {name: name in known and SloState.of(known[name]).alarm is not None for name in names}

    async def _may_tell(self, slo: SloConfig, status: NoticeStatus, alarm: Alarm) -> bool:
        """Say whether an alarm is about the answers; if the judge has changed, its evidence is void."""
        if status is not NoticeStatus.FIRING or await self.is_judge_steady():
            return True
        log.warning(
            "objective %s: not told, because the judge changed; %d of %d judged answers failed",
            slo.name,
            alarm.failing,
            alarm.judged,
            extra=event("objective_held", slo=slo.name),
        )
        return False

    def _begun(self, known: Mapping[str, str]) -> tuple[dict[str, SloState], list[Notice]]:
        """Read the states; those of objectives that changed or are gone end, and somebody is told of it."""
        notices: list[Notice] = []
        states = {}
        watches = {watch.slo.name: watch for watch in self.watches}
        for name, text in known.items():
            state, watch = SloState.of(text), watches.get(name)
            if watch is not None and state.claim == watch.claim:
                states[name] = state
            elif state.alarm is not None:
                slo = watch.slo if watch else SloConfig(name=name)
                notices += self._told(slo, NoticeStatus.ENDED, state.alarm, at_ns=self.clock.now_ns())
        for name, watch in watches.items():
            states.setdefault(name, watch.begin())
        return states, notices

    def _told(self, slo: SloConfig, status: NoticeStatus, alarm: Alarm, *, at_ns: int) -> Sequence[Notice]:
        level = logging.WARNING if status is NoticeStatus.FIRING else logging.INFO
        log.log(
            level,
            "objective %s: %s; %d of %d judged answers failed",
            slo.name,
            status,
            alarm.failing,
            alarm.judged,
            extra=event("objective", slo=slo.name, status=str(status)),
        )
        payload = notice_of(slo, status, alarm, at_ns=at_ns, links=self.links)
        return [Notice(sink=sink, payload=payload) for sink in self.sinks]
