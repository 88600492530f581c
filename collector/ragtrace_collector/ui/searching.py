"""Fills an index from a back end or a file, and goes on looking for new answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from ragtrace.answer_sources import SearchProgress, find_answers
from ragtrace.answer_sources.addresses import BACK_ENDS, parse_address
from ragtrace.answers.index.own_file import OwnIndex
from ragtrace.answers.sessions import SessionSummary
from ragtrace.answers.summary import AnswerSummary
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.errors import RagtraceError
from ragtrace.ports import Clock
from ragtrace.traces.extract import ExtractRules
from ragtrace_collector.telemetry.logs import event, place_of
from ragtrace_collector.ui.phrases import counted

log = logging.getLogger("ragtrace.collector")

_PAUSE_S: Final = 30.0
_OVERLAP_NS: Final = 15 * 60 * 1_000_000_000
"""Verdicts follow their answers late: each search begins so long before the end of the last one."""
_AT_ONCE: Final = 200


def _untold(_: SearchProgress) -> None:
    pass


@dataclass(slots=True, kw_only=True)
class AnswerSearch:
    """The search of one place for answers."""

    address: str
    since_ns: int
    clock: Clock
    service: str | None = None
    access: ConnectionSettings | None = None
    on_progress: Callable[[SearchProgress], None] = _untold
    rules: ExtractRules = field(default_factory=ExtractRules)
    """By which records are read."""
    pause_s: float = _PAUSE_S
    _progress: SearchProgress | None = field(default=None, init=False)
    _has_all: bool = field(default=False, init=False)
    """The whole range was searched once."""
    problem: str = field(default="", init=False)
    """Why the last search stopped; empty if it did not."""
    was_tried: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set after the first search, whether it found anything or stopped."""
    _read: tuple[tuple[str, int, int], ...] | None = field(default=None, init=False)
    """The files that were searched, as they were then."""

    def notices(self) -> tuple[str, ...]:
        """Say how far it is, and what it could not see."""
        progress = self._progress
        found = counted(progress.answers, "answer") if progress else "nothing"
        under_way = f"The search for answers is under way: {found} so far. Reload the page for more"
        stopped = f"The search stopped: {self.problem}. It is tried again" if self.problem else ""
        state = stopped or ("" if self._has_all else under_way)
        missing = progress.notices if progress else ()
        return tuple(f"{sentence.rstrip('.')}." for sentence in (state, *missing) if sentence)

    async def run(self, index: OwnIndex) -> None:
        """Search until cancelled."""
        begin_ns = self.since_ns
        while True:
            until_ns = self.clock.now_ns()
            try:
                if await asyncio.to_thread(self._has_changed):
                    await self._search(index, since_ns=begin_ns, until_ns=until_ns)
                self.problem = ""
                if self._is_back_end:
                    begin_ns = max(self.since_ns, until_ns - _OVERLAP_NS)
            except RagtraceError as exc:
                self._failed(str(exc))
            except Exception as exc:  # noqa: BLE001 -- the page goes on; the exception may quote an answer
                self._failed(f"something went wrong inside ragtrace ({place_of(exc)})")
            _end_if_cancelled()
            self.was_tried.set()
            await asyncio.sleep(self.pause_s)

    def _failed(self, why: str) -> None:
        self._read, self.problem = None, why
        log.warning("the search stopped: %s", why, extra=event("search_failed"))

    async def _search(self, index: OwnIndex, *, since_ns: int, until_ns: int) -> None:
        sessions: list[SessionSummary] = []
        answers = find_answers(
            self.address,
            since_ns=since_ns,
            until_ns=until_ns,
            service=self.service,
            access=self.access,
            on_progress=self._note,
            on_session=sessions.append,
            rules=self.rules,
        )
        batch: list[AnswerSummary] = []
        async with aclosing(cast("AsyncGenerator[AnswerSummary, None]", answers)) as found:
            async for answer in found:
                batch.append(answer)
                if len(batch) >= _AT_ONCE:
                    await index.add(batch)
                    await index.add_sessions(sessions)
                    batch, sessions[:] = [], []
        await index.add(batch)
        await index.add_sessions(sessions)
        self._has_all = True

    def _note(self, progress: SearchProgress) -> None:
        self._progress = progress
        if not self._has_all:
            self.on_progress(progress)

    @property
    def _is_back_end(self) -> bool:
        return parse_address(self.address).kind in BACK_ENDS

    def _has_changed(self) -> bool:
        """Say whether there may be something new: files are read whole, so only if they changed."""
        place = parse_address(self.address)
        if place.kind in BACK_ENDS:
            return True
        path = Path(place.rest)
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        now = tuple(
            (str(file), found.st_size, found.st_mtime_ns) for file in files for found in [file.stat()]
        )
        is_new, self._read = now != self._read, now
        return is_new


def _end_if_cancelled() -> None:
    """End a task that was cancelled although a failure took the place of the cancellation."""
    if (task := asyncio.current_task()) and task.cancelling():
        raise asyncio.CancelledError
