"""The port of reports, and what is said about a run as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ragtrace.outcomes import JudgedAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What a run is about, known before it begins."""

    source: str
    """Where the answers come from, without secrets."""
    judge: str
    metrics: tuple[str, ...]
    """Each with where it passes."""
    began_at_ns: int
    """Unix time in nanoseconds."""
    selection: Mapping[str, str] = field(default_factory=dict)
    """What was asked for, by option."""
    second_judge: str | None = None
    prices_as_of: str = ""
    """When the prices were looked up."""
    trace_url: str | None = None
    """The page of a trace, with ``{trace_id}`` and ``{span_id}`` in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedAnswers:
    """Answers or traces that no report is told of one by one."""

    what: str
    """``sampled out``, ``already evaluated``, …"""
    number: int
    unit: str
    """``answer``, ``trace``, ``carrier``, ``window``."""
    why: str
    """One sentence for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ended, and what it did not judge."""

    cut_short: str | None = None
    """Why it ended before its end, as a clause: ``it was stopped``."""
    left_out: tuple[SkippedAnswers, ...] = ()


class Report(Protocol):
    """A file that tells what was judged."""

    @property
    def path(self) -> Path:
        """Where it is."""
        ...

    def add(self, answer: JudgedAnswer) -> None:
        """Tell of an answer.

        Raises:
            OSError: the file cannot be written.
        """
        ...

    def close(self, ending: RunEnd) -> None:
        """Make the file whole, and show it under its name.

        Raises:
            OSError: the file cannot be written.
        """
        ...

    def abandon(self) -> None:
        """Leave what stood under that name before as it is."""
        ...
