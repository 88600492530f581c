"""What a peer's metric is: its own calls in its own order, and the number it would give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ragtrace.model import ChunkVerdict, CompatStatus, Direction, Intermediate, Part, RagRecord, Verdict
from ragtrace.ports import FreeText, SamplingParameters
from ragtrace.scoring import ProfileScore


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """What users of the peers set. A peer ignores what it does not know."""

    include_reason: bool = False
    """Ask for a reason too: one more call (deepeval; on by default there, and never part of the score)."""
    strict_mode: bool = False
    """deepeval: the threshold is 1, and a score below it is 0."""
    penalize_ambiguous_claims: bool = False
    """deepeval: what the context does not mention does not pass."""
    truths_extraction_limit: int | None = None
    """deepeval: how many truths to ask for, a document."""
    strictness: int = 3
    """ragas, promptfoo: how many questions are made from the answer."""
    max_retries: int = 3
    """ragas: how often an unreadable reply is asked for again."""
    text_fallback: bool = True
    """promptfoo: count `verdict: yes/no` where the final line is missing."""


class ToolCalls(Protocol):
    """The peer's way to its models."""

    async def text(
        self,
        step: str,
        prompt: str,
        *,
        system: str = "",
        sampling: SamplingParameters | None = None,
        max_output_tokens: int = 4096,
    ) -> FreeText:
        """Ask for a text.

        Raises:
            JudgeError: the endpoint gave no usable answer.
        """
        ...

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        """Turn texts into vectors.

        Raises:
            JudgeError: the endpoint gave no usable answer, or there is none.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRun:
    """How the peer's metric ended."""

    status: CompatStatus
    score: float | None
    """The peer's raw number, ``None`` for ``nan`` and ``error``; a grader error keeps the 0 it reports."""
    explanation: str
    """One line for people, without text under judgment."""
    verdicts: tuple[Verdict, ...] = ()
    chunk_verdicts: tuple[ChunkVerdict, ...] = ()
    reason: str | None = None
    """Why, in the words of the judge that was asked for it."""
    intermediate: Intermediate | None = None
    error_type: str | None = None
    """What kind of error it is, where that is known better than that the peer raises."""

    @classmethod
    def of(
        cls,
        found: ProfileScore,
        explanation: str,
        *,
        verdicts: tuple[Verdict, ...] = (),
        chunk_verdicts: tuple[ChunkVerdict, ...] = (),
        intermediate: Intermediate | None = None,
    ) -> ToolRun:
        """End with what the peer's rule makes of these verdicts."""
        return cls(
            status=found.status,
            score=found.raw,
            explanation=explanation,
            verdicts=verdicts,
            chunk_verdicts=chunk_verdicts,
            intermediate=intermediate,
        )

    @classmethod
    def failed(cls, explanation: str) -> ToolRun:
        """End as where the peer raises."""
        return cls(status=CompatStatus.ERROR, score=None, explanation=explanation)

    @classmethod
    def lacking(cls, explanation: str) -> ToolRun:
        """End as where the peer refuses a record for what it lacks, before any call."""
        return cls(
            status=CompatStatus.ERROR, score=None, explanation=explanation, error_type="missing_params"
        )


class ToolMetric(Protocol):
    """One metric of a peer. Stateless."""

    @property
    def metric(self) -> str:
        """Our name of it: ``answer_relevance`` for ragas' ``answer_relevancy``."""
        ...

    @property
    def profile(self) -> str:
        """``ragas``, ``ragas-legacy``, ``deepeval-3``, ``deepeval-4``, ``promptfoo`` or ``rag_evals``."""
        ...

    @property
    def needs(self) -> tuple[Part, ...]:
        """The parts of a record that it reads."""
        ...

    @property
    def direction(self) -> Direction:
        """Which way its numbers are good."""
        ...

    @property
    def threshold(self) -> float:
        """Where it passes by default; 0.5 where the peer has none."""
        ...

    async def run(self, record: RagRecord, calls: ToolCalls, options: ToolOptions) -> ToolRun:
        """Measure the record as the peer does: the same calls in the same order, one after another."""
        ...
