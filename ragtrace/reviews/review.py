"""A review: a person confirms or overrules the verdict on a claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

from ragtrace.answers.summary import AnswerKey
from ragtrace.model import RagRecord, VerdictLabel


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
class LabeledClaim:
    """A claim with what people say of it together."""

    text: str
    label: VerdictLabel | None
    """Of most people; ``None`` if as many say something else, or all cannot tell."""
    verdict: VerdictLabel
    """The judge's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRow:
    """A reviewed answer with its texts."""

    key: AnswerKey
    question: str | None
    contexts: Sequence[tuple[str, str]]
    """Id and text of each chunk."""
    answer: str | None
    claims: tuple[LabeledClaim, ...]
    """The claims that somebody reviewed."""
    asked: int | None = None
    """How many claims the evaluation has, reviewed or not; ``None`` if unknown."""
    picked: ReviewPick
    """``random`` if anybody was asked at random."""

    @property
    def label(self) -> VerdictLabel | None:
        """The whole answer's: of a wrong claim, else ``supported`` if people labeled every claim so."""
        labels = [claim.label for claim in self.claims]
        for wrong in (VerdictLabel.CONTRADICTED, VerdictLabel.UNSUPPORTED):
            if wrong in labels:
                return wrong
        is_whole = self.asked is not None and len(labels) >= self.asked and None not in labels
        return VerdictLabel.SUPPORTED if labels and is_whole else None


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

    async def add(
        self,
        reviews: Sequence[Review],
        *,
        record: RagRecord,
        claims: int | None = None,
        outbox: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        """Keep reviews of one answer, all or none. A person's later review of a claim replaces the earlier.

        Args:
            reviews: What one person says.
            record: The answer, so that labels have its texts.
            claims: How many claims the evaluation has, reviewed or not.
            outbox: Serialized spans of the reviews by sink: kept until they are delivered.
        """
        ...

    async def undo(self, key: AnswerKey, *, reviewer: str) -> None:
        """Take back what a person said of an answer; what was delivered stays in its trace."""
        ...

    async def of(self, key: AnswerKey) -> Sequence[Review]:
        """Return the reviews of an answer, the newest first."""
        ...

    async def reviewed(self, *, tenant: str | None) -> Mapping[AnswerKey, Sequence[Review]]:
        """Return every reviewed answer."""
        ...

    async def labels(self, *, tenant: str | None) -> Sequence[LabelRow]:
        """Return the reviewed answers in the form that ``ragtrace calibrate`` reads."""
        ...

    async def pass_over(self, key: AnswerKey) -> None:
        """Keep that an answer cannot be reviewed: its content is gone."""
        ...

    async def passed_over(self, *, tenant: str | None) -> frozenset[AnswerKey]:
        """Return the answers whose content is gone."""
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
