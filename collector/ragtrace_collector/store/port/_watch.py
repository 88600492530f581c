"""The watch over objectives: judged answers that it has yet to count, and what it keeps between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ragtrace.answers.summary import AnswerSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedAnswer:
    """A judged answer that is not counted yet."""

    id: int
    """Grows with each answer, and never comes again."""
    summary: AnswerSummary
    """Its ids, names, probability and results of metrics; the rest is not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What somebody is told."""

    sink: str
    """The name of its queue in the outbox."""
    payload: bytes


class WatchStore(Protocol):
    """Counts each judged answer once, also across crashes: states, answers and notices change together.

    Answers are put there by the transaction that ends their job, if ``KeptCarrier.is_watched``.
    """

    async def watched(self, limit: int) -> tuple[WatchedAnswer, ...]:
        """Return the oldest answers that are not counted yet, in the order in which they were judged."""
        ...

    async def watch_states(self) -> Mapping[str, str]:
        """Return what was kept of each objective, by its name."""
        ...

    async def note_watch(
        self, *, states: Mapping[str, str | None], up_to: int, notices: Sequence[Notice]
    ) -> None:
        """Keep states (``None`` deletes one), delete the answers up to an id, put notices into the outbox."""
        ...
