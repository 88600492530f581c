"""The index of judged answers: a row without content for each evaluation, and for a while its carrier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ragtrace.answers.summary import AnswerSummary


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


class IndexStore(Protocol):
    """Searches the judged answers, and opens their carriers.

    Rows are written by the transaction that ends a job, so that none is lost or invented by a crash.
    """

    async def carriers(self, trace_id: str) -> tuple[bytes, ...]:
        """Return the kept carriers of a trace, those of superseded evaluations too, in order of judging."""
        ...

    async def index_size(self) -> IndexSize:
        """Return how much the index holds."""
        ...
