"""Deliver: spans and verdicts go to the sinks, held spans with their scores on them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from opentelemetry.trace import Tracer

from ragtrace.backends import open_carrier_sink, open_logs_sink, open_sink
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.errors import SendError, SendRefused, SendRejected, SendRetryable, SendUnconfirmed
from ragtrace.http import Backoff
from ragtrace.ports import Clock, SpanSink
from ragtrace_collector.config import ExportConfig
from ragtrace_collector.store.records import HoldMode, OutboxItem
from ragtrace_collector.store.store import Store
from ragtrace_collector.telemetry.counters import Counters, Counts
from ragtrace_collector.telemetry.logs import event
from ragtrace_collector.telemetry.tracing import working

log = logging.getLogger("ragtrace.collector")


_BACKOFF: Final = Backoff(longest_wait_s=60.0)
"""Of one sink, which gets one request at a time."""
_GATHER_S: Final = 0.1
MOST_UNREADABLE: Final = 5
"""After this many unreadable responses in a row, another attempt is not worth the duplicates it may make."""
_ALONE_AFTER_DOUBT: Final = 1_000


@dataclass(slots=True, kw_only=True)
class DeliverStage:
    """Sends outbox items to one sink, in order, until the sink has accepted them."""

    store: Store
    sink: SpanSink
    endpoint: str
    """The sink's name in the outbox."""
    counters: Counters
    clock: Clock
    most_at_once: int = 64
    most_bytes: int = 2 << 20
    _failures: int = 0
    """Failed deliveries in a row."""
    _resume_ns: int = 0
    _is_behind: bool = False
    """Whether a full batch was waiting."""
    _alone: int = 0
    """How many items are still sent one by one before they are batched again."""
    _unreadable: int = 0
    """Successful responses in a row that could not be read."""
    _is_doubted: bool = False
    """Whether that was logged."""

    async def turn(self) -> bool:
        """Deliver what is waiting, then wait for more items: a request costs more than its items."""
        may_be_more = await self.step()
        if may_be_more and not self._is_behind:
            await asyncio.sleep(_GATHER_S)
        return may_be_more

    async def step(self) -> bool:
        """Deliver what is waiting; say whether more may be."""
        if self.clock.now_ns() < self._resume_ns:
            return False
        waiting = await self.store.outbox_items(self.endpoint, self.most_at_once, most_bytes=self.most_bytes)
        size = sum(len(outbox_item.payload) for outbox_item in waiting)
        self._is_behind = len(waiting) == self.most_at_once or 2 * size > self.most_bytes
        if self._alone:
            return bool(waiting) and await self._deliver_each(waiting)
        return bool(waiting) and await self._deliver(waiting)

    async def _deliver(self, batch: Sequence[OutboxItem]) -> bool:
        # Concatenated serialized protobuf messages of one type are their merge.
        payload = b"".join(outbox_item.payload for outbox_item in batch)
        try:
            await self.sink.send(payload)
        except SendRetryable as exc:
            self._back_off(exc, exc.retry_after_s)
            return False
        except SendUnconfirmed as exc:
            return await self._doubt(batch, exc)
        except SendRefused as exc:  # keep the items until someone fixes it
            self._back_off(exc)
            return False
        except SendRejected as exc:
            self._unreadable = 0
            if exc.partial:
                self._suspect(exc)
            return await (self._deliver_each(batch) if len(batch) > 1 else self._reject(batch, exc))
        except Exception:  # no sink should raise it: the stage logs it and tries again each second
            self._rest(None)
            raise
        self._unreadable = 0
        await self._delivered(batch, Counts.ITEMS_DELIVERED)
        return True

    async def _deliver_each(self, batch: Sequence[OutboxItem]) -> bool:
        """Deliver each item alone, so that one bad span neither fails the others nor hides among them."""
        for outbox_item in batch:
            if not await self._deliver([outbox_item]):
                return False
            self._alone = max(0, self._alone - 1)
        return True

    def _suspect(self, exc: SendRejected) -> None:
        """Send items one by one from now on, until many in a row were accepted.

        The sink doesn't say which items it refused. So the items of this batch are sent once more, one by
        one, and the sink gets the accepted ones twice. That happens once, not for each batch.
        """
        self.counters.add(Counts.DELIVERIES_PARTIAL)
        if not self._alone:
            log.error(
                "%s accepted only a part (%s): items are sent one by one until it has accepted %d in a row",
                self.sink.name,
                exc,
                _ALONE_AFTER_DOUBT,
                extra=event("sink_took_a_part"),
            )
        self._alone = _ALONE_AFTER_DOUBT

    async def _reject(self, batch: Sequence[OutboxItem], exc: SendRejected) -> bool:
        await self.store.reject(batch, reason=str(exc), now_ns=self.clock.now_ns())
        self.counters.add(Counts.ITEMS_REJECTED)
        log.error("%s refused a request for good: %s", self.sink.name, exc, extra=event("sink_refused"))
        return True

    async def _doubt(self, batch: Sequence[OutboxItem], exc: SendUnconfirmed) -> bool:
        """Send a batch again if the response was unreadable, but only a few times: each may duplicate it."""
        self.counters.add(Counts.DELIVERIES_UNREADABLE)
        self._unreadable += 1
        if exc.again and self._unreadable < MOST_UNREADABLE:
            self._back_off(exc)
            return False
        if not self._is_doubted:
            log.error(
                "%s reports success in a response that cannot be read (%s): its items count as unconfirmed",
                self.sink.name,
                exc,
                extra=event("sink_unreadable"),
            )
        self._is_doubted = True
        await self._delivered(batch, Counts.ITEMS_UNCONFIRMED, unconfirmed=str(exc))
        return True

    async def _delivered(
        self, batch: Sequence[OutboxItem], counted: Counts, *, unconfirmed: str = ""
    ) -> None:
        await self.store.delivered(batch, unconfirmed=unconfirmed)
        self._failures = 0
        self._is_doubted = bool(unconfirmed)
        self.counters.add(counted, len(batch))

    def _back_off(self, exc: SendError, after_s: float | None = None) -> None:
        if self._failures == 0:
            log.warning(
                "%s accepts no requests (%s); they are kept and sent later",
                self.sink.name,
                exc,
                extra=event("sink_away"),
            )
        self.counters.add(Counts.DELIVERIES_FAILED)
        self._rest(after_s)

    def _rest(self, after_s: float | None) -> None:
        delay_s = _BACKOFF.own_wait_s(self._failures) if after_s is None else after_s
        self._resume_ns = self.clock.now_ns() + int(min(delay_s, _BACKOFF.longest_wait_s) * 1e9)
        self._failures += 1


