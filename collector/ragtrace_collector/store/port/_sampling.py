"""The state of sampling, so that a restart decides the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from ragtrace_collector.sampling.follow_up import LowAnswer
from ragtrace_collector.sampling.sampler import EarlierDecision, SamplingChanges
from ragtrace_collector.sampling.windows import WindowRow
from ragtrace_collector.store.port._jobs import Job


class RelatedAnswer(NamedTuple):
    """An answer that was sampled out and may still be queued."""

    seen_ns: int
    trace_id: str
    span_id: str
    tenant: str


class SamplingStore(Protocol):
    """Keeps counts for adaptive rates, low answers, and the answers that may be related to them.

    Each method is one transaction.
    """

    async def load(self, *, now_ns: int) -> tuple[tuple[WindowRow, ...], tuple[LowAnswer, ...]]:
        """Return the counts of the last windows in any order, and the low answers that are still active.

        The low answers come in the order in which they end.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        ...

    async def statuses(self, trace_id: str) -> Mapping[str, EarlierDecision]:
        """Return the earlier decisions about the answers of a trace, by span id; superseded ones are none.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        ...

    async def save(self, changes: SamplingChanges) -> None:
        """Store what the decisions changed.

        A row replaces that of its period, window and tenant. Windows outside a period's horizon are deleted.
        Of a known low answer, the number of related answers that it may still keep is stored; an unknown one
        is ignored. An answer that was left out twice is kept once.

        Raises:
            StoreUnavailable: nothing was stored.
        """
        ...

    async def candidates(self, keys: Sequence[str], *, limit: int) -> tuple[RelatedAnswer, ...]:
        """Return the newest answers that were sampled out, have one of the keys, and still have their spans.

        The newest comes first, each once.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        ...

    async def select_related(self, low: LowAnswer, jobs: Sequence[Job], *, now_ns: int) -> int:
        """Store a low answer, and queue related answers that were sampled out; return how many.

        A low answer that is known stays as it is. Those that have ended are deleted.

        Raises:
            StoreUnavailable: nothing was changed.
        """
        ...
