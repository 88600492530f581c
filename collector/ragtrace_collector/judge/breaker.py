"""The circuit breaker: it stops requests to a judge that refuses for good, so that someone can fix the cause.

It is our own code, because it needs more than a count of failures: which refusals no retry fixes, how much
of a requested pause (``Retry-After``) to grant, and that an open breaker uses up no attempt of an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ragtrace.errors import JudgeError, JudgeRefused, JudgeTimeout, JudgeUnavailable
from ragtrace.judge import Backoff
from ragtrace.model import Usage
from ragtrace.ports import Clock
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")

_WAIT_S: Final = Backoff().max_retry_after_s
"""The caller itself waits for pauses up to this long."""
_REFUSALS: Final = 2
"""In a row. A single refusal may be about the request, as if a gateway forbids a text."""
_AWAY: Final = 2
"""Requests in a row that nobody answered. A single one may be too long for the judge."""


class BreakerState(StrEnum):
    """Whether requests pass."""

    CLOSED = "closed"
    """Requests pass."""
    OPEN = "open"
    """Requests are refused at once, without asking the judge."""
    HALF_OPEN = "half_open"
    """One request passes, and shows whether the others may."""


@dataclass(slots=True, kw_only=True)
class Breaker:
    """Opens when a judge refuses twice in a row (401, 402, 403, 404, quota) or asks for a long pause.

    A probe closes it. No probe waits longer than its delay, however long a pause the endpoint requests: the
    endpoint does not decide for how long nothing is judged.
    """

    who: str
    """``judge``, ``second judge``, …: for messages."""
    clock: Clock
    probe_delays_ns: tuple[int, ...]
    """The longest wait before each probe; the last value repeats."""
    key_place: str = ""
    """Where its key is read from: the first thing to check after a refusal."""
    cause: JudgeError | None = None
    """What opened it; ``None`` while it is closed."""
    probe_ns: int = 0
    """When the next request may pass, while open."""
    _refusals: int = 0
    _unanswered: int = 0
    _last_unanswered: JudgeError | None = None
    _probes: int = 0
    _probing: asyncio.Event | None = field(default=None)
    """Set at the end of a probe."""

    @property
    def state(self) -> BreakerState:
        """Whether requests pass now."""
        if self.cause is None:
            return BreakerState.CLOSED
        is_due = self._probing is not None or self.clock.now_ns() >= self.probe_ns
        return BreakerState.HALF_OPEN if is_due else BreakerState.OPEN

    @property
    def trouble(self) -> JudgeError | None:
        """Why nothing is judged: what opened it, or the last of several requests that nobody answered."""
        return self.cause or (self._last_unanswered if self._unanswered >= _AWAY else None)

    @property
    def reason(self) -> str:
        """Why nothing is judged, for messages; empty if answers are judged."""
        where = f" (its key is read from {self.key_place})" if self.key_place and self.cause else ""
        return f"{self.trouble}{where}" if self.trouble else ""

    @asynccontextmanager
    async def passage(self) -> AsyncIterator[None]:
        """Let a request pass, and update the breaker from its result.

        Raises:
            JudgeError: the breaker is open; of the kind that opened it. The judge was not asked.
        """
        is_probe = await self._admit()
        try:
            yield
        except JudgeError as failed:
            self._learn(failed, is_probe=is_probe)
            raise
        else:
            self._refusals = self._unanswered = 0
            if is_probe:
                self._close()
        finally:
            if is_probe:
                self._end_probe()

    async def _admit(self) -> bool:
        while self._probing is not None:
            await self._probing.wait()
        if self.cause is None:
            return False
        if self.state is BreakerState.OPEN:
            raise type(self.cause)(self.reason, usage=Usage())
        self._probing = asyncio.Event()
        return True

    def _end_probe(self) -> None:
        if self._probing is not None:
            self._probing.set()
            self._probing = None

    def _learn(self, failed: JudgeError, *, is_probe: bool) -> None:
        pause_ns = _pause_ns(failed)
        is_refused = isinstance(failed, JudgeRefused)
        self._refusals = self._refusals + 1 if is_refused else 0
        is_unanswered = isinstance(failed, JudgeUnavailable | JudgeTimeout)
        self._unanswered = self._unanswered + 1 if is_unanswered else 0
        self._last_unanswered = failed
        if is_probe and not is_refused and not pause_ns:
            if failed.retryable:
                self._wait(0)  # no connection: that says nothing about the refusal
            else:
                self._close()
        elif is_probe or (self.cause is None and (self._refusals >= _REFUSALS or pause_ns)):
            self._open(failed, pause_ns)

    def _open(self, cause: JudgeError, pause_ns: int) -> None:
        is_news = self.cause is None
        self.cause = cause
        self._wait(pause_ns)
        if is_news:
            wait_s = (self.probe_ns - self.clock.now_ns()) / 1e9
            log.error(
                "%s: answers wait; next request in %.0f s: %s",
                self.who,
                wait_s,
                self.reason,
                extra=event("judge_stopped", who=self.who),
            )

    def _wait(self, pause_ns: int) -> None:
        delay_ns = self.probe_delays_ns[min(self._probes, len(self.probe_delays_ns) - 1)]
        self._probes += 1
        self.probe_ns = self.clock.now_ns() + (min(delay_ns, pause_ns) if pause_ns else delay_ns)

    def _close(self) -> None:
        self.cause = None
        self._probes = 0
        log.warning("%s: it answers again", self.who, extra=event("judge_back", who=self.who))


def _pause_ns(failed: JudgeError) -> int:
    """Return the pause that the endpoint requested, if it is longer than the caller would wait."""
    told_s = failed.retry_after_s if isinstance(failed, JudgeUnavailable) else None
    return int(told_s * 1e9) if told_s and told_s > _WAIT_S else 0
