"""A peer's metric as one of ours: its calls go through our judge, its outcome becomes ours."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from pydantic import BaseModel, ConfigDict

from ragtrace.compat.peer import PeerMetric, PeerOptions, PeerRun
from ragtrace.errors import JudgeError, JudgeUnable
from ragtrace.metrics import Steps
from ragtrace.model import (
    Compat,
    CompatStatus,
    Direction,
    MetricFailure,
    MetricOutcome,
    MetricResult,
    Part,
    RagRecord,
    SkipReason,
    Usage,
)
from ragtrace.ports import Embedder, FreeText, Judge, JudgeRequest, SamplingParameters

__all__ = ["PeerPrompted"]

_GRADERS = ("promptfoo",)
"""Peers that report a judge's failure as a score of 0 with a grader error; the others raise."""
_ERROR_TYPES = {CompatStatus.ERROR: "peer_error", CompatStatus.GRADER_ERROR: "grader_error"}


class PeerPrompted:
    """Measures with a peer's own calls: its order, its JSON fields, its text formats."""

    def __init__(
        self, peer: PeerMetric, *, options: PeerOptions | None = None, threshold: float | None = None
    ) -> None:
        self._peer = peer
        self._options = options or PeerOptions()
        self.threshold = _threshold(peer, self._options) if threshold is None else threshold

    @property
    def name(self) -> str:
        """Our name of the metric."""
        return self._peer.metric

    @property
    def profile(self) -> str:
        """Whose rules."""
        return self._peer.profile

    @property
    def needs(self) -> tuple[Part, ...]:
        """The parts of a record that it reads."""
        return self._peer.needs

    @property
    def direction(self) -> Direction:
        """Which way the peer's numbers are good."""
        return self._peer.direction

    @property
    def version(self) -> str:
        """Changes whenever the same replies could give another score."""
        return f"1-peer-{hashlib.sha256(repr(self._options).encode()).hexdigest()[:8]}"

    async def measure(self, record: RagRecord, steps: Steps) -> MetricOutcome:
        """Score the record as the peer does. What the peer raises or reports comes back as a failure."""
        key = f"{self.name}.{self.profile}.peer"
        embedder = _MeteredEmbedder(steps.embedder)

        async def run(judge: Judge) -> PeerRun:
            return await self._peer.run(record, _OurCalls(judge, embedder), self._options)

        try:
            outcome = self._outcome(await steps.shared(key, run), steps)
        except JudgeError as failed:
            outcome = self._judge_failed(failed, steps)
        return replace(outcome, usage=steps.spent_on(key) + embedder.spent)

    def _outcome(self, run: PeerRun, steps: Steps) -> MetricOutcome:
        compat = Compat(status=run.status, score=run.score)
        if run.status in _ERROR_TYPES:
            return self._failure(_ERROR_TYPES[run.status], run.explanation, compat, steps)
        reason = _why_no_score(compat)
        return MetricResult(
            metric=self.name,
            profile=self.profile,
            score=None if reason else run.score,
            threshold=self.threshold,
            direction=self.direction,
            evaluator_version=steps.version_of(self),
            skip_reason=reason,
            explanation=run.explanation,
            verdicts=run.verdicts,
            chunk_verdicts=run.chunk_verdicts,
            compat=compat,
        )

    def _judge_failed(self, failed: JudgeError, steps: Steps) -> MetricFailure:
        grades = self.profile in _GRADERS
        compat = (
            Compat(status=CompatStatus.GRADER_ERROR, score=0.0)
            if grades
            else Compat(status=CompatStatus.ERROR)
        )
        failure = self._failure(failed.error_type, str(failed), compat, steps)
        return replace(failure, retryable=failed.retryable)

    def _failure(self, error_type: str, message: str, compat: Compat, steps: Steps) -> MetricFailure:
        return MetricFailure(
            metric=self.name,
            profile=self.profile,
            error_type=error_type,
            message=message,
            evaluator_version=steps.version_of(self),
            compat=compat,
        )


def _why_no_score(compat: Compat) -> SkipReason | None:
    if compat.status is CompatStatus.NAN or compat.score is None:
        return SkipReason.PEER_NAN
    return None if 0 <= compat.score <= 1 else SkipReason.OUT_OF_RANGE


def _threshold(peer: PeerMetric, options: PeerOptions) -> float:
    if not (options.strict_mode and peer.profile.startswith("deepeval")):
        return peer.threshold
    return 1.0 if peer.direction is Direction.HIGHER_IS_BETTER else 0.0


class _Asked(BaseModel):
    """What a request was made of, for judges that compute: they cannot answer it."""

    model_config = ConfigDict(frozen=True)

    prompt: str


class _OurCalls:
    """The peer's calls over our ports."""

    def __init__(self, judge: Judge, embedder: _MeteredEmbedder) -> None:
        self._judge = judge
        self._embedder = embedder

    async def text(
        self,
        step: str,
        prompt: str,
        *,
        system: str = "",
        sampling: SamplingParameters | None = None,
        max_output_tokens: int = 4096,
    ) -> FreeText:
        request = JudgeRequest(
            step=step,
            system=system,
            user=prompt,
            reply_type=FreeText,
            inputs=_Asked(prompt=prompt),
            max_output_tokens=max_output_tokens,
            sampling=sampling,
        )
        return (await self._judge.ask(request)).value

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        return await self._embedder.embed(texts)


class _MeteredEmbedder:
    """Adds up what was embedded."""

    def __init__(self, embedder: Embedder | None) -> None:
        self._embedder = embedder
        self.spent = Usage()

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        if self._embedder is None:
            raise JudgeUnable(
                "the metric compares meanings, and no embedder is named: add --embedder", usage=Usage()
            )
        try:
            reply = await self._embedder.embed(texts)
        except JudgeError as failed:
            self._book(failed.usage)
            raise
        self._book(reply.usage)
        return reply.vectors

    def _book(self, usage: Usage) -> None:
        self.spent += replace(usage, calls=0)  # `calls` are the judge's, as the peers count
