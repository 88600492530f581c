"""The intake: turns an export request into durable spans. Every receiver calls it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ragtrace import semconv
from ragtrace.errors import CodecError
from ragtrace.ports import Clock
from ragtrace.traces.logs import LogRecords, read_logs
from ragtrace.traces.otlp import (
    Encoding,
    ParsedRequest,
    SplitRequest,
    TraceSlice,
    drop_spans,
    drop_spans_without_ids,
    read_request,
    split_by_trace,
)
from ragtrace_collector.assemble import Assembly
from ragtrace_collector.judge import LiveConfig
from ragtrace_collector.sampling import Sampler
from ragtrace_collector.store.records import HoldMode, StoreUnavailable, trace_id_of, trace_key
from ragtrace_collector.store.store import Store
from ragtrace_collector.telemetry.counters import Counters, Counts
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")


_SLOW_S: Final = 1.0
"""A request that takes longer than this may be ended in favor of waiting ones."""
_WAIT_S: Final = 5.0
"""How long a request waits for memory."""
_LOOK_S: Final = 0.1


class TooSlow(TimeoutError):
    """A request was ended because it was slow and others waited."""


class MemoryReservation:
    """The memory that one request takes."""

    def __init__(self, room: RequestMemory, who: str) -> None:
        self.who = who
        """The sender's token name, else its address."""
        self.held_bytes = 0
        self.since_s = 0.0
        self.is_put_out = False
        self._room = room
        self._limit: asyncio.Timeout | None = None

    async def reserve(self, number_of_bytes: int) -> None:
        """Reserve more bytes. Slow requests are ended to free them.

        Raises:
            StoreUnavailable: there is no memory.
        """
        await self._room.take(self, number_of_bytes)

    @asynccontextmanager
    async def receiving(self, within_s: float) -> AsyncIterator[None]:
        """Receive a request inside the block.

        Raises:
            TooSlow: it was ended in favor of others.
            TimeoutError: it did not come in time.
        """
        self.since_s = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(within_s) as self._limit:
                yield
        except TimeoutError:
            if self.is_put_out:
                raise TooSlow from None
            raise
        finally:
            self._limit = None

    def is_slow(self, now_s: float) -> bool:
        """Say whether it has been received for too long."""
        return self._limit is not None and not self.is_put_out and now_s - self.since_s >= _SLOW_S

    def put_out(self) -> None:
        """Stop receiving it."""
        if self._limit is not None:
            self.is_put_out = True
            self._limit.reschedule(asyncio.get_running_loop().time())


