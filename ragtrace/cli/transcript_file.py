"""``--transcripts``: keep what judges say, and what came of it, for `ragtrace rejudge`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from ragtrace.metrics import StepLimits
from ragtrace.model import JudgedAnswer, JudgeIdentity
from ragtrace.pipeline.evaluator import Evaluator
from ragtrace.pipeline.spec import MetricSpec
from ragtrace.transcripts import TranscriptRecord, Transcripts, recorded


class TranscriptFile:
    """Keeps what is judged while it is open, if a file was named."""

    def __init__(self, path: Path | None) -> None:
        self._transcripts = Transcripts(path) if path else None
        self._second: JudgeIdentity | None = None
        self._limits = StepLimits()
        self._metrics: tuple[MetricSpec, ...] = ()

    def recorded(self, evaluator: Evaluator, metrics: tuple[MetricSpec, ...]) -> Evaluator:
        """Write down what the judges say, who they are, and which metrics ask them within which limits."""
        if self._transcripts is None:
            return evaluator
        second = evaluator.second_judge
        self._metrics = metrics
        self._second, self._limits = second.identity if second else None, evaluator.limits
        return replace(
            evaluator,
            judge=recorded(evaluator.judge, self._transcripts),
            second_judge=recorded(second, self._transcripts) if second else None,
        )

    @property
    def is_whole(self) -> bool:
        """Whether all that was to be kept is."""
        return self._transcripts is None or self._transcripts.is_whole

    def __enter__(self) -> Self:
        """Open the file.

        Raises:
            ConfigError: it cannot be used.
        """
        if self._transcripts:
            self._transcripts.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._transcripts:
            self._transcripts.__exit__(kind, exc, traceback)

    def keep(self, answer: JudgedAnswer) -> None:
        """Keep what came of a record."""
        if self._transcripts:
            self._transcripts.keep(
                TranscriptRecord(
                    record=answer.record,
                    evaluation=answer.evaluation,
                    sample=answer.sample,
                    second_judge=self._second,
                    limits=self._limits,
                    metrics=self._metrics,
                    session=self._transcripts.session,
                )
            )
