"""The traces and carriers in memory, as a page reads them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace

from ragtrace import semconv
from ragtrace.answers.summary import AnswerKey
from ragtrace.errors import ReadError
from ragtrace.traces.otlp import decode
from ragtrace.traces.trace import Span, Trace
from ragtrace_collector.store.trace_key import tenant_of, trace_id_of
from tests.stores.memory_state import MemoryState


class MemoryContent:
    """A [`StoredContent`][ragtrace_collector.store.port.StoredContent] of a state."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def get(self, trace_id: str) -> Trace | None:
        plain, _, tenant = trace_id.partition("@")
        known = [key for key in self._state.slices if trace_id_of(key) == plain]
        keys = list(self._of_tenant(known, tenant)) if "@" in trace_id else known
        if len(keys) > 1:
            raise ReadError(f"several tenants have a trace {plain}")
        return self._trace(keys[0]) if keys else None

    async def traces(self) -> AsyncIterator[Trace]:
        for key in list(self._state.slices):
            yield self._trace(key)

    async def aclose(self) -> None:
        pass

    async def carriers(self, key: AnswerKey) -> Sequence[Span]:
        kept = self._state.index.carriers
        known = [found for found in kept if trace_id_of(found) == key.trace_id]
        return [
            _superseding(span, held.supersedes)
            for found in self._of_tenant(known, key.tenant)
            for held in kept[found]
            for span in decode(held.payload)
        ]

    def _of_tenant(self, keys: Sequence[str], tenant: str) -> Iterator[str]:
        own = [key for key in keys if tenant_of(key) == tenant]
        yield from own
        for key in keys:
            answers = (answer.tenant for answer in self._state.of_trace(key))
            if not own and not tenant_of(key) and tenant in answers:
                yield key

    def _trace(self, key: str) -> Trace:
        spans = (span for payload in self._state.slices[key] for span in decode(payload))
        return Trace.of(trace_id_of(key), spans)


def _superseding(span: Span, carrier: str) -> Span:
    attributes = {semconv.EVAL_SUPERSEDES: carrier} if carrier else {}
    return replace(span, attributes={**span.attributes, **attributes})