class RequestMemory:
    """Bytes of requests under way, and places for messages whose size is unknown until they are whole."""

    def __init__(self, most_bytes: int, counters: Counters, *, most_unread: int) -> None:
        self._free_bytes = most_bytes
        self._counters = counters
        self._places: dict[MemoryReservation, None] = {}
        self._unread: dict[MemoryReservation, None] = {}
        self._free_unread = asyncio.Semaphore(most_unread)
        self._freed = asyncio.Event()

    @contextmanager
    def for_request(self, who: str = "") -> Iterator[MemoryReservation]:
        """Hold the memory of one request until it is answered."""
        place = MemoryReservation(self, who)
        self._places[place] = None
        try:
            yield place
        finally:
            del self._places[place]
            self._free_bytes += place.held_bytes
            self._freed.set()

    @asynccontextmanager
    async def for_unread(self, place: MemoryReservation, within_s: float) -> AsyncIterator[None]:
        """Wait for a place for a message of any size, and hold it while the message is received.

        Raises:
            StoreUnavailable: no place became free.
            TooSlow: it was ended in favor of others.
            TimeoutError: it did not come in time.
        """
        await self._await_unread()
        self._unread[place] = None
        try:
            async with place.receiving(within_s):
                yield
        finally:
            del self._unread[place]
            self._free_unread.release()

    async def take(self, place: MemoryReservation, number_of_bytes: int) -> None:
        """Take bytes for a request under way.

        Raises:
            StoreUnavailable: too few are free.
        """
        waits_until_s = asyncio.get_running_loop().time() + _WAIT_S
        while number_of_bytes > self._free_bytes:
            left_s = waits_until_s - asyncio.get_running_loop().time()
            if left_s <= 0 or not self._is_making_room(place):
                raise self._full()
            self._freed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._freed.wait()
        self._free_bytes -= number_of_bytes
        place.held_bytes += number_of_bytes

    async def _await_unread(self) -> None:
        if not self._free_unread.locked():
            await self._free_unread.acquire()
            return
        acquired = asyncio.ensure_future(self._free_unread.acquire())
        waits_until_s = asyncio.get_running_loop().time() + _WAIT_S
        try:
            while not acquired.done():
                await asyncio.wait({acquired}, timeout=_LOOK_S)
                if not acquired.done():
                    self._put_out_slowest(self._unread)
                if asyncio.get_running_loop().time() >= waits_until_s and not acquired.done():
                    raise self._full()
        except BaseException:
            if not acquired.cancel():  # it was acquired meanwhile
                self._free_unread.release()
            raise

    def _is_making_room(self, place: MemoryReservation) -> bool:
        others = [other for other in self._places if other is not place]
        return self._put_out_slowest(others) or any(other.is_put_out and other.held_bytes for other in others)

    def _put_out_slowest(self, places: Iterable[MemoryReservation]) -> bool:
        """End one slow request: the oldest of the sender with the most slow requests."""
        now_s = asyncio.get_running_loop().time()
        slow = [place for place in places if place.is_slow(now_s)]
        if not slow:
            return False
        number = Counter(place.who for place in slow)
        max(slow, key=lambda place: (number[place.who], -place.since_s)).put_out()
        self._counters.add(Counts.REQUESTS_PUT_OFF)
        return True

    def _full(self) -> StoreUnavailable:
        self._counters.add(Counts.REQUESTS_PUT_OFF)
        return StoreUnavailable("too many large requests at once")


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What an acknowledged request is answered: a partial success if spans were rejected."""

    spans: int = 0
    """Spans with valid ids, also those that are left out or come again."""
    rejected: int = 0
    """Spans, or log records."""
    reason: str = ""
    """Why; with none rejected, a warning."""


class Sender(Protocol):
    """Who sends, if the receivers need tokens."""

    @property
    def tenant(self) -> str | None:
        """The tenant of the spans, whatever the spans themselves say."""
        ...

    def charge(self, *, spans: int, bytes: int) -> None:  # noqa: A002 -- what the configuration calls it
        """Take from the sender's allowance."""
        ...


_LARGE_BYTES: Final = 4 << 20
"""A larger body, or JSON, can take seconds: a thread reads it, so that other senders do not wait."""
_LARGE_AT_ONCE: Final = 2
"""How many of them are read at once: reading answers uses the same threads."""


_SMALL_LOGS_BYTES: Final = 64 << 10


