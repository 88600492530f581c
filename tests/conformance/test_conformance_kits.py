"""The kits for stores and sinks: ours hold to them, and they catch those that lose what they accepted."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ragtrace.backends import MemorySink
from ragtrace.testing import check_sink
from ragtrace.traces.otlp import TraceSlice
from ragtrace_collector.ledger.account import Ledger
from ragtrace_collector.store.cipher import NO_CIPHER, open_cipher
from ragtrace_collector.store.records import Job, OutboxItem
from ragtrace_collector.store.sqlite import SqliteFile
from ragtrace_collector.store.store import Store
from tests.stores.kit import check_store

KEY = base64.b64encode(bytes(32)).decode()


@pytest.mark.parametrize("keys", [(), (KEY,)], ids=["plain", "sealed"])
async def test_the_store_keeps_what_it_accepted(tmp_path: Path, keys: Sequence[str]) -> None:
    cipher = open_cipher(keys) if keys else NO_CIPHER
    await check_store(
        lambda: Store.open(SqliteFile(tmp_path / "store.db"), max_bytes=10 << 20, cipher=cipher)
    )


class LosesSpans(Store):
    async def append(self, slices: Sequence[TraceSlice], **options: Any) -> frozenset[str]:
        return await super().append(slices[1:], **options)


class SendsTwice(Store):
    async def finish(
        self, job: Job, outcome: str, *, outbox_items: Mapping[str, bytes], **options: Any
    ) -> bool:
        await super().append([], forward=outbox_items, now_ns=1)
        return await super().finish(job, outcome, outbox_items=outbox_items, **options)


class ForgetsParcels(Store):
    async def outbox_items(self, sink: str, limit: int, **options: Any) -> tuple[OutboxItem, ...]:
        return (await super().outbox_items(sink, limit, **options))[1:]


class CountsWrong(Store):
    async def ledger(self, tenant: str | None = None, *, since_ns: int | None = None) -> Ledger:
        return Ledger(seen=1, accounts=(), outbox_items={})


class FindsNothing(Store):
    async def find_traces(self, begin: str, *, limit: int, tenant: str | None = None) -> tuple[str, ...]:
        return ()


class ForgetsSpending(Store):
    async def aclose(self) -> None:
        await self._commits.submit(lambda db: db.execute("DELETE FROM spent").rowcount)
        await super().aclose()


class ForgetsSampling(Store):
    async def aclose(self) -> None:
        await self._commits.submit(lambda db: db.execute("DELETE FROM low_answer").rowcount)
        await super().aclose()


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (LosesSpans, "have lost their spans"),
        (SendsTwice, "not in the outbox once each"),
        (ForgetsParcels, "not in the outbox once each"),
        (CountsWrong, "does not add up"),
        (FindsNothing, "does not find a trace"),
        (ForgetsSpending, "exceeds a limit after it was closed"),
        (ForgetsSampling, "other counts and low answers"),
    ],
)
async def test_a_store_that_breaks_a_promise_is_caught(
    tmp_path: Path, broken: type[Store], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        await check_store(lambda: broken.open(SqliteFile(tmp_path / "store.db"), max_bytes=10 << 20))


class Buffering(MemorySink):
    """Says that it has a request, and hands it over with the next one: the last is lost when it is closed."""

    held: bytes | None = None

    async def send(self, request: bytes) -> None:
        if self.held is not None:
            await super().send(self.held)
        self.held = request


class Cutting(MemorySink):
    async def send(self, request: bytes) -> None:
        await super().send(request if not self.requests else b"")


@pytest.mark.parametrize(
    ("sink", "complaint"), [(Buffering(), "does not have the span"), (Cutting(), "accepted 20 spans")]
)
async def test_a_sink_that_loses_spans_is_caught(sink: MemorySink, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        await check_sink(sink, taken=lambda: sink.spans)
