"""The intake: turns an export request into durable spans. Every receiver calls it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

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
    has_valid_ids,
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
from ragtrace_collector.web.tokens import TokenSender

log = logging.getLogger("ragtrace.collector")


_SLOW_S: Final = 1.0
"""A request that takes longer than this may be ended in favor of waiting ones."""
_LOOK_S: Final = 0.1
_LOOKS: Final = 50
"""How often a message waits so long for a place."""


class TooSlow(TimeoutError):
    """A request was ended because it was slow and others waited."""


@dataclass(slots=True, kw_only=True)
class MemoryReservation:
    """The memory that one request takes."""

    who: str
    """The sender's token name, else its address."""
    room: RequestMemory
    held_bytes: int = 0
    since_s: float = 0.0
    limit: asyncio.Timeout | None = None
    """While it is received."""
    is_put_out: bool = False

    def reserve(self, number_of_bytes: int) -> None:
        """Reserve more bytes. Slow requests are ended to free them.

        Raises:
            StoreUnavailable: there is no memory.
        """
        self.room.take(self, number_of_bytes)

    @asynccontextmanager
    async def receiving(self, within_s: float) -> AsyncIterator[None]:
        """Receive a request inside the block.

        Raises:
            TooSlow: it was ended in favor of others.
            TimeoutError: it did not come in time.
        """
        self.since_s = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(within_s) as self.limit:
                yield
        except TimeoutError:
            if self.is_put_out:
                raise TooSlow from None
            raise
        finally:
            self.limit = None


class RequestMemory:
    """Bytes of requests under way, and places for messages whose size is unknown until they are whole."""

    def __init__(self, most_bytes: int, counters: Counters, *, most_unread: int) -> None:
        self._free_bytes = most_bytes
        self._counters = counters
        self._places: dict[int, MemoryReservation] = {}
        self._unread: dict[int, MemoryReservation] = {}
        self._free_unread = asyncio.Semaphore(most_unread)

    @contextmanager
    def for_request(self, who: str = "") -> Iterator[MemoryReservation]:
        """Hold the memory of one request until it is answered."""
        place = MemoryReservation(who=who, room=self)
        self._places[id(place)] = place
        try:
            yield place
        finally:
            del self._places[id(place)]
            self._free_bytes += place.held_bytes

    @asynccontextmanager
    async def for_unread(self, place: MemoryReservation, within_s: float) -> AsyncIterator[None]:
        """Wait for a place for a message of any size, and hold it while the message is received.

        Raises:
            StoreUnavailable: no place became free.
            TooSlow: it was ended in favor of others.
            TimeoutError: it did not come in time.
        """
        for _ in range(_LOOKS):
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._free_unread.acquire()
                break
            self._put_out_slowest(self._unread.values())
        else:
            raise self._full()
        self._unread[id(place)] = place
        try:
            async with place.receiving(within_s):
                yield
        finally:
            del self._unread[id(place)]
            self._free_unread.release()

    def take(self, place: MemoryReservation, number_of_bytes: int) -> None:
        """Take bytes for a request under way.

        Raises:
            StoreUnavailable: too few are free.
        """
        while number_of_bytes > self._free_bytes:
            if not self._put_out_slowest(other for other in self._places.values() if other is not place):
                raise self._full()
        self._free_bytes -= number_of_bytes
        place.held_bytes += number_of_bytes

    def _put_out_slowest(self, places: Iterable[MemoryReservation]) -> bool:
        """End one slow request: the oldest of the sender with the most slow requests."""
        now_s = asyncio.get_running_loop().time()
        slow = [
            place
            for place in places
            if place.limit and not place.is_put_out and now_s - place.since_s >= _SLOW_S
        ]
        if not slow:
            return False
        number = Counter(place.who for place in slow)
        slowest = max(slow, key=lambda place: (number[place.who], -place.since_s))
        assert slowest.limit
        slowest.limit.reschedule(now_s)
        self._free_bytes += slowest.held_bytes
        slowest.is_put_out, slowest.held_bytes = True, 0
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


_LARGE_BYTES: Final = 4 << 20
"""A larger body, or JSON, can take seconds: a thread reads it, so that other senders do not wait."""
_LARGE_AT_ONCE: Final = 2
"""How many of them are read at once: reading answers uses the same threads."""