class Intake:
    """Accepts export requests into a store. When ``accept`` returns, what must be kept is durable."""

    def __init__(
        self,
        *,
        store: Store,
        assembly: Assembly,
        live: LiveConfig,
        forward_to: tuple[str, ...],
        forward_logs_to: tuple[str, ...],
        counters: Counters,
        clock: Clock,
        received: asyncio.Event,
        room: RequestMemory,
        holding: Callable[[], HoldMode],
    ) -> None:
        self.room = room
        self._store = store
        self._assembly = assembly
        self._live = live
        self._forward_to = forward_to
        self._forward_logs_to = forward_logs_to
        self._counters = counters
        self._clock = clock
        self._received = received
        """Set when there is something new to forward."""
        self._holding = holding
        self._large = asyncio.Semaphore(_LARGE_AT_ONCE)
        self._under_way: set[asyncio.Task[Any]] = set()
        """Accepted requests, also those whose sender has gone."""

    async def accept(self, body: bytes, *, encoding: Encoding, sender: Sender | None = None) -> Receipt:
        """Keep the spans of one request. ``sender`` is who sent it, if the receivers need tokens.

        Raises:
            CodecError: the body is not OTLP; nothing was kept.
            StoreUnavailable: try again later; nothing was kept.
        """
        left_out: Counter[Counts] = Counter()
        try:
            parsed = await self._parse(body, encoding, left_out)
            inbound, own = Inbound(parsed.request, parsed.body).without_own_scopes()
            if sender is not None:
                inbound = inbound.of_tenant(sender.tenant)
            split, unwanted = self._split(inbound)
            if any(map(may_hold_carriers, self._kept(split, body))):
                inbound, carriers = inbound.without_carriers()
                own += carriers
                split, unwanted = self._split(inbound)
            left_out.update(unwanted)
            keep = self._prepared(split, inbound, sender, left_out, body_bytes=len(body))
        except CodecError:
            self._counters.add(Counts.REQUESTS_INVALID)
            raise
        await self._commit(keep)
        if sender is not None:
            sender.charge(spans=parsed.spans_cut + split.spans, bytes=len(body))
        left_out.update({Counts.SPANS_OWN: own, Counts.SPANS_REJECTED: split.rejected})
        taken = parsed.spans_cut + split.spans + own
        self._counters.add_request(spans=taken + split.rejected, left_out=left_out)
        self._counters.add(Counts.TEXTS_REPAIRED, parsed.texts_repaired)
        return Receipt(spans=taken, rejected=split.rejected, reason=_reason(split, parsed))

    async def accept_logs(self, body: bytes, *, encoding: Encoding, sender: Sender | None = None) -> Receipt:
        """Keep the log records that hold messages of a GenAI call, as durably as spans.

        All records are forwarded, if an ``export`` takes them; else the others are refused.

        Raises:
            CodecError: the body is not OTLP; nothing was kept.
            StoreUnavailable: try again later; nothing was kept.
        """
        try:
            records = await self._read_logs(body, encoding)
            inbound = Inbound(records.stand_ins, None, logs=b"")
            if sender is not None:
                inbound = inbound.of_tenant(sender.tenant)
                stamp_tenant(records.originals, sender.tenant)
            if self._forward_logs_to and records.kept + records.others > records.own:
                inbound = replace(inbound, logs=records.originals.SerializeToString())
            split, left_out = self._split(inbound)
            keep = self._prepared(split, inbound, sender, left_out, body_bytes=len(body))
        except CodecError:
            self._counters.add(Counts.REQUESTS_INVALID)
            raise
        await self._commit(keep)
        if sender is not None:
            sender.charge(spans=records.kept, bytes=len(body))
        refused = records.own if self._forward_logs_to else records.others
        forwarded = records.kept + records.others - records.own if self._forward_logs_to else 0
        self._counters.add(Counts.LOG_RECORDS, records.kept)
        self._counters.add(Counts.LOG_RECORDS_OTHER, refused)
        self._counters.add(Counts.LOG_RECORDS_FORWARDED, forwarded)
        self._counters.add(Counts.TEXTS_REPAIRED, records.texts_repaired)
        return Receipt(rejected=refused, reason=_logs_reason(records, refused))

    async def _commit(self, keep: Callable[[], Awaitable[None]]) -> None:
        try:
            await keep()
        except Exception as exc:
            self._counters.add(Counts.REQUESTS_PUT_OFF)
            if isinstance(exc, StoreUnavailable):
                raise
            log.exception("a request could not be kept", extra=event("request_failed"))
            raise StoreUnavailable(f"the request could not be kept: {type(exc).__name__}") from exc

    async def _read_logs(self, body: bytes, encoding: Encoding) -> LogRecords:
        if len(body) <= _SMALL_LOGS_BYTES:
            return read_logs(body, encoding=encoding)
        async with self._large:
            return await asyncio.to_thread(read_logs, body, encoding=encoding)

    def _split(self, inbound: Inbound) -> tuple[SplitRequest, Counter[Counts]]:
        """Split a request by trace, without traces that are sampled out; count their spans."""
        unwanted: Counter[Counts] = Counter()
        is_wanted = partial(self._is_wanted, self._live.now.sampler, unwanted)
        return split_by_trace(inbound.request, wanted=is_wanted, body=inbound.body), unwanted

    def _kept(self, split: SplitRequest, body: bytes) -> Iterable[bytes]:
        """Return the bytes of what is kept or forwarded: nothing else needs a close look."""
        return (body,) if self._forward_to else (part.payload for part in split.slices)

    def _prepared(
        self,
        split: SplitRequest,
        inbound: Inbound,
        sender: Sender | None,
        left_out: Counter[Counts],
        *,
        body_bytes: int,
    ) -> Callable[[], Awaitable[None]]:
        """Return what keeps a request; count in ``left_out`` the spans that it does not keep here.

        Raises:
            CodecError: it cannot be kept as it is.
        """
        if sender is not None:
            split = _of_tenant(split, sender.tenant)
        if split.rejected:  # they are not forwarded either
            inbound = inbound.without_spans_without_ids()
        split, again = self._without_repeats(split)
        inbound = inbound.without(again)  # they were forwarded before
        split, cut = self._within_limit(split, inbound.request, body_bytes=body_bytes)
        left_out[Counts.SPANS_OVER_LIMIT] += sum(len(part.spans) for part in cut)
        left_out[Counts.SPANS_REPEATED] += sum(len(part.spans) for part in again)
        return partial(self._keep, split, inbound, cut=[part.trace_id for part in cut])

    def _is_wanted(self, sampler: Sampler, left_out: Counter[Counts], trace_id: str, spans: int) -> bool:
        """Return whether head sampling keeps a trace; if not, count its spans in ``left_out``."""
        is_wanted = sampler.may_keep(trace_id)
        if not is_wanted:
            left_out[Counts.SPANS_SAMPLED_OUT] += spans
        return is_wanted

    async def to_its_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Finish the work of a request even if the sender disconnects.

        The stages must hear of committed spans, or they would wait for the next restart.
        """
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def finish(self) -> None:
        """Wait for the accepted requests, also those whose sender has gone."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _parse(self, body: bytes, encoding: Encoding, left_out: Counter[Counts]) -> ParsedRequest:
        """Parse a request; count in ``left_out`` the spans that were sampled out before."""
        if encoding == "protobuf" and len(body) <= _LARGE_BYTES:
            unwanted: Counter[Counts] = Counter()
            sampler = self._live.now.sampler
            needs_all = bool(self._forward_to) or sampler.may_keep_all
            wanted = None if needs_all else partial(self._is_wanted, sampler, unwanted)
            with suppress(CodecError):  # the slow path below reports it, unless it can repair the texts
                parsed = read_request(body, encoding=encoding, repair=False, wanted=wanted)
                left_out.update(unwanted)
                return parsed
        async with self._large:
            return await asyncio.to_thread(read_request, body, encoding=encoding)

    def _without_repeats(self, split: SplitRequest) -> tuple[SplitRequest, Sequence[TraceSlice]]:
        """Remove the slices that the store already has: a sender or a loop sent them twice."""
        again = [part for part in split.slices if self._assembly.has_all(part.trace_id, part.spans)]
        return _without(split, again), again

    def _within_limit(
        self, split: SplitRequest, request: ExportTraceServiceRequest, *, body_bytes: int
    ) -> tuple[SplitRequest, Sequence[TraceSlice]]:
        """Remove the slices whose trace would become too large, or that have a span that is too large."""
        if not split.slices:
            return split, ()
        trace_ids = [trace_id_of(part.trace_id) for part in split.slices]
        oversized = oversized_in(request, trace_ids, body_bytes=body_bytes)
        cut = [
            part
            for part in split.slices
            if trace_id_of(part.trace_id) in oversized
            or not self._assembly.has_room(part.trace_id, part.spans)
        ]
        return _without(split, cut), cut

    async def _keep(self, split: SplitRequest, inbound: Inbound, *, cut: Sequence[str]) -> None:
        holding = self._holding()
        forward = self._forwarded(split, inbound, holding)
        if not split.slices and not cut and not forward:
            return
        now_ns = self._clock.now_ns()
        reopened = await self._store.append(
            split.slices, forward=forward, now_ns=now_ns, holding=holding, cut=cut
        )
        if self._forward_to or forward:
            self._received.set()
        for part in split.slices:
            self._assembly.add(part.trace_id, part.spans, reopened=part.trace_id in reopened)

    def _forwarded(self, split: SplitRequest, inbound: Inbound, holding: HoldMode) -> Mapping[str, bytes]:
        """Return what is forwarded now, by sink. In hold mode, the store forwards the spans that it keeps."""
        if inbound.logs is not None:
            return dict.fromkeys(self._forward_logs_to, inbound.logs) if inbound.logs else {}
        kept_back = split.slices if holding is not HoldMode.OFF else ()
        originals = inbound.without(kept_back).to_bytes() if self._forward_to else b""
        return dict.fromkeys(self._forward_to, originals) if originals else {}


