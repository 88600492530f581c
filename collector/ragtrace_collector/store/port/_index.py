"""The index of judged answers: a row without content for each evaluation, and for a while its carrier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ragtrace.answers.port import AnswerIndex
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.ports import TraceReader
from ragtrace.traces.trace import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCarrier:
    """What the store keeps of one evaluation."""

    summary: AnswerSummary
    """Its row. It stays as long as the index allows."""
    payload: bytes
    """The carrier as serialized ``TracesData``. It is deleted together with the spans of its trace."""


class IndexSize(NamedTuple):
    """How much the index holds."""

    rows: int
    """With those of superseded evaluations."""
    oldest_ns: int | None
    """When the oldest judged span began; ``None`` without a row."""


class StoredContent(TraceReader, Protocol):
    """Reads the traces that are still stored, and beside them the carriers of their answers.

    The id of a trace may be followed by ``@`` and a tenant, because several may use the same.
    """

    async def carriers(self, key: AnswerKey) -> Sequence[Span]:
        """Return the kept carriers of an answer's trace, in order of judging, with the superseded ones.

        They are not among the spans of the trace, so that nothing reads them as the application's.

        Raises:
            ReadError: the store could not be read.
        """
        ...


class IndexStore(Protocol):
    """Finds judged answers, and opens them.

    A row and its carrier are written by the transaction that ends the job, so that none is lost or invented
    by a crash. What its readers raise is ReadError.
    """

    @property
    def answers(self) -> AnswerIndex:
        """The rows. Each of its methods reads one moment, and keeps no writer waiting."""
        ...

    @property
    def content(self) -> StoredContent:
        """What answers are opened from; it keeps no writer waiting."""
        ...

    async def index_size(self) -> IndexSize:
        """Return how much the index holds."""
        ...
