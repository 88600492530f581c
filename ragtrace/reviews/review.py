"""A review: a person confirms or overrules the verdict on a claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from ragtrace.answers.summary import AnswerKey
from ragtrace.model import VerdictLabel


class ReviewPick(StrEnum):
    """How an answer came to be reviewed: averages use random ones only."""

    OPENED = "opened"
    """A person opened it."""
    UNCERTAIN = "uncertain"
    """The queue that asks first where judges disagree or confidence is low."""
    RANDOM = "random"
    """The queue in random order: every answer has the same probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What one person says of one claim."""

    key: AnswerKey
    carrier_span_id: str
    """The evaluation that was looked at."""
    claim: str
    """The claim's text: content."""
    start: int | None
    """The claim's place in the answer; characters."""
    end: int | None
    verdict: VerdictLabel
    """The judge's."""
    label: VerdictLabel
    """The person's: ``supported``, ``contradicted``, ``unsupported``, or ``unjudged`` for "I cannot tell"."""
    note: str = ""
    reviewer: str = ""
    """The token's name, or what the person gave."""
    time_ns: int
    picked: ReviewPick = ReviewPick.OPENED

    @property
    def overrules(self) -> bool:
        """Whether the person disagrees."""
        return self.label is not self.verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedView:
    """A named filter of the list of answers."""

    name: str
    query: str
    """The URL's query string: it is the filter."""
    tenant: str | None = None
    """Whose it is; ``None`` for readers of all tenants."""


class ReviewStore(Protocol):
    """Keeps reviews and saved views; in a file of its own, as the collector's store has one writer.

    Every method raises WriteError if the file cannot be written: nothing that was kept is lost.
    """

    async def add(self, reviews: Sequence[Review]) -> None:
        """Keep reviews, all or none. A person's later review of a claim replaces the earlier one."""
        ...

    async def of(self, key: AnswerKey) -> Sequence[Review]:
        """Return the reviews of an answer, the newest first."""
        ...

    async def reviewed(self, *, tenant: str | None) -> Mapping[AnswerKey, Sequence[Review]]:
        """Return every reviewed answer."""
        ...

    async def views(self, *, tenant: str | None) -> Sequence[SavedView]:
        """Return the saved views, by name."""
        ...

    async def save_view(self, view: SavedView) -> None:
        """Save a view, in place of one of the same name."""
        ...

    async def delete_view(self, name: str, *, tenant: str | None) -> None:
        """Delete a view, if there is one."""
        ...

    async def aclose(self) -> None:
        """Close the file."""
        ...