def _reason(split: SplitRequest, parsed: ParsedRequest) -> str:
    """Return the warning for the sender of an accepted request."""
    return "; ".join(filter(None, (split.reject_reason if split.rejected else "", _repaired(parsed))))


def _logs_reason(records: LogRecords, refused: int) -> str:
    told = f"{refused} log records are no messages of a GenAI call on a span: they are not kept"
    if refused == records.own:
        told = f"{refused} log records are evaluations by ragtrace: they are neither read nor forwarded"
    return "; ".join(filter(None, (told if refused else "", _repaired(records))))


def _repaired(read: ParsedRequest | LogRecords) -> str:
    number = read.texts_repaired
    return f"{number} names, keys or values were not UTF-8: invalid bytes became U+FFFD" if number else ""


def _of_tenant(split: SplitRequest, tenant: str | None) -> SplitRequest:
    """Replace each ``trace_id`` by the key of the trace in the store, which names the tenant."""
    if tenant is None:
        return split
    keyed = (replace(part, trace_id=trace_key(part.trace_id, tenant)) for part in split.slices)
    return replace(split, slices=tuple(keyed))


def _without(split: SplitRequest, slices: Sequence[TraceSlice]) -> SplitRequest:
    if not slices:
        return split
    trace_ids = {part.trace_id for part in slices}
    return replace(split, slices=tuple(part for part in split.slices if part.trace_id not in trace_ids))


