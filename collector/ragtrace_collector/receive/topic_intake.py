"""The intake of a cluster: it writes spans into the topic from which the owner of each shard reads them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ragtrace.errors import CodecError
from ragtrace.traces.otlp import Encoding, TraceSlice, split_by_trace
from ragtrace_collector.judge.live import LiveConfig
from ragtrace_collector.receive.inbound import Inbound
from ragtrace_collector.receive.intake import Receipt, Sender, SpanIntake, reason_for_sender
from ragtrace_collector.receive.kafka_producers import SpanMessage, SpanProducer
from ragtrace_collector.receive.memory import RequestMemory
from ragtrace_collector.store.port import StoreUnavailable
from ragtrace_collector.telemetry.counters import Counters, Counts

TENANT_HEADER: Final = "ragtrace.tenant"
"""The tenant of the sender's token: empty if the token has none, absent without tokens."""


class TopicIntake(SpanIntake):
    """Accepts export requests into a topic, a message a trace; ``accept`` waits for the brokers."""

    def __init__(
        self,
        *,
        producer: Callable[[], SpanProducer | None],
        live: LiveConfig,
        counters: Counters,
        room: RequestMemory,
        forwards: bool,
    ) -> None:
        super().__init__(room)
        self._producer = producer
        """Returns ``None`` until the brokers have told how many shards there are."""
        self._live = live
        self._counters = counters
        self._forwards = forwards
        """Whether the application's own spans go on to a back end, also those without an answer."""

    async def accept(self, body: bytes, *, encoding: Encoding, sender: Sender | None = None) -> Receipt:
        left_out: Counter[Counts] = Counter()
        try:
            parsed = await self._parse(body, encoding)
            inbound, own = Inbound(parsed.request, parsed.body).without_own_spans(body)
            if sender is not None:
                inbound = inbound.of_tenant(sender.tenant)
            split = split_by_trace(
                inbound.request, wanted=partial(self._is_wanted, left_out), body=inbound.body
            )
        except CodecError:
            self._counters.add(Counts.REQUESTS_INVALID)
            raise
        try:
            await self._write(split.slices, sender)
        except StoreUnavailable:
            self._counters.add(Counts.REQUESTS_PUT_OFF)
            raise
        if sender is not None:
            sender.charge(spans=split.spans, bytes=len(body))
        written = split.spans - left_out.total()
        left_out.update(
            {Counts.SPANS_OWN: own, Counts.SPANS_REJECTED: split.rejected, Counts.SPANS_TO_TOPIC: written}
        )
        self._counters.add_request(spans=split.spans + split.rejected + own, left_out=left_out)
        self._counters.add(Counts.TEXTS_REPAIRED, parsed.texts_repaired)
        reason = reason_for_sender(split, parsed)
        return Receipt(spans=split.spans + own, rejected_spans=split.rejected, reason=reason)

    def _is_wanted(self, left_out: Counter[Counts], trace_id: str, spans: int) -> bool:
        """Leave out what head sampling leaves out, unless it is forwarded."""
        if self._forwards or self._live.now.sampler.may_keep(trace_id):
            return True
        left_out[Counts.SPANS_SAMPLED_OUT] += spans
        return False

    async def _write(self, slices: Sequence[TraceSlice], sender: Sender | None) -> None:
        if not slices:
            return
        producer = self._producer()
        if producer is None:
            raise StoreUnavailable("no broker has said yet how many shards there are: try again")
        headers = [] if sender is None else [(TENANT_HEADER, (sender.tenant or "").encode())]
        messages = [SpanMessage(part.trace_id, part.payload, headers) for part in slices]
        written: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        producer.write(messages, written)
        trouble = await written
        if trouble is not None:
            raise StoreUnavailable(f"the brokers did not take the spans: {trouble}")
