"""The intake of a cluster: it writes spans into the topic from which the owner of each shard reads them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from ragtrace.traces.otlp import SplitRequest, TraceSlice
from ragtrace_collector.judge.live import LiveConfig
from ragtrace_collector.receive.inbound import Inbound
from ragtrace_collector.receive.intake import Sender, SpanIntake
from ragtrace_collector.receive.kafka_producers import SpanMessage, SpanProducer
from ragtrace_collector.receive.memory import RequestMemory
from ragtrace_collector.sampling import Sampler
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
        super().__init__(live=live, counters=counters, room=room, forwards=forwards)
        self._producer = producer
        """Returns ``None`` until the brokers have told how many shards there are."""

    def _prepared(
        self,
        split: SplitRequest,
        inbound: Inbound,
        sender: Sender | None,
        left_out: Counter[Counts],
        *,
        body_bytes: int,
    ) -> Callable[[], Awaitable[None]]:
        left_out[Counts.SPANS_TO_TOPIC] = sum(len(part.spans) for part in split.slices)
        return partial(self._write, split.slices, sender)

    def _is_wanted(self, sampler: Sampler, left_out: Counter[Counts], trace_id: str, spans: int) -> bool:
        return self._forwards or super()._is_wanted(sampler, left_out, trace_id, spans)

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
