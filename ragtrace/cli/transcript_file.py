"""``--transcripts``: keep what judges say, and what came of it, for `ragtrace rejudge`."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from ragtrace.metrics import StepLimits
from ragtrace.model import JudgeIdentity
from ragtrace.ports import Judge
from ragtrace.reports import JudgedAnswer
from ragtrace.transcripts import TranscriptRecord, Transcripts, recorded


class TranscriptFile:
    """Keeps what is judged while it is open, if a file was named."""

    def __init__(self, path: Path | None) -> None:
        self._transcripts = Transcripts(path) if path else None
        self._second: JudgeIdentity | None = None

    def around(self, judge: Judge) -> Judge:
        """Write down what a judge says."""
        return recorded(judge, self._transcripts) if self._transcripts else judge

    def around_second(self, judge: Judge | None) -> Judge | None:
        """Write down what the second judge says, and who that is."""
        if judge is None:
            return None
        self._second = judge.identity
        return self.around(judge)

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

    def keep(self, answer: JudgedAnswer, limits: StepLimits | None = None) -> None:
        """Keep what came of a record, and by which limits it was judged."""
        if self._transcripts:
            self._transcripts.keep(
                TranscriptRecord(
                    record=answer.record,
                    evaluation=answer.evaluation,
                    sample=answer.sample,
                    second_judge=self._second,
                    limits=limits or StepLimits(),
                    session=self._transcripts.session,
                )
            )
