"""``--transcripts``: keep what judges say, and what came of it, for `ragtrace rejudge`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import click

from ragtrace.metrics import StepLimits
from ragtrace.model import JudgeIdentity
from ragtrace.ports import Judge
from ragtrace.reports import JudgedAnswer
from ragtrace.transcripts import TranscriptRecord, Transcripts, recorded

Callback: TypeAlias = Callable[..., Any]


def transcripts_option(callback: Callback) -> Callback:
    """Add ``--transcripts``; the callback gets ``transcribing``, a `Transcribing`."""

    @click.option(
        "--transcripts",
        "transcripts",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Keep the records, what the judge says of them, and the verdicts: `ragtrace rejudge` scores them"
        " again without a call. The file holds the texts; only you can read it.",
    )
    @wraps(callback)
    def with_transcripts(*args: Any, transcripts: Path | None, **others: Any) -> Any:
        transcribing = click.get_current_context().with_resource(Transcribing(transcripts))
        return callback(*args, transcribing=transcribing, **others)

    return with_transcripts


class Transcribing:
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
