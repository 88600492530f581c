"""By what a report groups answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from ragtrace.answers.summary import AnswerSummary
from ragtrace.model import Chunk


class ReportDimension(StrEnum):
    """What the answers of a group have in common."""

    SERVICE = "service"
    MODEL = "model"
    PROMPT_VERSION = "prompt_version"
    TENANT = "tenant"
    JUDGE = "judge"
    CAUSE = "cause"
    """The earliest hop that failed; else the diagnosis of the composite."""
    SOURCE = "source"
    DAY = "day"
    HOUR = "hour"

    @property
    def is_time(self) -> bool:
        """Whether the groups are periods, in the order of time."""
        return self in (ReportDimension.DAY, ReportDimension.HOUR)


NONE: Final = "(none)"
"""The group of answers that name no service, model and so on."""
_SOURCE_KEYS: Final = ("source", "url", "uri", "file_path", "file_name", "filename", "path", "title")
_FORMS: Final = {ReportDimension.DAY: "%Y-%m-%d", ReportDimension.HOUR: "%Y-%m-%d %H:00"}


def groups_of(answer: AnswerSummary, by: ReportDimension, sources: Sequence[str] = ()) -> Sequence[str]:
    """Return the groups of an answer: one, or one for each source of its chunks. Periods are in UTC."""
    if by is ReportDimension.SOURCE:
        return tuple(dict.fromkeys(sources)) or (NONE,)
    if by.is_time:
        if not answer.time_ns:
            return (NONE,)
        return (f"{datetime.fromtimestamp(answer.time_ns / 1e9, UTC):{_FORMS[by]}}",)
    if by is ReportDimension.TENANT:
        return (answer.key.tenant or NONE,)
    if by is ReportDimension.CAUSE:
        return (answer.blame or NONE,)
    return (str(getattr(answer, by.value)) or NONE,)


def source_of(chunk: Chunk) -> str:
    """Return the document that a chunk is from, as its metadata names it; empty if it names none."""
    named = (chunk.metadata.get(key) for key in _SOURCE_KEYS)
    return next((name for name in named if isinstance(name, str) and name), "")