@dataclass(slots=True, kw_only=True)
class HoldStage:
    """Decides whether traces are held, and releases traces held too long."""

    store: Store
    timeout_ns: int
    """How long spans may be held, counted from the first of a trace."""
    most_bytes: int
    """Of all held traces together. Beyond it, the traces held longest are released."""
    is_judge_away: Callable[[], bool]
    """Whether the judge is unavailable, so that nothing held now would be judged in time."""
    counters: Counters
    clock: Clock
    released: asyncio.Event
    """Set when there is something new to forward."""
    _is_behind: bool = False
    """Whether answers are queued for longer than spans may be held, so that holding more is useless."""

    def holding(self) -> HoldMode:
        """Return how spans that come now are held."""
        return HoldMode.KNOWN if self._is_behind or self.is_judge_away() else HoldMode.NEW

    async def step(self) -> bool:
        """Release traces held too long, or all if the judge is unavailable; say whether any was released."""
        is_away = self.is_judge_away()
        reason = Counts.HOLDS_WITHOUT_JUDGE if is_away else Counts.HOLDS_TIMED_OUT
        return await self._release(0 if is_away else self.timeout_ns, reason) > 0

    async def release_all(self) -> None:
        """Release all held traces, because the collector stops or hold mode was turned off."""
        while await self._release(0, Counts.HOLDS_ENDED_BY_STOP):
            pass

    async def _release(self, max_hold_ns: int, reason: Counts) -> int:
        now_ns = self.clock.now_ns()
        released = await self.store.release(
            before_ns=now_ns - max_hold_ns, now_ns=now_ns, most_bytes=self.most_bytes
        )
        self._note_queue(released.queue_ns)
        self.counters.add(reason, released.overdue)
        self.counters.add(Counts.HOLDS_OVER_BYTES, released.surplus)
        number = released.overdue + released.surplus
        if number:
            self.released.set()
        return number

    def _note_queue(self, waited_ns: int) -> None:
        is_behind = waited_ns > self.timeout_ns
        if is_behind and not self._is_behind:
            log.warning(
                "answers wait longer for the judge than `attach.hold_timeout`: "
                "no spans are held until it has caught up",
                extra=event("hold_behind"),
            )
        self._is_behind = is_behind


_LONGEST_REASON: Final = 300
_QUOTE_BYTES: Final = 16
"""A run of this many bytes that also occurs in the request counts as a quote."""


class ObservedSink:
    """A sink whose deliveries are traced, and whose errors contain nothing of the request."""

    def __init__(self, sink: SpanSink, tracer: Tracer) -> None:
        self._sink = sink
        self._tracer = tracer

    @property
    def name(self) -> str:
        """The sink's name."""
        return self._sink.name

    async def send(self, request: bytes) -> None:
        """Send through the sink."""
        with working(self._tracer, "deliver") as span:
            span.set_attributes({"ragtrace.sink": self.name, "ragtrace.bytes": len(request)})
            try:
                await self._sink.send(request)
            except SendError as exc:
                exc.args = (without_quotes(str(exc), request),)
                raise

    async def aclose(self) -> None:
        """Close the sink."""
        await self._sink.aclose()


def without_quotes(reason: str, sent: bytes) -> str:
    """Return a receiver's reason, cut at the point where it quotes the request."""
    reason = reason[:_LONGEST_REASON]
    text = reason.encode()
    for start in range(len(text) - _QUOTE_BYTES + 1):
        if text[start : start + _QUOTE_BYTES] in sent:
            return text[:start].decode(errors="ignore") + "… (the rest quotes what was sent)"
    return reason


def open_export(export: ExportConfig) -> SpanSink:
    """Open one back end, without connecting to it yet.

    Raises:
        ConfigError: its address or certificates cannot be used.
    """
    access = _access(export)
    if export.accepts_spans:
        return open_sink(export.endpoint, access=access)
    return open_carrier_sink(export.endpoint, access=access)


def open_logs_export(export: ExportConfig) -> SpanSink:
    """Do the same for log records as they come."""
    return open_logs_sink(export.endpoint, access=_access(export))


def _access(export: ExportConfig) -> ConnectionSettings:
    return ConnectionSettings(
        headers={name: value.get_secret_value() for name, value in export.headers.items()},
        tls=export.tls.opened() if export.tls else None,
        timeout_s=10,
    )