_SMALL_LOGS_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """Accepts export requests into a store. When ``accept`` returns, what must be kept is durable."""

    store: Store
    assembly: Assembly
    live: LiveConfig
    forward_to: tuple[str, ...]
    forward_logs_to: tuple[str, ...]
    counters: Counters
    clock: Clock
    received: asyncio.Event
    """Set when there is something new to forward."""
    room: RequestMemory
    holding: Callable[[], HoldMode]
    _large: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, _LARGE_AT_ONCE))
    _under_way: set[asyncio.Task[Any]] = field(default_factory=set)
    """Accepted requests, also those whose sender has gone."""

    async def accept(self, body: bytes, *, encoding: Encoding, sender: TokenSender | None = None) -> Receipt:
        """Keep the spans of one request. ``sender`` is who sent it, if the receivers need tokens.

        Raises:
            CodecError: the body is not OTLP; nothing was kept.
            StoreUnavailable: try again later; nothing was kept.
        """
        left_out: Counter[Counts] = Counter()
        try:
            parsed = await self._parse(body, encoding, left_out)
            inbound = Inbound(parsed.request, parsed.body)
            own = inbound.changed_by(drop_own_scopes)
            if sender is not None:
                inbound.changed_by(partial(stamp_tenant, tenant=sender.tenant, body=inbound.body))
            split, unwanted = self._split(inbound)
            if any(map(may_hold_carriers, self._kept(split, body))):
                own += inbound.changed_by(drop_carriers)
                split, unwanted = self._split(inbound)
            left_out.update(unwanted)
            keep = self._prepared(split, inbound, sender, left_out)
        except CodecError:
            self.counters.add(Counts.REQUESTS_INVALID)
            raise
        await self._commit(keep)
        if sender is not None:
            sender.charge(spans=parsed.spans_cut + split.spans, bytes=len(body))
        left_out.update({Counts.SPANS_OWN: own, Counts.SPANS_REJECTED: split.rejected})
        taken = parsed.spans_cut + split.spans + own
        self.counters.add_request(spans=taken + split.rejected, left_out=left_out)
        self.counters.add(Counts.TEXTS_REPAIRED, parsed.texts_repaired)
        return Receipt(spans=taken, rejected=split.rejected, reason=_reason(split, parsed))

    async def accept_logs(
        self, body: bytes, *, encoding: Encoding, sender: TokenSender | None = None
    ) -> Receipt:
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
                stamp_tenant(records.stand_ins, sender.tenant)
                stamp_tenant(records.originals, sender.tenant)
            if self.forward_logs_to and records.kept + records.others > records.own:
                inbound.logs = records.originals.SerializeToString()
            split, left_out = self._split(inbound)
            keep = self._prepared(split, inbound, sender, left_out)
        except CodecError:
            self.counters.add(Counts.REQUESTS_INVALID)
            raise
        await self._commit(keep)
        if sender is not None:
            sender.charge(spans=records.kept, bytes=len(body))
        refused = records.own if self.forward_logs_to else records.others
        forwarded = records.kept + records.others - records.own if self.forward_logs_to else 0
        self.counters.add(Counts.LOG_RECORDS, records.kept)
        self.counters.add(Counts.LOG_RECORDS_OTHER, refused)
        self.counters.add(Counts.LOG_RECORDS_FORWARDED, forwarded)
        self.counters.add(Counts.TEXTS_REPAIRED, records.texts_repaired)
        return Receipt(rejected=refused, reason=_logs_reason(records, refused))

    async def _commit(self, keep: Callable[[], Awaitable[None]]) -> None:
        try:
            await keep()
        except Exception as exc:
            self.counters.add(Counts.REQUESTS_PUT_OFF)
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
        is_wanted = partial(self._is_wanted, self.live.now.sampler, unwanted)
        return split_by_trace(inbound.request, wanted=is_wanted, body=inbound.body), unwanted

    def _kept(self, split: SplitRequest, body: bytes) -> Iterable[bytes]:
        """Return the bytes of what is kept or forwarded: nothing else needs a close look."""
        return (body,) if self.forward_to else (part.payload for part in split.slices)

    def _prepared(
        self,
        split: SplitRequest,
        inbound: Inbound,
        sender: TokenSender | None,
        left_out: Counter[Counts],
    ) -> Callable[[], Awaitable[None]]:
        """Return what keeps a request; count in ``left_out`` the spans that it does not keep here.

        Raises:
            CodecError: it cannot be kept as it is.
        """
        if sender is not None:
            split = _of_tenant(split, sender.tenant)
        if split.rejected:  # they are not forwarded either
            inbound.drop(lambda span: not has_valid_ids(span))
        split, again = self._without_repeats(split)
        inbound.drop_traces(again)  # they were forwarded before
        split, cut = self._within_limit(split)
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
            sampler = self.live.now.sampler
            needs_all = bool(self.forward_to) or sampler.may_keep_all
            wanted = None if needs_all else partial(self._is_wanted, sampler, unwanted)
            with suppress(CodecError):  # the slow path below reports it, unless it can repair the texts
                parsed = read_request(body, encoding=encoding, repair=False, wanted=wanted)
                left_out.update(unwanted)
                return parsed
        async with self._large:
            return await asyncio.to_thread(read_request, body, encoding=encoding)

    def _without_repeats(self, split: SplitRequest) -> tuple[SplitRequest, Sequence[TraceSlice]]:
        """Remove the slices that the store already has: a sender or a loop sent them twice."""
        again = [part for part in split.slices if self.assembly.has_all(part.trace_id, part.spans)]
        return _without(split, again), again

    def _within_limit(self, split: SplitRequest) -> tuple[SplitRequest, Sequence[TraceSlice]]:
        """Remove the slices whose trace would become too large."""
        cut = [part for part in split.slices if not self.assembly.has_room(part.trace_id, part.spans)]
        return _without(split, cut), cut

    async def _keep(self, split: SplitRequest, inbound: Inbound, *, cut: Sequence[str]) -> None:
        holding = self.holding()
        forward = self._forwarded(split, inbound, holding)
        if not split.slices and not cut and not forward:
            return
        now_ns = self.clock.now_ns()
        reopened = await self.store.append(
            split.slices, forward=forward, now_ns=now_ns, holding=holding, cut=cut
        )
        if self.forward_to or forward:
            self.received.set()
        for part in split.slices:
            self.assembly.add(part.trace_id, part.spans, reopened=part.trace_id in reopened)

    def _forwarded(self, split: SplitRequest, inbound: Inbound, holding: HoldMode) -> Mapping[str, bytes]:
        """Return what is forwarded now, by sink. In hold mode, the store forwards the spans that it keeps."""
        if inbound.logs is not None:
            return dict.fromkeys(self.forward_logs_to, inbound.logs) if inbound.logs else {}
        if not self.forward_to:
            return {}
        if holding is not HoldMode.OFF:
            inbound.drop_traces(split.slices)
        originals = inbound.to_bytes()
        return dict.fromkeys(self.forward_to, originals) if originals else {}


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