MOST_ATTRIBUTES: Final = 1_000
"""Of a span or an event."""
MOST_EVENTS: Final = 1_000
MOST_LINKS: Final = 1_000
MOST_ATTRIBUTE_BYTES: Final = 4 << 20


def oversized_in(
    request: ExportTraceServiceRequest, trace_ids: Iterable[str], *, body_bytes: int
) -> frozenset[str]:
    """Return the ids of the traces that have a span beyond the limits.

    ``body_bytes`` is the size of the request: values are measured only if one could be too large.
    """
    measure, looked_at = body_bytes > MOST_ATTRIBUTE_BYTES, set(map(bytes.fromhex, trace_ids))
    return frozenset(
        span.trace_id.hex()
        for span in _spans(request)
        if span.trace_id in looked_at and (_has_too_many(span) or (measure and _has_large_value(span)))
    )


def _has_too_many(span: Span) -> bool:
    return (
        len(span.events) > MOST_EVENTS
        or len(span.links) > MOST_LINKS
        or any(len(attributes) > MOST_ATTRIBUTES for attributes in _attributes(span))
    )


def _has_large_value(span: Span) -> bool:
    return span.ByteSize() > MOST_ATTRIBUTE_BYTES and any(
        attribute.value.ByteSize() > MOST_ATTRIBUTE_BYTES
        for attributes in _attributes(span)
        for attribute in attributes
    )


