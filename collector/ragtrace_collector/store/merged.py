"""Several stores as one for everyone who reads: shards of a process that come and go, or their files.

Each trace is in one store. A store keeps its number while it is there. What several stores say is not of one
moment: each is read at its own.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import islice
from typing import Protocol, TypeVar

from ragtrace.answers.index.merged import MergedAnswerIndex
from ragtrace.answers.index.parts import IndexPart, ask_each
from ragtrace.answers.summary import AnswerKey
from ragtrace.traces.trace import Span, Trace
from ragtrace_collector.ledger.account import Ledger, merge_ledgers
from ragtrace_collector.store.port import IndexSize, LedgerStore, StoredContent, TraceReport
from ragtrace_collector.store.reader import several_have
from ragtrace_collector.store.trace_key import BEHIND_ID, trace_id_of

ShardOf = Callable[[str], int]
"""Says which store has the traces with an id: of 32 lower-case hex digits, without a tenant."""


PartT = TypeVar("PartT")


class StoreReports(LedgerStore, Protocol):
    """What a store says of its answers and traces."""

    async def index_size(self) -> IndexSize:
        """Return how much the index holds."""
        ...


class ShardContent(StoredContent, Protocol):
    """Reads the traces and carriers of one store."""

    async def keys(self, trace_id: str) -> Sequence[str]:
        """Return the keys of the stored traces with an id: one for each tenant that uses it.

        Raises:
            ReadError: the store could not be read.
        """
        ...


class ShardStore(StoreReports, Protocol):
    """A store that a process reads and writes, one of several."""

    @property
    def answers(self) -> IndexPart:
        """The rows of judged answers."""
        ...

    @property
    def content(self) -> ShardContent:
        """What answers are opened from."""
        ...

    async def check(self) -> None:
        """Return if the store accepts spans now.

        Raises:
            StoreUnavailable: the disk is full or fails.
        """
        ...


class MergedReports:
    """The [`LedgerStore`][ragtrace_collector.store.port.LedgerStore] of several stores."""

    def __init__(
        self, parts: Callable[[], Mapping[int, StoreReports]], *, shard_of: ShardOf | None = None
    ) -> None:
        """Read what ``parts`` returns at that moment. Without ``shard_of``, all are asked for a trace."""
        self._parts = parts
        self._shard_of = shard_of

    async def ledger(self, tenant: str | None = None, *, since_ns: int | None = None) -> Ledger:
        parts = self._parts().values()
        return merge_ledgers(await ask_each(parts, lambda part: part.ledger(tenant, since_ns=since_ns)))

    async def find_traces(self, begin: str, *, limit: int, tenant: str | None = None) -> tuple[str, ...]:
        parts = self._parts().values()
        found = await ask_each(parts, lambda part: part.find_traces(begin, limit=limit, tenant=tenant))
        return tuple(islice(dict.fromkeys(heapq.merge(*found)), limit))

    async def trace_report(self, trace_id: str) -> TraceReport:
        owners = _owners(trace_id, self._parts(), self._shard_of).values()
        found = await ask_each(owners, lambda part: part.trace_report(trace_id))
        known = (report for report in found if report.trace is not None or report.answers)
        return next(known, TraceReport(trace=None))

    async def index_size(self) -> IndexSize:
        """Return how much the indexes hold."""
        found = await ask_each(self._parts().values(), lambda part: part.index_size())
        oldest = [part.oldest_ns for part in found if part.oldest_ns is not None]
        return IndexSize(rows=sum(part.rows for part in found), oldest_ns=min(oldest, default=None))


class MergedReader:
    """The [`StoredContent`][ragtrace_collector.store.port.StoredContent] of several stores."""

    def __init__(
        self, parts: Callable[[], Mapping[int, ShardContent]], *, shard_of: ShardOf | None = None
    ) -> None:
        """Read what ``parts`` returns at that moment. Without ``shard_of``, all are asked for a trace."""
        self._parts = parts
        self._shard_of = shard_of

    async def get(self, trace_id: str) -> Trace | None:
        """Return the trace, or ``None`` if no store has it (any more). ``@`` and a tenant may follow its id.

        Raises:
            ReadError: a store cannot be read, several tenants have the trace, or its spans cannot be
                decrypted.
        """
        owners = list(_owners(trace_id, self._parts(), self._shard_of).values())
        if BEHIND_ID not in trace_id and len(owners) > 1:
            found = await ask_each(owners, lambda part: part.keys(trace_id))
            keys = sorted({key for part in found for key in part})
            if len(keys) > 1:
                raise several_have(trace_id, keys)
        traces = await ask_each(owners, lambda part: part.get(trace_id))
        return next((trace for trace in traces if trace is not None), None)

    async def carriers(self, key: AnswerKey) -> Sequence[Span]:
        """Return the kept carriers of an answer's trace, in order of judging, with the superseded ones.

        Raises:
            ReadError: a store cannot be read, or they cannot be decrypted.
        """
        owners = _owners(key.trace_id, self._parts(), self._shard_of).values()
        found = await ask_each(owners, lambda part: part.carriers(key))
        return [span for part in found for span in part]

    async def traces(self) -> AsyncIterator[Trace]:
        """Yield every trace, one store after the other.

        Raises:
            ReadError: a store cannot be read, or spans cannot be decrypted.
        """
        for part in self._parts().values():
            async for trace in part.traces():
                yield trace

    async def aclose(self) -> None:
        """Do nothing: whoever opened the parts closes them."""


class MergedStores(MergedReports):
    """All that pages read of a process's shards, as if they were one store."""

    def __init__(
        self, parts: Callable[[], Mapping[int, ShardStore]], *, shard_of: ShardOf | None = None
    ) -> None:
        """Read what ``parts`` returns at that moment. Without ``shard_of``, all are asked for a trace."""
        super().__init__(parts, shard_of=shard_of)
        self._stores = parts
        self.answers = MergedAnswerIndex(
            lambda: {number: store.answers for number, store in parts().items()}, part_of=shard_of
        )
        self.content = MergedReader(
            lambda: {number: store.content for number, store in parts().items()}, shard_of=shard_of
        )

    async def check(self) -> None:
        """Return if every store accepts spans now.

        Raises:
            StoreUnavailable: the disk of one is full or fails.
        """
        await ask_each(self._stores().values(), lambda store: store.check())


def _owners(key: str, parts: Mapping[int, PartT], shard_of: ShardOf | None) -> Mapping[int, PartT]:
    """Return the store that has a trace; all without a rule, and none if it is not here."""
    if shard_of is None:
        return parts
    owner = shard_of(trace_id_of(key).lower())
    return {owner: parts[owner]} if owner in parts else {}
