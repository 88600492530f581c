"""One answer opened: its content, every evaluation of it, and the trace around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ragtrace.answers.summary import AnswerKey
from ragtrace.errors import ReadError
from ragtrace.model import JudgedAnswer, RagRecord
from ragtrace.traces.trace import Span, Trace


class AnswerGone(ReadError):
    """The place was read, and it has no such answer (any more). The message is a sentence for people."""


class AnswerDamaged(ReadError):
    """The collector's own store has it and cannot read it. The message is a sentence for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerVersion:
    """One evaluation of an answer, read back from its carrier or from a report."""

    judged: JudgedAnswer
    """The record as it is today, with this evaluation; ``judged.carrier_span_id`` names the carrier."""
    evaluation_id: str = ""
    """The carrier's span id; in hold mode, which has no carrier, the id that it would have."""
    carrier: Span | None = None
    """The raw carrier: the answer span itself in hold mode; ``None`` if it comes from a report."""
    is_valid: bool = True
    """No other evaluation supersedes it."""
    notices: tuple[str, ...] = ()
    """Sentences: claims left out for room, a newer schema, a record that changed since it was judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedAnswer:
    """An answer with its content."""

    key: AnswerKey
    record: RagRecord
    versions: tuple[AnswerVersion, ...]
    """Valid ones first, then the newest first; never empty."""
    trace: Trace | None
    """The whole trace, for the timeline; ``None`` if it comes from a report."""
    read_from: str
    """Kind and address of the place, without secrets: ``jaeger:http://localhost:16686``."""
    feedback: tuple[Span, ...] = ()
    """Spans of feedback and of reviews on this answer."""
    notices: tuple[str, ...] = ()
    """Sentences about the whole answer: a record that can no longer be read, a place that keeps less."""


class AnswerSource(Protocol):
    """Opens answers where their content is."""

    @property
    def name(self) -> str:
        """Kind and address, without secrets."""
        ...

    async def open(self, key: AnswerKey) -> OpenedAnswer:
        """Return the answer with its content.

        Raises:
            AnswerGone: the place has it no more, or not yet.
            ReadError: the place could not be read.
        """
        ...

    async def aclose(self) -> None:
        """Release sockets and files."""
        ...
