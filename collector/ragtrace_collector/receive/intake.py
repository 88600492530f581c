"""From an export request to durable spans: what every receiver calls."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace.errors import CodecError
from ragtrace.ports import Clock
from ragtrace.traces.otlp import (
    Encoding,
    ParsedRequest,
    SplitRequest,
    TraceSlice,
    drop_spans_without_ids,
    read_request,
    split_by_trace,
)
from ragtrace_collector.assemble.open_traces import Assembly
from ragtrace_collector.receive.loop_guard import drop_own_spans, drop_traces
from ragtrace_collector.receive.memory import RequestMemory
from ragtrace_collector.receive.span_limits import SpanLimits
from ragtrace_collector.receive.tenants import stamp_tenant
from ragtrace_collector.sampling import Sampler
from ragtrace_collector.store.port import HoldMode, StoreUnavailable, WorkStore
from ragtrace_collector.store.trace_key import trace_id_of, trace_key
from ragtrace_collector.telemetry.counters import Counters, Counts

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What an acknowledged request is answered: a partial success if spans were rejected."""

    rejected_spans: int = 0
    reason: str = ""
    """Why; without rejected spans, a warning."""


class Sender(Protocol):
    """Who sends, where the receivers ask for tokens."""

    @property
    def tenant(self) -> str | None:
        """Whose spans these are, whatever the spans themselves say."""
        ...

    def charge(self, *, spans: int, bytes: int) -> None:  # noqa: A002 -- what the configuration calls it
        """Take from the sender's allowance."""
        ...


_LARGE_BYTES: Final = 4 << 20
"""A larger body, or one of JSON, takes seconds at worst: it is read in a thread, and nobody waits for it."""
_LARGE_AT_ONCE: Final = 2
"""So many of them are read at once: the threads are those that answers are read in, too."""


