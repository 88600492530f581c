"""The index of judged answers: a row for each evaluation, and what is kept to open it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ragtrace.answer_sources import KeptAnswer
from ragtrace.answers.port import AnswerIndex
from ragtrace.answers.summary import AnswerKey, AnswerSummary
from ragtrace.model import RagRecord
from ragtrace.ports import TraceReader


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCarrier:
    """What the store keeps of one evaluation."""

    summary: AnswerSummary
    """Its row. It stays as long as the index allows."""
    payload: bytes
    """The carrier as serialized ``TracesData``."""
    record: RagRecord | None = None
    """What was judged. With it, both stay as long as the row; else the carrier goes with the spans."""


class IndexSize(NamedTuple):
    """How much the index holds."""

    rows: int
    """With those of superseded evaluations."""
    oldest_ns: int | None
    """When the oldest judged span began; ``None`` without a row."""


class StoredContent(TraceReader, Protocol):
    """Reads the traces that are still stored, and what is kept of judged answers.

    The id of a trace may be followed by ``@`` and a tenant, because several may use the same.
    """

    async def kept(self, key: AnswerKey) -> KeptAnswer:
        """Return what is kept of an answer.

        Its carriers are not among the spans of the trace, so that nothing reads them as the application's.

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
