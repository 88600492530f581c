"""The port of reports, and the description of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """The description of a run, known before it begins."""

    source: str
    """The source of the answers, without secrets."""
    judge: str
    metrics: tuple[str, ...]
    """The metrics with their pass rules."""
    began_at_ns: int
    """Unix time in nanoseconds."""
    selection: Mapping[str, str] = field(default_factory=dict)
    """The options of the run."""
    second_judge: str | None = None
    prices_as_of: str = ""
    """The date of the prices."""
    trace_url: str | None = None
    """The URL template of a trace's page, with ``{trace_id}`` and ``{span_id}``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedAnswers:
    """Answers or traces that reports only count."""

    what: str
    """``sampled out``, ``already evaluated``, …"""
    number: int
    unit: str
    """``answer``, ``trace``, ``carrier``, ``window``."""
    why: str
    """A one-sentence description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The end of a run, with the skipped answers."""

    cut_short: str | None = None
    """Why it ended early, as a clause: ``it was stopped``."""
    left_out: tuple[SkippedAnswers, ...] = ()