class Intake:
    """Accepts export requests. When ``accept`` returns, what must be kept is on disk."""

    def __init__(
        self,
        *,
        store: WorkStore,
        assembly: Assembly,
        sampler: Sampler,
        forward_to: tuple[str, ...],
        counters: Counters,
        clock: Clock,
        received: asyncio.Event,
        room: RequestMemory,
        holding: Callable[[], HoldMode],
        span_limits: SpanLimits,
    ) -> None:
        self.room = room
        self._store = store
        self._assembly = assembly
        self._sampler = sampler
        self._forward_to = forward_to
        self._counters = counters
        self._clock = clock
        self._received = received
        """Set when there is something new to forward."""
        self._holding = holding
        self._span_limits = span_limits
        self._large = asyncio.Semaphore(_LARGE_AT_ONCE)
        self._under_way: set[asyncio.Task[Any]] = set()
        """Requests that are accepted, whether or not who sent them still waits."""

    def follow(self, sampler: Sampler) -> None:
        """Decide by another sampler from now on which spans are worth keeping."""
        self._sampler = sampler

    async def to_its_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Do what a request asks for, to its end even if who waits for it goes away.

        What is committed must be announced to the stages: else nobody would look at it before a restart.
        """
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def finish(self) -> None:
        """Wait for the requests that are accepted: some may have nobody else who waits."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def accept(self, body: bytes, *, encoding: Encoding, sender: Sender | None = None) -> Receipt:
        """Keep the spans of one request, which ``sender`` answers for where tokens are asked for.

        Raises:
            CodecError: the body is not OTLP; nothing was kept.
            StoreUnavailable: try again later; nothing was kept.
        """
        try:
            parsed = await self._parse(body, encoding)
            request = parsed.request
            own = drop_own_spans(request, body)
            unchanged = None if own else parsed.body
            if sender is not None and stamp_tenant(request, sender.tenant, body=unchanged):
                unchanged = None
            left_out: Counter[Counts] = Counter()
            split = split_by_trace(request, wanted=partial(self._is_wanted, left_out), body=unchanged)
            if sender is not None:
                split = _of_tenant(split, sender.tenant)
            if split.rejected:  # nor are they forwarded
                drop_spans_without_ids(request)
                unchanged = None
            split, again = self._without_repeats(split)
            if again:  # they were forwarded, too
                drop_traces(request, again)
                unchanged = None
            split, cut = self._within_limit(split, request, body_bytes=len(body))
        except CodecError:
            self._counters.add(Counts.REQUESTS_INVALID)
            raise
        try:
            await self._keep(split, request, unchanged, cut=[part.trace_id for part in cut])
        except StoreUnavailable:
            self._counters.add(Counts.REQUESTS_PUT_OFF)
            raise
        if sender is not None:
            sender.charge(spans=split.spans, bytes=len(body))
        left_out.update({Counts.SPANS_OWN: own, Counts.SPANS_REJECTED: split.rejected})
        left_out[Counts.SPANS_OVER_LIMIT] += sum(len(part.spans) for part in cut)
        left_out[Counts.SPANS_REPEATED] += sum(len(part.spans) for part in again)
        self._counters.add_request(spans=split.spans + split.rejected + own, left_out=left_out)
        self._counters.add(Counts.TEXTS_REPAIRED, parsed.texts_repaired)
        return Receipt(rejected_spans=split.rejected, reason=_reason(split, parsed))

    async def _parse(self, body: bytes, encoding: Encoding) -> ParsedRequest:
        if encoding == "protobuf" and len(body) <= _LARGE_BYTES:
            with suppress(CodecError):  # it is said below, unless its texts can be mended
                return read_request(body, encoding=encoding, repair=False)
        async with self._large:
            return await asyncio.to_thread(read_request, body, encoding=encoding)

    def _is_wanted(self, left_out: Counter[Counts], trace_id: str, spans: int) -> bool:
        """Say whether a trace is let in; where not, count its spans, for when the request is acknowledged."""
        is_wanted = self._sampler.may_keep(trace_id)
        if not is_wanted:
            left_out[Counts.SPANS_SAMPLED_OUT] += spans
        return is_wanted

    def _without_repeats(self, split: SplitRequest) -> tuple[SplitRequest, Sequence[TraceSlice]]:
        """Take out the slices that a sender or a loop sends a second time: they are in the store already."""
        again = [part for part in split.slices if self._assembly.has_all(part.trace_id, part.spans)]
        return _without(split, again), again

    def _within_limit(
        self, split: SplitRequest, request: ExportTraceServiceRequest, *, body_bytes: int
    ) -> tuple[SplitRequest, Sequence[TraceSlice]]:
        """Take out the slices that would make their traces too large, or have a span that is."""
        if not split.slices:
            return split, ()
        trace_ids = [trace_id_of(part.trace_id) for part in split.slices]
        oversized = self._span_limits.exceeded_in(request, trace_ids, body_bytes=body_bytes)
        cut = [
            part
            for part in split.slices
            if trace_id_of(part.trace_id) in oversized
            or not self._assembly.has_room(part.trace_id, part.spans)
        ]
        return _without(split, cut), cut

    async def _keep(
        self,
        split: SplitRequest,
        request: ExportTraceServiceRequest,
        unchanged: bytes | None,
        *,
        cut: Sequence[str],
    ) -> None:
        holding = self._holding()
        originals = self._originals(split, request, unchanged, holding)
        forward = dict.fromkeys(self._forward_to, originals) if originals else {}
        if not split.slices and not cut and not forward:
            return
        now_ns = self._clock.now_ns()
        reopened = await self._store.append(
            split.slices, forward=forward, now_ns=now_ns, holding=holding, cut=cut
        )
        if self._forward_to:
            self._received.set()
        for part in split.slices:
            self._assembly.add(part.trace_id, part.spans, reopened=part.trace_id in reopened)

    def _originals(
        self,
        split: SplitRequest,
        request: ExportTraceServiceRequest,
        unchanged: bytes | None,
        holding: HoldMode,
    ) -> bytes:
        """Return what is forwarded at once. The request is changed where that is a part of it."""
        if not self._forward_to:
            return b""
        if split.slices and holding is not HoldMode.OFF:  # the store forwards what it keeps, now or later
            drop_traces(request, split.slices)
            unchanged = None
        return request.SerializeToString() if unchanged is None else unchanged


def _reason(split: SplitRequest, parsed: ParsedRequest) -> str:
    """Return what the sender is to know of a request that was taken."""
    reasons = [split.reject_reason] if split.rejected else []
    if parsed.texts_repaired:
        reasons.append(
            f"{parsed.texts_repaired} names, keys or values were no UTF-8: what was none of it became U+FFFD"
        )
    return "; ".join(reasons)


def _of_tenant(split: SplitRequest, tenant: str | None) -> SplitRequest:
    """Key the slices by the tenant: from here on, ``trace_id`` is the key of the trace in the store."""
    if tenant is None:
        return split
    keyed = (replace(part, trace_id=trace_key(part.trace_id, tenant)) for part in split.slices)
    return replace(split, slices=tuple(keyed))


def _without(split: SplitRequest, slices: Sequence[TraceSlice]) -> SplitRequest:
    if not slices:
        return split
    trace_ids = {part.trace_id for part in slices}
    return replace(split, slices=tuple(part for part in split.slices if part.trace_id not in trace_ids))