def _spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            yield from scope_spans.spans


def _attributes(span: Span) -> Iterator[Collection[KeyValue]]:
    yield span.attributes
    for each in span.events:
        yield each.attributes


def has_own_scopes(request: ExportTraceServiceRequest) -> bool:
    """Return whether a scope says that its spans are a collector's own."""
    return any(
        scope_spans.scope.name in semconv.OWN_SCOPES
        for resource_spans in request.resource_spans
        for scope_spans in resource_spans.scope_spans
    )


def drop_own_scopes(request: ExportTraceServiceRequest) -> int:
    """Drop the spans of such scopes, and return how many: they are neither judged nor forwarded."""
    dropped = 0
    for resource_spans in request.resource_spans:
        for position in reversed(range(len(resource_spans.scope_spans))):
            scope_spans = resource_spans.scope_spans[position]
            if scope_spans.scope.name in semconv.OWN_SCOPES:
                dropped += len(scope_spans.spans)
                del resource_spans.scope_spans[position]
    return dropped


def may_hold_carriers(data: bytes) -> bool:
    """Return whether `drop_carriers` could find something in what these bytes say, in any encoding.

    Few requests have a carrier whose scope got lost on the way, and looking at every attribute is slow.
    """
    return _SOUGHT in data


def drop_carriers(request: ExportTraceServiceRequest) -> int:
    """Drop spans with the attributes that only carriers have, whatever their scope; return how many."""
    dropped = 0

    def is_carrier(span: trace_pb2.Span) -> bool:
        nonlocal dropped
        found = {attribute.key for attribute in span.attributes} >= _OF_CARRIERS
        dropped += found
        return found

    drop_spans(request, is_carrier)
    return dropped


def drop_traces(request: ExportTraceServiceRequest, slices: Sequence[TraceSlice]) -> None:
    """Drop the spans of these traces."""
    trace_ids = {bytes.fromhex(trace_id_of(part.trace_id)) for part in slices}
    drop_spans(request, lambda span: span.trace_id in trace_ids)


_SOUGHT: Final = semconv.EVAL_STATUS.encode()
_OF_CARRIERS: Final = {semconv.EVAL_STATUS, semconv.TARGET_SPAN_ID}
"""Feedback has only the second. An answer span with its scores on it (hold mode) has only the first."""