def _spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            yield from scope_spans.spans


def drop_own_scopes(request: ExportTraceServiceRequest) -> int:
    """Drop the spans of collectors' own scopes, which are neither judged nor forwarded; return how many."""
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
    return drop_spans(request, lambda span: {attribute.key for attribute in span.attributes} >= _OF_CARRIERS)


_SOUGHT: Final = semconv.EVAL_STATUS.encode()
_OF_CARRIERS: Final = {semconv.EVAL_STATUS, semconv.TARGET_SPAN_ID}
"""Feedback has only the second. An answer span with its scores on it (hold mode) has only the first."""


@dataclass(slots=True)
class Inbound:
    """A request, and the bytes that say the same."""

    request: ExportTraceServiceRequest
    body: bytes | None
    """The request as protobuf, if no step has changed it; else ``None``."""
    logs: bytes | None = None
    """The log records that these spans stand for: the spans stay in the store."""

    def changed_by(self, change: Callable[[ExportTraceServiceRequest], int]) -> int:
        """Change the request; return how many of its parts did."""
        number = change(self.request)
        if number:
            self.body = None
        return number

    def drop(self, unwanted: Callable[[Span], bool]) -> None:
        """Drop spans."""
        self.changed_by(partial(drop_spans, unwanted=unwanted))

    def drop_traces(self, slices: Sequence[TraceSlice]) -> None:
        """Drop the spans of these traces."""
        if slices:
            trace_ids = {bytes.fromhex(trace_id_of(part.trace_id)) for part in slices}
            self.drop(lambda span: span.trace_id in trace_ids)

    def to_bytes(self) -> bytes:
        """Return the request as protobuf."""
        return self.request.SerializeToString() if self.body is None else self.body


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


def stamp_tenant(
    request: ExportTraceServiceRequest | ExportLogsServiceRequest,
    tenant: str | None,
    *,
    body: bytes | None = None,
) -> int:
    """Write the tenant on every resource, instead of any that the sender named; return how many parts change.

    ``body`` is the request as protobuf, if there is one. If it does not hold the name, no span does.
    """
    if isinstance(request, ExportLogsServiceRequest):
        resources = [each.resource.attributes for each in request.resource_logs]
        members = (
            record.attributes
            for resource_logs in request.resource_logs
            for scope_logs in resource_logs.scope_logs
            for record in scope_logs.log_records
        )
    else:
        resources = [each.resource.attributes for each in request.resource_spans]
        members = (span.attributes for span in _spans(request))
    wanted = [] if tenant is None else [tenant]
    stale = [attributes for attributes in resources if _claims(attributes) != wanted]
    claiming = (
        [attributes for attributes in members if _claims(attributes)] if body is None or _NAME in body else []
    )
    for attributes in (*stale, *claiming):
        for place in reversed(range(len(attributes))):
            if attributes[place].key == semconv.TENANT:
                del attributes[place]
    if tenant is not None:
        for attributes in stale:
            attributes.add(key=semconv.TENANT).value.string_value = tenant
    return len(stale) + len(claiming)


def _claims(attributes: _Attributes) -> list[str]:
    return [attribute.value.string_value for attribute in attributes if attribute.key == semconv.TENANT]