@dataclass(frozen=True, slots=True)
class Inbound:
    """A request, and the bytes that say the same.

    Every method returns a value: ``self`` if nothing changes, else one with a changed copy of the request.
    """

    request: ExportTraceServiceRequest
    body: bytes | None
    """The request as protobuf, if no step has changed it; else ``None``."""
    logs: bytes | None = None
    """The log records that these spans stand for: the spans stay in the store."""

    def without_own_scopes(self) -> tuple[Inbound, int]:
        """Drop the spans whose scope is a collector's; return how many there were as well."""
        return self._without(drop_own_scopes) if has_own_scopes(self.request) else (self, 0)

    def without_carriers(self) -> tuple[Inbound, int]:
        """Drop carriers whose scope got lost on the way; return how many there were as well."""
        return self._without(drop_carriers)

    def of_tenant(self, tenant: str | None) -> Inbound:
        """Write the sender's tenant on every resource, instead of any tenant that the spans name."""
        if not needs_stamp(self.request, tenant, body=self.body):
            return self
        changed = self._copy()
        stamp_tenant(changed, tenant)
        return replace(self, request=changed, body=None)

    def without_spans_without_ids(self) -> Inbound:
        """Drop the spans that belong to no trace."""
        changed = self._copy()
        drop_spans_without_ids(changed)
        return replace(self, request=changed, body=None)

    def without(self, slices: Sequence[TraceSlice]) -> Inbound:
        """Drop the spans of these traces."""
        if not slices:
            return self
        changed = self._copy()
        drop_traces(changed, slices)
        return replace(self, request=changed, body=None)

    def to_bytes(self) -> bytes:
        """Return the request as protobuf."""
        return self.request.SerializeToString() if self.body is None else self.body

    def _without(self, drop: Callable[[ExportTraceServiceRequest], int]) -> tuple[Inbound, int]:
        changed = self._copy()
        dropped = drop(changed)
        return (replace(self, request=changed, body=None), dropped) if dropped else (self, 0)

    def _copy(self) -> ExportTraceServiceRequest:
        changed = ExportTraceServiceRequest()
        changed.CopyFrom(self.request)
        return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Where a signal is received, what takes it, and how its sender is answered."""

    path: str
    """Over HTTP."""
    method: str
    """Over gRPC."""
    accept: Callable[..., Coroutine[Any, Any, Receipt]]
    response: Callable[[Receipt], Message]


def _traces_response(receipt: Receipt) -> Message:
    """An empty answer is the full success; a reason with nothing rejected is a warning (OTLP)."""
    if not receipt.reason:
        return ExportTraceServiceResponse()
    told = ExportTracePartialSuccess(rejected_spans=receipt.rejected, error_message=receipt.reason)
    return ExportTraceServiceResponse(partial_success=told)


def _logs_response(receipt: Receipt) -> Message:
    if not receipt.reason:
        return ExportLogsServiceResponse()
    told = ExportLogsPartialSuccess(rejected_log_records=receipt.rejected, error_message=receipt.reason)
    return ExportLogsServiceResponse(partial_success=told)


SIGNALS: Final = (
    Signal(
        path="/v1/traces",
        method="/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        accept=Intake.accept,
        response=_traces_response,
    ),
    Signal(
        path="/v1/logs",
        method="/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        accept=Intake.accept_logs,
        response=_logs_response,
    ),
)


_NAME: Final = semconv.TENANT.encode()
_Attributes: TypeAlias = "RepeatedCompositeFieldContainer[KeyValue]"


def needs_stamp(request: ExportTraceServiceRequest, tenant: str | None, *, body: bytes | None) -> bool:
    """Return whether `stamp_tenant` would change the request.

    ``body`` is the request as protobuf, if there is one. If it does not hold the name, no span does.
    """
    wanted = [] if tenant is None else [tenant]
    if any(_claims(part.resource.attributes) != wanted for part in request.resource_spans):
        return True
    may_be_on_spans = body is None or _NAME in body
    return may_be_on_spans and any(map(_claims, _of_spans(request)))


def stamp_tenant(request: ExportTraceServiceRequest | ExportLogsServiceRequest, tenant: str | None) -> None:
    """Write the tenant on every resource, instead of any tenant that the sender named."""
    if isinstance(request, ExportLogsServiceRequest):
        resources, members = [each.resource for each in request.resource_logs], _of_records(request)
    else:
        resources, members = [each.resource for each in request.resource_spans], _of_spans(request)
    for resource in resources:
        _disown(resource.attributes)
        if tenant is not None:
            resource.attributes.add(key=semconv.TENANT).value.string_value = tenant
    for attributes in members:
        _disown(attributes)


def _of_spans(request: ExportTraceServiceRequest) -> Iterator[_Attributes]:
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield span.attributes


def _of_records(request: ExportLogsServiceRequest) -> Iterator[_Attributes]:
    for resource_logs in request.resource_logs:
        for scope_logs in resource_logs.scope_logs:
            for record in scope_logs.log_records:
                yield record.attributes


def _claims(attributes: _Attributes) -> list[str]:
    return [attribute.value.string_value for attribute in attributes if attribute.key == semconv.TENANT]


def _disown(attributes: _Attributes) -> None:
    for place in reversed(range(len(attributes))):
        if attributes[place].key == semconv.TENANT:
            del attributes[place]
